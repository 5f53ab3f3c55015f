package hub

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

var (
	givesBack = protocol.ClientMessage{Type: protocol.ClientRevokeControl}
	toBob     = protocol.ClientMessage{Type: protocol.ClientGrantControl, To: "usr_bob"}
	toNobody  = protocol.ClientMessage{Type: protocol.ClientGrantControl, To: "usr_nobody"}
)

// freed is the lease after control was given back.
var freed = protocol.Lease{Revision: 4, Term: 2, State: protocol.LeaseFree}

// numbers has the viewer type so that its client numbers what it types.
func (e *executing) numbers() {
	e.v.keys.Counts = true
	e.v.keys.Init(e.h.typing, e.v.keys.Options)
	e.v.keys.Attach()
}

// types types text as the viewer's client does.
func (e *executing) types(seq uint64, text string) {
	e.Helper()
	if e.v.keys.Counts {
		e.v.TypeNumbered(protocol.BrowserInput{Seq: seq, Term: 2, Bytes: []byte(text)})
		return
	}
	ctx, cancel := context.WithTimeout(e.Context(), patience)
	defer cancel()
	if err := e.v.Type(ctx, []byte(text)); err != nil {
		e.Fatal(err)
	}
}

// reaches returns what was sent to the agent since the last time: inputs as
// they are, everything that changes the lease as <>.
func (e *executing) reaches() string {
	e.Helper()
	var all strings.Builder
	frames := protocol.NewFrameReader(bytes.NewReader(e.link.Take()))
	for {
		frame, err := frames.Next()
		if err != nil {
			break
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			e.Fatal(err)
		}
		switch m := m.(type) {
		case protocol.Input:
			all.Write(m.Bytes)
		case protocol.LeaseProposal:
			all.WriteString("<>")
		}
	}
	return all.String()
}

// sends checks what reaches the agent.
func (e *executing) sends(want string) {
	e.Helper()
	if got := e.reaches(); got != want {
		e.Fatalf("the agent gets %q, want %q", got, want)
	}
}

// answers has the agent answer a proposal.
func (e *executing) answers(id uint64, refused string, l protocol.Lease) {
	e.h.step(turn.Leased{Leased: protocol.Leased{ID: id, Refused: refused, Lease: l}})
}

// dropped returns the refusals of input that wait for the viewer, in order, and
// forgets them.
func (e *executing) dropped() string {
	e.Helper()
	var all strings.Builder
	e.v.outbox.mu.Lock()
	defer e.v.outbox.mu.Unlock()
	for b := e.v.outbox.notices; len(b) > 0; {
		payload, rest, err := relaytest.Frame(b)
		if err != nil {
			e.Fatal(err)
		}
		it := item{kind: protocol.ServerInputRefused, bytes: payload}
		if strings.Contains(string(payload), `"type":"`+protocol.ServerInputRefused+`"`) {
			var m protocol.InputDropped
			it.decode(e.T, &m)
			fmt.Fprintf(&all, "%d %s;", m.Seq, m.Reason)
		}
		b = rest
	}
	e.v.outbox.notices, e.v.outbox.refusing = nil, false
	return all.String()
}

func (e *executing) drops(want string) {
	e.Helper()
	if got := e.dropped(); got != want {
		e.Fatalf("refused: %q, want %q", got, want)
	}
}

// TestTypedBehindRevoke: nothing of it is written, whenever run gets to the
// request.
func TestTypedBehindRevoke(t *testing.T) {
	for _, numbered := range []bool{false, true} {
		t.Run(fmt.Sprint("numbered ", numbered), func(t *testing.T) {
			e := newExecuting(t)
			want := "0 not_controller;"
			if numbered {
				e.numbers()
				want = "2 not_controller;3 not_controller;0 not_controller;"
			}
			e.types(1, "a")
			e.v.Say(givesBack)
			e.types(2, "b")
			e.sends("a")
			e.h.obey(e.v, givesBack)
			e.types(3, "c")
			e.v.Execute("x")
			e.sends("<>")
			e.drops("")
			e.answers(1, "", freed)
			e.drops(want)
			e.h.tick(time.Now().Add(time.Minute))
			if numbered { // else it takes the terminal
				e.types(4, "d")
				e.sends("")
			}
			e.h.typing.Acked(protocol.InputAck{Client: e.v.keys.Client, Seq: 1})
			e.roomy()
		})
	}
}

// TestTypedBehindRefusedGrant: it is written, in order and once, by whatever
// the grant was refused.
func TestTypedBehindRefusedGrant(t *testing.T) {
	for _, numbered := range []bool{false, true} {
		for _, request := range []protocol.ClientMessage{toNobody, toBob} {
			t.Run(fmt.Sprint(request.To, " numbered ", numbered), func(t *testing.T) {
				e := newExecuting(t)
				e.sit(2, "usr_bob")
				if numbered {
					e.numbers()
				}
				e.reaches()
				e.v.Say(request)
				e.types(1, "a")
				e.types(2, "b")
				e.v.Execute("x")
				e.types(3, "c")
				e.sends("")
				e.h.obey(e.v, request)
				if request == toBob {
					e.sends("<>")
					e.answers(1, "no", held(3, 2))
				}
				e.sends("abxc")
				e.types(4, "d")
				e.sends("d")
				e.drops("")
			})
		}
	}
}

// TestTypedBetweenWishes: each input is judged when the request before it is
// decided, not by those behind it.
func TestTypedBetweenWishes(t *testing.T) {
	e := newExecuting(t)
	e.numbers()
	e.sit(2, "usr_bob")
	e.reaches()
	e.v.Say(toNobody)
	e.types(1, "a")
	e.v.Say(toBob)
	e.types(2, "b")
	e.v.Say(givesBack)
	e.types(3, "c")
	e.sends("")
	e.h.obey(e.v, toNobody)
	e.sends("a")
	e.h.obey(e.v, toBob)
	e.h.obey(e.v, givesBack)
	e.sends("<>")
	e.answers(1, "no", held(3, 2))
	e.sends("b<>")
	e.answers(2, "", freed)
	e.sends("")
	e.drops("3 not_controller;")
	if n, waiting := e.h.typing.Undecided(), e.v.keys.Waiting(); n > 0 || waiting > 0 {
		t.Errorf("%d, %d still wait", n, waiting)
	}
}

// TestTypedBehindDoneGrant: by then somebody else has control.
func TestTypedBehindDoneGrant(t *testing.T) {
	e := newExecuting(t)
	e.sit(2, "usr_bob")
	e.reaches()
	e.v.Say(toBob)
	e.types(1, "a")
	e.h.obey(e.v, toBob)
	e.sends("<>")
	e.answers(1, "", protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_usr_bob", State: protocol.LeaseHeld})
	e.sends("")
	e.drops("0 not_controller;")
	e.roomy()
}

// TestTypedBehindLostWish: the stream ends before the request is answered, or
// before run hears of it. What waits is to be sent again, in order.
func TestTypedBehindLostWish(t *testing.T) {
	for _, heard := range []bool{false, true} {
		t.Run(fmt.Sprint("heard ", heard), func(t *testing.T) {
			e := newExecuting(t)
			e.numbers()
			e.v.Say(givesBack)
			e.types(1, "a")
			e.types(2, "b")
			if heard {
				e.h.obey(e.v, givesBack)
				e.sends("<>")
			}
			e.h.unlinked(nil)
			if !heard {
				e.drops("")
				e.h.obey(e.v, givesBack)
			}
			e.sends("")
			e.drops("1 waiting;2 waiting;")
			e.roomy()
			again := deafLink(t)
			e.link = again
			again.opened = protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24, Claimed: true, Lease: held(3, 2)}
			e.h.linked(again)
			e.reaches()
			e.types(2, "b")
			e.types(1, "a")
			e.types(2, "b")
			e.sends("ab")
			e.drops("2 waiting;")
		})
	}
}

// TestNoRoomBehindWish: what found no room is not overtaken, though what was
// typed before it is judged after it.
func TestNoRoomBehindWish(t *testing.T) {
	e := newExecuting(t)
	e.numbers()
	e.v.Say(toNobody)
	piece := strings.Repeat("x", protocol.MaxInputBytes)
	fits := uint64(protocol.MaxInputUnacked / (protocol.MaxInputBytes + input.Overhead))
	for seq := uint64(1); seq <= fits+1; seq++ {
		e.types(seq, piece)
	}
	e.drops(fmt.Sprintf("%d busy;", fits+1))
	e.h.obey(e.v, toNobody)
	e.sends(strings.Repeat(piece, int(fits)))
	e.h.typing.Acked(protocol.InputAck{Client: e.v.keys.Client, Seq: fits})
	e.types(fits+2, "later")
	e.types(fits+1, "again")
	e.types(fits+2, "later")
	e.sends("againlater")
	e.drops(fmt.Sprintf("%d busy;", fits+2))
}

// TestLeavesBehindWish: whoever leaves meanwhile takes no room any more.
func TestLeavesBehindWish(t *testing.T) {
	e := newExecuting(t)
	e.v.Say(givesBack)
	e.types(1, "a")
	e.h.audience.leave(e.v)
	e.h.obey(e.v, givesBack)
	e.v.Say(givesBack)
	e.sends("")
	e.roomy()
	if n := e.h.typing.Undecided(); n > 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestRevokeAgainstKeys is the race itself: keys right behind a revoke, with all
// goroutines at work.
func TestRevokeAgainstKeys(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	lease := held(3, 2)
	for round := range 100 {
		x.v.Say(givesBack)
		x.types("late")
		p := hears[protocol.LeaseProposal](a) // passes over inputs, so the refusal counts
		lease = protocol.Lease{Revision: lease.Revision + 1, Term: lease.Term, State: protocol.LeaseFree}
		a.say(protocol.Leased{ID: p.ID, Lease: lease})
		var m protocol.InputDropped
		if x.until(protocol.ServerInputRefused).decode(t, &m); m.Reason != protocol.RefusedNotController {
			t.Fatalf("round %d: %+v", round, m)
		}
		x.v.Say(protocol.ClientMessage{Type: protocol.ClientTakeControl})
		p = hears[protocol.LeaseProposal](a)
		lease = held(lease.Revision+1, lease.Term+1)
		a.say(protocol.Leased{ID: p.ID, Lease: lease})
		x.until(protocol.ServerControlTaken)
		x.until(protocol.ServerControlState)
	}
}

// graceOf returns the grace in the last control_state that waits for v, and
// forgets what waits.
func graceOf(t *testing.T, v *Viewer) int64 {
	t.Helper()
	v.outbox.mu.Lock()
	defer v.outbox.mu.Unlock()
	left := int64(-1)
	for b := v.outbox.notices; len(b) > 0; {
		payload, rest, err := relaytest.Frame(b)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(payload), `{"type":"`+protocol.ServerControlState+`"`) {
			var m protocol.ControlState
			(item{kind: protocol.ServerControlState, bytes: payload}).decode(t, &m)
			left = m.GraceMS
		}
		b = rest
	}
	v.outbox.notices = nil
	return left
}

// TestGraceRunsDown: everybody is told what is left of a grace at that moment.
func TestGraceRunsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := still()
		bob := seat(h, 1, "usr_bob", time.Now().Add(time.Hour))
		away := held(4, 2)
		away.State, away.MSLeft = protocol.LeaseGrace, protocol.ControlGrace.Milliseconds()
		h.answer(protocol.Leased{Lease: away})
		check := func(v *Viewer, want int64) {
			t.Helper()
			if left := graceOf(t, v); left != want {
				t.Errorf("%d ms are left, want %d", left, want)
			}
		}
		check(bob, 10_000)
		time.Sleep(6 * time.Second)
		h.answer(protocol.Leased{Lease: away}) // again: no news
		check(seat(h, 2, "usr_carol", time.Now().Add(time.Hour)), 4_000)
		h.step(turn.Requested{Socket: 1})
		check(bob, 4_000)
		time.Sleep(time.Second)
		resynced{bob}.act(h)
		check(bob, 3_000)
		time.Sleep(time.Minute)
		resynced{bob}.act(h)
		check(bob, 1) // the agent alone says that it is over

		h.link = deafLink(t)
		away.MSLeft = 2_500 // the same revision, after another tunnel
		l := &link{bearer: h.dial.bearer.Load(), life: agentstream.NewLife(t.Context()), opened: protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24, Claimed: true, Lease: away}}
		l.Init(nil, l.life)
		h.linked(l)
		check(bob, 2_500)
		h.answer(protocol.Leased{Lease: held(5, 2)})
		check(bob, 0)
	})
}
