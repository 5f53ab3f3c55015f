package hub

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/input"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// An executing is a still hub, its link to an agent that a test plays, and a
// viewer who has control.
type executing struct {
	*testing.T
	h    *Hub
	link *link
	v    *Viewer
}

func newExecuting(t *testing.T) *executing {
	e := &executing{T: t, h: still(), link: deafLink(t)}
	e.h.link = e.link
	e.h.typing.Connect(e.link)
	go func() { // ends with the test; nothing waits for it
		for {
			select {
			case <-e.h.events:
			case <-t.Context().Done():
				return
			}
		}
	}()
	e.v = e.sit(1, relaytest.User)
	e.h.tick(time.Now())
	return e
}

func (e *executing) sit(id turn.SocketID, user protocol.UserID) *Viewer {
	return seat(e.h, id, user, time.Now().Add(time.Hour))
}

// inputs returns the inputs that were passed on since the last time.
func (e *executing) inputs() (inputs []protocol.Input) {
	e.Helper()
	for _, m := range sent(e.T, e.link) {
		if m, ok := m.(protocol.Input); ok {
			inputs = append(inputs, m)
		}
	}
	e.link.Take()
	return inputs
}

// passed checks the one input that was passed on, and returns it.
func (e *executing) passed(bytes string, term uint64) protocol.Input {
	e.Helper()
	got := e.inputs()
	if len(got) != 1 || string(got[0].Bytes) != bytes || got[0].Term != term || got[0].Client == e.v.keys.Client {
		e.Fatalf("passed on: %+v, want %q in term %d", got, bytes, term)
	}
	return got[0]
}

func (e *executing) quiet() {
	e.Helper()
	if got := e.inputs(); len(got) > 0 {
		e.Fatalf("passed on: %+v", got)
	}
}

func (e *executing) acks(in protocol.Input) {
	e.h.typing.Acked(protocol.InputAck{Client: in.Client, Seq: in.Seq})
}

// roomy checks that nothing takes room any more.
func (e *executing) roomy() {
	e.Helper()
	in := e.h.typing
	if !e.v.keys.Credit().TryAcquire(protocol.MaxInputUnacked) || !in.Room().TryAcquire(protocol.MaxInputQueued) {
		e.Fatal("room is still taken")
	}
	e.v.keys.Credit().Release(protocol.MaxInputUnacked)
	in.Room().Release(protocol.MaxInputQueued)
	if in.Undecided() > 0 {
		e.Fatal("an execution is left")
	}
}

// leased has the agent change the lease.
func (e *executing) leased(l protocol.Lease) {
	e.h.step(turn.Leased{Leased: protocol.Leased{Lease: l}})
}

func TestExecute(t *testing.T) { synctest.Test(t, testExecute) }

func testExecute(t *testing.T) {
	e := newExecuting(t)
	e.v.Execute("make test")
	text, due := e.passed("make test", 2), time.Now().Add(input.EnterDelay)
	if wait := e.h.untilTick(time.Now()); wait <= 0 || wait > input.EnterDelay {
		t.Errorf("looks again in %v", wait)
	}
	e.acks(text)
	e.h.tick(due.Add(-input.EnterDelay)) // early
	e.quiet()
	e.h.tick(due)
	cr := e.passed("\r", 2)
	if cr.Client != text.Client || cr.Seq <= text.Seq {
		t.Errorf("%+v after %+v", cr, text)
	}
	e.acks(cr)
	e.roomy()
	if kinds := told(t, e.v); slices.Contains(kinds, protocol.ServerError) || slices.Contains(kinds, protocol.ServerInputRefused) {
		t.Errorf("%q", kinds)
	}
	e.v.Execute("next")
	e.passed("next", 2)
}

// TestExecuteWaitsForTheText: Enter never comes before the agent has written the
// text, however long that takes.
func TestExecuteWaitsForTheText(t *testing.T) { synctest.Test(t, testExecuteWaitsForTheText) }

func testExecuteWaitsForTheText(t *testing.T) {
	e := newExecuting(t)
	e.v.Execute("x")
	text := e.passed("x", 2)
	e.v.keys.EnterAt(time.Now().Add(-time.Second))
	if wait := e.h.untilTick(time.Now()); wait <= 0 {
		t.Errorf("looks again in %v", wait)
	}
	e.h.tick(time.Now())
	e.quiet()
	e.acks(text)
	e.passed("\r", 2)
}

// TestNoEnter: threat 50 and its kin.
func TestNoEnter(t *testing.T) {
	for name, c := range map[string]struct {
		between func(*executing, protocol.Input)
		reason  protocol.RefusalReason
	}{
		"revoked": {func(e *executing, text protocol.Input) {
			e.acks(text)
			e.leased(protocol.Lease{Revision: 4, Term: 2, State: protocol.LeaseFree})
		}, protocol.RefusedNotController},
		"handed over": {func(e *executing, text protocol.Input) {
			e.acks(text)
			e.leased(protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_b", State: protocol.LeaseHeld})
		}, protocol.RefusedStaleTerm},
		"handed over and back": {func(e *executing, text protocol.Input) {
			e.acks(text)
			e.leased(protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_b", State: protocol.LeaseHeld})
			e.leased(held(5, 4))
		}, protocol.RefusedStaleTerm},
		"a coding agent runs": {func(e *executing, text protocol.Input) {
			e.acks(text)
			e.h.step(turn.Reported{AgentReport: protocol.AgentReport{State: protocol.AgentRunning}})
		}, protocol.RefusedAgentRunning},
		"the agent refused the text": {func(e *executing, text protocol.Input) {
			e.h.typing.Refused(protocol.InputRefused{Client: text.Client, Seq: text.Seq, Reason: protocol.RefusedBusy})
		}, protocol.RefusedBusy},
		"another term after a lost stream": {func(e *executing, _ protocol.Input) {
			e.h.typing.Disconnect()
			e.leased(held(5, 4))
			e.h.typing.Connect(e.link)
		}, protocol.RefusedStaleTerm},
		"the process ended": {func(e *executing, _ protocol.Input) { e.h.typing.End() }, protocol.RefusedEnded},
		"left": {func(e *executing, text protocol.Input) {
			e.h.audience.leave(e.v)
			e.acks(text)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExecuting(t)
			e.v.Execute("rm -r build")
			text := e.passed("rm -r build", 2)
			told(t, e.v)
			c.between(e, text)
			e.h.tick(time.Now().Add(time.Second))
			e.quiet()
			e.roomy()
			if kinds := told(t, e.v); (c.reason != "") != slices.Contains(kinds, protocol.ServerInputRefused) {
				t.Errorf("%q", kinds)
			}
		})
	}
}

// TestExecuteAcrossStreams: a lost stream neither doubles nor loses it.
func TestExecuteAcrossStreams(t *testing.T) {
	e := newExecuting(t)
	e.v.Execute("x")
	text := e.passed("x", 2)
	e.h.typing.Disconnect()
	e.h.tick(time.Now().Add(time.Second))
	e.h.typing.Connect(e.link)
	if again := e.passed("x", 2); again.Seq != text.Seq || again.Client != text.Client {
		t.Fatalf("%+v, then %+v", text, again)
	}
	e.v.keys.EnterAt(time.Now())
	e.acks(text)
	cr := e.passed("\r", 2)
	e.h.typing.Disconnect()
	e.h.typing.Connect(e.link)
	if again := e.passed("\r", 2); again.Seq != cr.Seq {
		t.Fatalf("%+v, then %+v", cr, again)
	}

	// Away when Enter is due.
	e.acks(cr)
	e.v.Execute("y")
	text = e.passed("y", 2)
	e.v.keys.EnterAt(time.Now())
	e.h.typing.Disconnect()
	e.acks(text)
	e.h.typing.Connect(e.link)
	e.passed("\r", 2)
}

func TestExecuteIsBounded(t *testing.T) {
	e := newExecuting(t)
	refused := func(v *Viewer) {
		t.Helper()
		if kinds := told(t, v); len(kinds) != 1 || kinds[0] != protocol.ServerError {
			t.Errorf("%q", kinds)
		}
		e.quiet()
	}
	told(t, e.v)
	e.v.Execute("")
	refused(e.v)
	e.v.Execute(strings.Repeat("x", protocol.MaxExecuteBytes+1))
	refused(e.v)
	e.v.Execute("x")
	e.inputs()
	e.v.Execute("y") // the first isn't done
	refused(e.v)
	if !e.v.keys.Credit().TryAcquire(protocol.MaxInputUnacked - 2*input.Overhead - 2) {
		t.Fatal("the refused ones take room")
	}
	e.v.Execute("y")
	refused(e.v)

	other := e.sit(2, "usr_bob")
	told(t, other)
	other.Execute("not mine")
	e.quiet()
	if kinds := told(t, other); len(kinds) != 1 || kinds[0] != protocol.ServerInputRefused {
		t.Errorf("%q", kinds)
	}
}

// TestExecuteEarly: before the greeting, like any other input.
func TestExecuteEarly(t *testing.T) {
	e := newExecuting(t)
	e.v.keys.Init(e.h.typing, e.v.keys.Options) // as before the greeting
	e.v.Execute("x")
	e.quiet()
	e.v.keys.Attach()
	e.acks(e.passed("x", 2))
	e.h.tick(time.Now().Add(input.EnterDelay))
	e.acks(e.passed("\r", 2))
	e.roomy()
}

// TestExecuteByTheTunnel is the whole way, with a viewer who counts its input.
func TestExecuteByTheTunnel(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.joinAs(alice, Guest{Counts: true, Client: "tab"})
	x.greeted()
	a := w.attached()
	x.v.TypeNumbered(protocol.BrowserInput{Seq: 1, Term: 2, Bytes: []byte("typed")})
	x.v.Execute("executed")
	typed, text := hears[protocol.Input](a), hears[protocol.Input](a)
	if string(typed.Bytes) != "typed" || string(text.Bytes) != "executed" || typed.Client == text.Client {
		t.Fatalf("%+v, %+v", typed, text)
	}
	began := time.Now()
	a.say(protocol.InputAck{Client: text.Client, Seq: text.Seq})
	if cr := hears[protocol.Input](a); string(cr.Bytes) != "\r" || cr.Term != 2 {
		t.Errorf("%+v", cr)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("Enter came after %v", took)
	}
	a.say(protocol.InputAck{Client: typed.Client, Seq: typed.Seq})
	var m protocol.InputWritten
	x.until(protocol.ServerInputAck).decode(t, &m)
	if m.Seq != 1 {
		t.Errorf("%+v", m)
	}
}
