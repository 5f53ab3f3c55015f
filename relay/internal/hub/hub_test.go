package hub

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// control checks a control_state.
func control(t *testing.T, it item, controller protocol.UserID, term uint64) {
	t.Helper()
	var m protocol.ControlState
	it.decode(t, &m)
	if it.kind != protocol.ServerControlState || m.Controller != controller || m.Term != term {
		t.Errorf("%s, want a control_state of %q in term %d", it, controller, term)
	}
}

func TestGreeting(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Head: 5, Lease: held(3, 2)})
	opened := make(chan struct{})
	go func() { // the first viewer's Open waits for the history
		w.attached().data(0, "hello")
		close(opened)
	}()
	first := w.join(carol, nil)
	<-opened
	control(t, first.gets(protocol.ServerControlState), relaytest.User, 2)
	var m protocol.Attached
	first.gets(protocol.ServerAttached).decode(t, &m)
	if m != (protocol.Attached{Epoch: 7, Head: 5, Cols: 80, Rows: 24, Mode: protocol.ModeResume}) {
		t.Errorf("%+v", m)
	}
	first.reads("hello")

	second := w.join(bob, nil)
	second.greeted()
	second.reads("hello")
	if len(w.attaches) != 0 {
		t.Error("a stream for each viewer")
	}
}

func TestTheCreatorsClaimComesFirst(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Creator: relaytest.User})
	creator := w.join(alice, nil)
	a := w.attached()
	proposal := hears[protocol.LeaseProposal](a)
	if proposal.Next.Holder != relaytest.User || proposal.Next.GrantID != "gr_alice" || proposal.ExpectRevision != 1 {
		t.Errorf("%+v", proposal)
	}
	creator.types("early ") // before it is greeted
	creator.types("bird")
	creator.v.Complain(protocol.Errorf(protocol.KindInvalid, "nonsense"))
	other := w.join(bob, nil) // is not kept waiting
	control(t, other.gets(protocol.ServerControlState), "", 0)

	a.say(protocol.Leased{ID: proposal.ID, Lease: held(2, 1)})
	control(t, creator.gets(protocol.ServerControlState), relaytest.User, 1)
	creator.gets(protocol.ServerAttached)
	creator.gets(protocol.ServerError) // what came before the greeting comes behind it
	if in := hears[protocol.Input](a); in.Term != 1 || in.Seq != 1 || string(in.Bytes) != "early " {
		t.Errorf("%+v", in)
	}
	if in := hears[protocol.Input](a); in.Seq != 2 || string(in.Bytes) != "bird" {
		t.Errorf("%+v", in)
	}
	other.gets(protocol.ServerAttached, protocol.ServerControlTaken)
	control(t, other.gets(protocol.ServerControlState), relaytest.User, 1)
}

func TestTurns(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(bob, nil)
	a := w.attached()
	x.greeted()
	y.greeted()
	y.v.Say(protocol.ClientMessage{Type: protocol.ClientRequestControl})
	x.gets(protocol.ServerControlRequested, protocol.ServerControlState)
	y.gets(protocol.ServerControlRequested, protocol.ServerControlState)
	x.v.Say(protocol.ClientMessage{Type: protocol.ClientGrantControl, To: "usr_bob"})
	proposal := hears[protocol.LeaseProposal](a)
	if proposal.ExpectRevision != 3 || proposal.Next != (protocol.LeaseNext{Holder: "usr_bob", GrantID: "gr_bob"}) {
		t.Errorf("%+v", proposal)
	}
	a.say(protocol.Leased{ID: proposal.ID, Lease: protocol.Lease{Revision: 4, Term: 3, Holder: "usr_bob", GrantID: "gr_bob", State: protocol.LeaseHeld}})
	x.gets(protocol.ServerControlGranted)
	control(t, x.gets(protocol.ServerControlState), "usr_bob", 3)
	y.gets(protocol.ServerControlGranted, protocol.ServerControlState)
	x.types("too late")
	x.gets(protocol.ServerInputRefused)
	y.types("mine")
	if in := hears[protocol.Input](a); in.Term != 3 || string(in.Bytes) != "mine" {
		t.Errorf("%+v", in)
	}
	x.leave()
	if m := hears[protocol.Holder](a); m.User != "usr_alice" && m.User != "usr_bob" {
		t.Errorf("%+v", m)
	}
	y.v.Say(protocol.ClientMessage{Type: protocol.ClientRevokeControl})
	if proposal := hears[protocol.LeaseProposal](a); proposal.Next != (protocol.LeaseNext{}) {
		t.Errorf("%+v", proposal)
	}
}

func TestTheEndOfTheProcess(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	slow := w.join(carol, nil)
	x.greeted()
	slow.greeted()
	slow.sink.block(true)
	a := w.attached()
	end := a.data(0, "last words")
	a.say(protocol.Exited{Offset: end, Code: 3})
	a.stream.Close()
	x.reads("last words")
	var m protocol.PTYClosed
	x.gets(protocol.ServerPTYClosed).decode(t, &m)
	if m != (protocol.PTYClosed{ExitCode: 3, Offset: end}) {
		t.Errorf("%+v", m)
	}
	if it := x.gets(closed); it.code != 4004 {
		t.Errorf("%s", it)
	}
	// Who comes later is asked about by another stream, which shows the same.
	w.opens(protocol.TerminalOpened{Epoch: 7, Head: end, Lease: held(3, 2)}, nil)
	again := make(chan struct{})
	go func() { // waited for below
		defer close(again)
		b := w.attached()
		b.data(0, "last words")
		b.say(protocol.Exited{Offset: end, Code: 3})
		b.stream.Close()
	}()
	late := w.join(alice, nil)
	late.greeted()
	late.reads("last words")
	late.gets(protocol.ServerPTYClosed, closed)
	<-again
	slow.sink.block(false)
	slow.reads("last words")
	slow.gets(protocol.ServerPTYClosed, closed)
	if len(w.attaches) != 0 {
		t.Error("the stream was opened again")
	}

	for _, x := range []*watcher{x, late, slow} {
		x.leave()
	}
	select {
	case <-x.v.hub.life.done: // at once: it has nothing to show
	case <-time.After(patience):
		t.Error("the hub of a terminal that ended stays")
	}
}

// The creator comes when the process is over already: nobody answers a claim.
func TestGreetingAfterTheEnd(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Creator: relaytest.User})
	x := w.join(alice, nil)
	a := w.attached()
	hears[protocol.LeaseProposal](a)
	a.say(protocol.Exited{Code: -1, Signal: "SIGKILL"})
	a.stream.Close()
	x.greeted()
	x.gets(protocol.ServerPTYClosed)
	if it := x.gets(closed); it.code != 4004 {
		t.Errorf("%s", it)
	}
}

func TestSizes(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(bob, nil)
	x.greeted()
	y.greeted()
	a := w.attached()
	y.v.Say(protocol.ClientMessage{Type: protocol.ClientResize, Cols: 10, Rows: 10}) // not the controller
	x.v.Say(protocol.ClientMessage{Type: protocol.ClientResize, Cols: 100, Rows: 30})
	if m := hears[protocol.Resize](a); m != (protocol.Resize{Term: 2, Cols: 100, Rows: 30}) {
		t.Errorf("%+v", m)
	}
	a.data(0, "ab")
	a.say(protocol.Resized{Offset: 2, Cols: 100, Rows: 30}, protocol.Resized{Offset: 2, Cols: 100, Rows: 30})
	a.data(2, "cd")
	y.reads("ab")
	y.gets(protocol.ServerResized)
	y.reads("cd")
}

func TestReauth(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	a := w.attached()
	grant, token := w.authority.Grant(func(g *jws.Grant) { bob(g); g.ID, g.ExpiresAt = "gr_bob2", g.ExpiresAt+60 })
	if err := x.v.MayReauth(grant); err != nil {
		t.Fatal(err)
	}
	x.v.Reauth(grant, token)
	if m := hears[protocol.GrantAdd](a); m.Grant != token {
		t.Error("another grant was added")
	}
	if m := hears[protocol.GrantDrop](a); m.GrantID != "gr_bob" {
		t.Errorf("%+v", m)
	}
	var m protocol.Reauthed
	x.gets(protocol.ServerReauthed).decode(t, &m)
	if m.ExpiresAt != grant.ExpiresAt {
		t.Errorf("%+v", m)
	}

	for name, change := range map[string]func(*jws.Grant){
		"another user":     carol,
		"another sandbox":  func(g *jws.Grant) { bob(g); g.Sandbox = "sb_x" },
		"another session":  func(g *jws.Grant) { bob(g); g.Session = "ses_x" },
		"another terminal": func(g *jws.Grant) { bob(g); g.PTYs = []string{"pty_x"} },
		"may not view":     func(g *jws.Grant) { bob(g); g.Caps = []protocol.Capability{protocol.CapControl} },
	} {
		grant, _ := w.authority.Grant(change)
		if err := x.v.MayReauth(grant); err == nil || protocol.KindOf(err) != protocol.KindForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARefusedGrant(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(alice, nil), w.join(bob, nil)
	x.greeted()
	y.greeted()
	y.sink.block(true) // its socket takes nothing, and it is out all the same
	a := w.attached()
	a.say(protocol.Granted{GrantID: "gr_alice"}, protocol.Granted{GrantID: "gr_bob", Refused: "revoked"})
	a.say(protocol.Leased{Lease: protocol.Lease{Revision: 9, Term: 5, Holder: "usr_bob", GrantID: "gr_bob", State: protocol.LeaseGrace}})
	x.until(protocol.ServerControlState)
	y.types("still here?")
	y.sink.block(false)
	for it := y.next(); it.kind != closed || it.code != 4403; it = y.next() {
		if it.kind == closed {
			t.Fatalf("%s", it)
		}
	}
	a.say(protocol.Leased{Lease: held(10, 6)})
	x.until(protocol.ServerControlState)
	x.types("x")
	if in := hears[protocol.Input](a); string(in.Bytes) != "x" {
		t.Errorf("%+v", in)
	}
}

func TestAnExpiredGrant(t *testing.T) {
	t.Parallel() // it waits for a second to pass
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x, y := w.join(bob, nil), w.join(alice, nil)
	x.greeted()
	// On a busy machine a grant of a second is over before the greeting, which
	// nobody gets without a grant. So it is the next grant that ends soon.
	x.v.Reauth(w.authority.Grant(func(g *jws.Grant) { bob(g); g.ID, g.ExpiresAt = "gr_bob2", g.IssuedAt+1 }))
	busy, rest := context.WithCancel(t.Context())
	rested := make(chan struct{})
	go func() { // waited for below; a busy hub looks at its clock all the same
		defer close(rested)
		for busy.Err() == nil {
			y.v.Say(protocol.ClientMessage{Type: protocol.ClientCancelRequest})
		}
	}()
	if it := x.ends(); it.code != 4401 {
		t.Errorf("%s", it)
	}
	rest()
	<-rested
	x.leave()
	late := w.join(func(g *jws.Grant) { bob(g); g.ExpiresAt = g.IssuedAt; g.IssuedAt -= 60 }, nil)
	if it := late.next(); it.kind != closed || it.code != 4401 {
		t.Errorf("who comes with a grant that is over gets %s", it)
	}
}

func TestAViewerWhoCanBeToldNothing(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(bob, nil)
	x.greeted()
	x.sink.block(true)
	long := protocol.Errorf(protocol.KindInvalid, "%s", strings.Repeat("x", 1000))
	for range 2 * maxNotices / 1000 {
		x.v.Complain(long)
	}
	x.v.outbox.mu.Lock()
	waiting := len(x.v.outbox.notices)
	x.v.outbox.mu.Unlock()
	if waiting > maxNotices {
		t.Errorf("%d bytes wait", waiting)
	}
	x.sink.block(false)
	if it := x.ends(); it.code != 4429 {
		t.Errorf("%s", it)
	}
}

func TestALongName(t *testing.T) {
	if got := clip(strings.Repeat("é", 100)); len(got) > maxName || got != strings.Repeat("é", 64) {
		t.Errorf("%d bytes", len(got))
	}
	if got := clip("a" + strings.Repeat("é", 100)); got != "a"+strings.Repeat("é", 63) {
		t.Errorf("%q", got)
	}
}
