package hub

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/roster"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// answers says how the sandbox answers GRANT from now on.
func (w *world) answers(takes func(protocol.GrantAdd) *protocol.Granted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.takes = takes
}

// silent answers nothing.
func silent(protocol.GrantAdd) *protocol.Granted { return nil }

// saw returns what a socket got so far.
func (x *watcher) saw() (items []item) {
	x.sink.mu.Lock()
	defer x.sink.mu.Unlock()
	return slices.Clone(x.sink.items)
}

// TestFound02NothingBeforeTheAnswer: whoever joins an open hub gets not a byte
// before the agent has taken the grant, and none at all if it doesn't, though it
// can't say whose that was.
func TestFound02NothingBeforeTheAnswer(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	w.answers(silent)
	x := w.join(alice, nil)
	x.greeted() // the stream was opened under this grant
	a := w.attached()
	taken, refused := w.join(bob, nil), w.join(carol, nil)
	first, second := hears[protocol.GrantAdd](a), hears[protocol.GrantAdd](a)
	if first.Handle == 0 || second.Handle == 0 || first.Handle == second.Handle {
		t.Fatalf("handles %d and %d", first.Handle, second.Handle)
	}
	if first.Grant != taken.token {
		first, second = second, first
	}
	taken.types("early")
	taken.v.Say(protocol.ClientMessage{Type: protocol.ClientRequestControl})
	end := a.data(0, "secret")
	x.reads("secret")
	a.say(protocol.Leased{Lease: held(4, 3)}) // goes to everybody who may see
	x.until(protocol.ServerControlState)
	for _, y := range []*watcher{taken, refused} {
		if saw := y.saw(); len(saw) > 0 {
			t.Errorf("before the answer: %s", saw)
		}
	}
	a.say(protocol.Granted{Handle: second.Handle, Refused: "not a grant"})
	if saw := refused.ends(); saw.code != 4403 {
		t.Errorf("%s", saw)
	}
	a.say(protocol.Granted{Handle: first.Handle, GrantID: "gr_bob"})
	taken.greeted()
	taken.until(protocol.ServerControlRequested) // what it said meanwhile
	x.until(protocol.ServerControlRequested)
	a.data(end, " more")
	x.until(output)
}

// TestFound02NoHandles: an agent that doesn't know handles answers in order.
func TestFound02NoHandles(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	w.answers(silent)
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	y := w.join(bob, nil)
	hears[protocol.GrantAdd](a)
	z := w.join(carol, nil)
	hears[protocol.GrantAdd](a)
	a.say(protocol.Granted{Refused: "it can't be read"}, protocol.Granted{GrantID: "gr_carol"})
	if it := y.ends(); it.code != 4403 {
		t.Errorf("%s", it)
	}
	z.greeted()
}

// TestFound02AfterALostStream: who saw the terminal goes on seeing while a new
// stream's answer comes, and no longer when it is a refusal.
func TestFound02AfterALostStream(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(carol, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	end := a.data(0, "before")
	y.reads("before")
	w.answers(silent)
	w.opens(protocol.TerminalOpened{Epoch: 7, Offset: end, Head: end, Lease: held(3, 2)}, nil)
	a.stream.Close()
	a = w.attached()
	asked := hears[protocol.GrantAdd](a)
	other := y
	if a.grant == y.token {
		other = x
	}
	if asked.Grant != other.token {
		t.Fatal("asked about the bearer again")
	}
	end = a.data(end, " meanwhile")
	for it := other.next(); it.kind != output; it = other.next() {
	}
	newcomer := w.join(bob, nil)
	asks := hears[protocol.GrantAdd](a)
	a.say(protocol.Granted{Handle: asked.Handle, Refused: "revoked"})
	if it := other.ends(); it.code != 4403 {
		t.Errorf("%s", it)
	}
	a.data(end, " after")
	if saw := newcomer.saw(); len(saw) > 0 {
		t.Errorf("before the answer: %s", saw)
	}
	a.say(protocol.Granted{Handle: asks.Handle, GrantID: "gr_bob"})
	newcomer.greeted()
}

// deaf is an Admitter that answers nothing.
type deaf struct{ asks int }

func (d *deaf) Ask(roster.Handle, string) { d.asks++ }
func (*deaf) Forget(protocol.GrantID)     {}

// TestFound02NoAnswer: without an answer nobody sees anything for longer than
// 5 s of a new stream.
func TestFound02NoAnswer(t *testing.T) {
	defer func(old time.Duration) { grantWait = old }(grantWait)
	grantWait = protocol.GrantWait
	h, late := still(), time.Now().Add(time.Hour)
	x, y := seat(h, 1, "usr_1", late), seat(h, 2, "usr_2", late)
	d := &deaf{}
	h.audience.unlinked()
	h.audience.admitter = d
	key, grant := h.audience.roster.Bearer()
	opened := time.Now()
	h.audience.carry(h.audience.roster.Opened(key, grant, "", opened))
	h.audience.carry(h.audience.roster.Pump())
	if d.asks != 1 {
		t.Fatalf("asked %d times", d.asks)
	}
	newcomer := seat(h, 3, "usr_3", late)
	if wait := h.untilTick(opened); wait > protocol.GrantWait {
		t.Errorf("looks again in %v", wait)
	}
	h.tick(opened.Add(protocol.GrantWait - time.Millisecond))
	if x.outbox.closing || y.outbox.closing || newcomer.outbox.closing || newcomer.greeted {
		t.Error("too early")
	}
	h.tick(time.Now().Add(protocol.GrantWait))
	for _, v := range []*Viewer{x, y, newcomer} {
		if bears := v.user == key.User; bears == v.outbox.closing || !bears && v.outbox.closeCode != 1013 {
			t.Errorf("viewer %d: closing %v with %d", v.id, v.outbox.closing, v.outbox.closeCode)
		}
	}
	if len(h.audience.viewers) != 1 || len(h.audience.pending) != 0 {
		t.Errorf("%d viewers, %d at the door", len(h.audience.viewers), len(h.audience.pending))
	}
}

// numbered returns bob's grant number i, of ten that end at different times.
func numbered(i int) func(*jws.Grant) {
	return func(g *jws.Grant) {
		bob(g)
		g.ID, g.ExpiresAt = protocol.GrantID(fmt.Sprint("gr_", i)), g.ExpiresAt+int64(i)
	}
}

// TestFound10OneGrantOfASet: of ten sockets with a grant each the agent hears
// one; when that one is revoked the next takes its place, and the nine others
// notice nothing.
func TestFound10OneGrantOfASet(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	revoked := jws.NewRevocationSet()
	w.set.Under(lifetime.New(lifetime.Options{Revoked: revoked}))
	first := w.join(alice, nil)
	first.greeted()
	a := w.attached()
	var sockets []*watcher
	for i := range 10 {
		x := w.join(numbered(i), nil)
		x.greeted()
		sockets = append(sockets, x)
	}
	less := w.join(func(g *jws.Grant) {
		numbered(99)(g)
		g.Caps = []protocol.Capability{protocol.CapView}
	}, nil)
	less.greeted()
	tokens := map[string]protocol.GrantID{less.token: "less"}
	for _, x := range sockets {
		tokens[x.token] = x.grant.ID
	}
	heard := func() (added []protocol.GrantID, dropped []protocol.GrantID) {
		for {
			select {
			case m := <-a.heard:
				switch m := m.(type) {
				case protocol.GrantAdd:
					added = append(added, tokens[m.Grant])
				case protocol.GrantDrop:
					dropped = append(dropped, m.GrantID)
				}
			default:
				return added, dropped
			}
		}
	}
	if added, dropped := heard(); len(added) != 2 || added[0] != "gr_0" || added[1] != "less" || len(dropped) != 0 {
		t.Fatalf("the agent hears of %q and loses %q", added, dropped)
	}
	end := uint64(0)
	for round, gone := 0, sockets[0]; round < 3; round++ {
		revoked.Add(gone.grant.ID)
		if it := gone.ends(); it.code != 4401 {
			t.Errorf("%s", it)
		}
		next := tokens[hears[protocol.GrantAdd](a).Grant]
		if m := hears[protocol.GrantDrop](a); m.GrantID != gone.grant.ID {
			t.Errorf("%+v", m)
		}
		text := fmt.Sprint("round ", round)
		end = a.data(end, text)
		for _, x := range sockets {
			if !revoked.Grant(x.grant) {
				x.reads(text) // and nothing else
			}
			if x.grant.ID == next {
				gone = x
			}
		}
		if revoked.Grant(gone.grant) {
			t.Fatalf("round %d: %s follows", round, next)
		}
	}
	// A socket has no more than its own grant says.
	less.until(output)
	less.types("x")
	var m protocol.InputDropped
	less.until(protocol.ServerInputRefused).decode(t, &m)
	if m.Reason != protocol.RefusedNotController {
		t.Errorf("%+v", m)
	}
}

// TestFound10TheLeaseFollows: the lease goes over to the grant that stands for
// the person's set.
func TestFound10TheLeaseFollows(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	y := w.join(func(g *jws.Grant) { g.ID = "gr_other" }, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	x.leave()
	if m := hears[protocol.GrantAdd](a); m.Grant != y.token {
		t.Error("another grant was added")
	}
	if m := hears[protocol.LeaseProposal](a); m.Next != (protocol.LeaseNext{Holder: relaytest.User, GrantID: "gr_other"}) {
		t.Errorf("%+v", m)
	}
	if m := hears[protocol.GrantDrop](a); m.GrantID != "gr_alice" {
		t.Errorf("%+v", m)
	}
	y.types("still mine")
	if in := hears[protocol.Input](a); string(in.Bytes) != "still mine" {
		t.Errorf("%+v", in)
	}
}

// TestFound10AWiderGrant: more rights count once the grant was taken, fewer at
// once; nobody stops seeing in between.
func TestFound10AWiderGrant(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: free(1), Claimed: true})
	x := w.join(bob, nil)
	x.greeted()
	a := w.attached()
	y := w.join(carol, nil)
	y.greeted()
	w.answers(silent)
	wider, token := w.authority.Grant(func(g *jws.Grant) { carol(g); g.ID, g.Caps = "gr_wider", append(g.Caps, protocol.CapControl) })
	y.v.Reauth(wider, token)
	y.gets(protocol.ServerReauthed)
	m := hears[protocol.GrantAdd](a)
	for m.Grant != token {
		m = hears[protocol.GrantAdd](a)
	}
	take := protocol.ClientMessage{Type: protocol.ClientTakeControl}
	y.v.Say(take)
	y.gets(protocol.ServerError) // not yet
	a.data(0, "on")
	y.reads("on")
	a.say(protocol.Granted{Handle: m.Handle, GrantID: "gr_wider"})
	var state protocol.ControlState
	if y.gets(protocol.ServerControlState).decode(t, &state); !state.CanControl {
		t.Errorf("%+v", state)
	}
	y.v.Say(take)
	if p := hears[protocol.LeaseProposal](a); p.Next.GrantID != "gr_wider" {
		t.Errorf("%+v", p)
	}
}

var manyPeople = flag.Int("hub.people", 150, "people of TestFound11ManyComeBack, each with 10 sockets")

// TestFound11ManyComeBack: people with 10 sockets, and a grant for each socket,
// come back with a stream: 1,500 grants are as many as an outbox of 1 MiB took.
// It isn't given up for them, whoever has control goes first, and everybody is
// shown on.
func TestFound11ManyComeBack(t *testing.T) {
	const each = 10
	people := *manyPeople
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	var handles []*watcher
	joining := time.Now()
	for i := range people * each {
		handles = append(handles, w.join(func(g *jws.Grant) {
			g.Subject, g.ID = protocol.UserID(fmt.Sprint("usr_", i%people)), protocol.GrantID(fmt.Sprint("gr_", i))
		}, nil))
	}
	for _, y := range handles {
		y.greeted()
	}
	t.Logf("all have joined after %v", time.Since(joining))
	end := a.data(0, "before")
	for _, y := range append(handles, x) {
		y.reads("before")
	}
	w.opens(protocol.TerminalOpened{Epoch: 7, Offset: end, Head: end, Lease: held(3, 2)}, nil)
	a.stream.Close()
	a = w.attached()
	began := time.Now()
	end = a.data(end, " after")
	x.until(output)
	x.types("key")
	if first, ok := (<-a.heard).(protocol.GrantAdd); ok && first.Grant != x.token {
		t.Error("somebody else than the controller goes first")
	}
	if in := hears[protocol.Input](a); string(in.Bytes) != "key" {
		t.Errorf("%+v", in)
	}
	t.Logf("the key came after %v", time.Since(began))
	var reading sync.WaitGroup
	for _, y := range handles {
		reading.Go(func() { // waited for below
			for it := y.next(); it.kind != output; it = y.next() {
				if it.kind == closed {
					t.Errorf("%s", it)
					return
				}
			}
		})
	}
	reading.Wait()
	t.Logf("everybody was shown on after %v", time.Since(began))
	for range people {
		a.data(end, ".") // answers to all grants are under way; the stream is still this one
		end++
	}
	if len(w.attaches) != 0 {
		t.Error("the stream was given up")
	}
	gone, cancel := context.WithCancel(t.Context()) // at once, rather than one by one
	cancel()
	w.set.Close(gone)
}

// TestFound11WhoTakesControlIsAskedAboutFirst: a change of control is proposed
// behind the grant that it is under, also while many others wait to be asked
// about.
func TestFound11WhoTakesControlIsAskedAboutFirst(t *testing.T) {
	h, late := still(), time.Now().Add(time.Hour)
	h.state = turn.New(protocol.TerminalOpened{Claimed: true, Lease: free(1)})
	var last *Viewer
	for i := range 20 {
		user := protocol.UserID(fmt.Sprint("usr_", i))
		last = newViewer(h, turn.SocketID(i+1), Guest{
			Token: string(user) + strings.Repeat(".", roster.Window/4),
			Grant: &jws.Grant{
				Subject: user, Name: string(user), ID: protocol.GrantID("gr_" + user), PTYs: []string{jws.AllPTYs}, ExpiresAt: late.Unix(),
				Caps: []protocol.Capability{protocol.CapView, protocol.CapControl},
			},
		})
		h.audience.join(last)
	}
	h.unlinked(nil)
	l := deafLink(t)
	l.bearer = h.dial.bearer.Load()
	l.opened = protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24, Claimed: true, Lease: free(1)}
	h.linked(l)
	taker := last
	if taker.user == l.bearer.key.User {
		taker = h.audience.viewers[1]
	}
	h.obey(taker, protocol.ClientMessage{Type: protocol.ClientTakeControl})
	asked := map[string]bool{}
	for _, m := range sent(t, l) {
		switch m := m.(type) {
		case protocol.GrantAdd:
			asked[m.Grant] = true
		case protocol.LeaseProposal:
			if m.Next.Holder != taker.user || !asked[taker.token] {
				t.Errorf("%+v is proposed behind %d grants, without its own", m, len(asked))
			}
			if len(asked) > 6 {
				t.Errorf("%d grants go before it", len(asked))
			}
			return
		}
	}
	t.Error("nothing was proposed")
}
