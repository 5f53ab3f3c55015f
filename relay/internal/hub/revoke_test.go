package hub

import (
	"context"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// dave is bob by another grant.
func dave(g *jws.Grant) { bob(g); g.ID = "gr_bob_2" }

func TestRevokedGrants(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	revoked := jws.NewRevocationSet()
	w.set.Under(lifetime.New(lifetime.Options{Revoked: revoked}))
	x, y, z := w.join(alice, nil), w.join(bob, nil), w.join(dave, nil)
	a := w.attached()
	for _, v := range []*watcher{x, y, z} {
		v.greeted()
	}
	x.types("before")
	if in := hears[protocol.Input](a); string(in.Bytes) != "before" {
		t.Fatalf("%+v", in)
	}

	began := time.Now()
	revoked.Add("gr_alice", "gr_bob")
	for _, v := range []*watcher{x, y} {
		if it := v.ends(); it.code != 4401 || string(it.bytes) != lifetime.ErrRevoked.Error() {
			t.Errorf("%s", it)
		}
	}
	if took := time.Since(began); took > 6*time.Second { // a second is promised, and a busy machine has its own
		t.Errorf("closed after %v", took)
	}
	x.types("after") // its reader may not have noticed
	for m := hears[protocol.Holder](a); m != (protocol.Holder{User: "usr_alice"}); {
		m = hears[protocol.Holder](a)
	}
	a.say(protocol.Leased{Lease: protocol.Lease{Revision: 9, Term: 5, Holder: "usr_bob", GrantID: "gr_bob_2", State: protocol.LeaseHeld}})
	z.until(protocol.ServerControlGranted)
	z.types("another grant")
	if in := hears[protocol.Input](a); string(in.Bytes) != "another grant" {
		t.Errorf("%+v", in)
	}

	// Everything of a user, by a list.
	revoked.Apply(&jws.Revocations{Number: 1, Subjects: []jws.RevokedSubject{{Subject: "usr_bob", Before: time.Now().Unix() + 1}}})
	if it := z.ends(); it.code != 4401 || string(it.bytes) != lifetime.ErrRevoked.Error() {
		t.Errorf("%s", it)
	}
}

// TestRevokedOnTheWayIn: between the ticket and the socket, or between the check
// of a newer grant and its use.
func TestRevokedOnTheWayIn(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	revoked := jws.NewRevocationSet()
	w.set.Under(lifetime.New(lifetime.Options{Revoked: revoked}))
	x := w.join(bob, nil)
	x.greeted()
	grant, token := w.authority.Grant(alice)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	handle, err := w.set.Open(ctx, testKey, grant, token)
	if err != nil {
		t.Fatal(err)
	}
	revoked.Add("gr_alice", "gr_bob_2")
	y := w.sit(handle, grant, token, nil)
	y.types("early")
	if it := y.ends(); it.code != 4401 || string(it.bytes) != lifetime.ErrRevoked.Error() {
		t.Errorf("%s", it)
	}
	newer, token := w.authority.Grant(dave)
	x.v.Reauth(newer, token)
	if it := x.ends(); it.code != 4401 || string(it.bytes) != lifetime.ErrRevoked.Error() {
		t.Errorf("%s", it)
	}
	if in := x.v.hub.typing; !in.Room().TryAcquire(protocol.MaxInputQueued) {
		t.Error("what they typed takes room")
	}
}

// TestReauthNarrows: who may no longer control stops typing at once, and the
// agent hears that the holder is away.
func TestReauthNarrows(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	x := w.join(alice, nil)
	x.greeted()
	a := w.attached()
	if m := hears[protocol.Holder](a); m.Sockets != 1 {
		t.Fatalf("%+v", m)
	}
	grant, token := w.authority.Grant(func(g *jws.Grant) { g.ID, g.Caps = "gr_less", []protocol.Capability{protocol.CapView} })
	x.v.Reauth(grant, token)
	if m := hears[protocol.Holder](a); m.Sockets != 0 {
		t.Errorf("%+v", m)
	}
	var m protocol.ControlState
	x.gets(protocol.ServerControlState).decode(t, &m)
	if m.CanControl {
		t.Errorf("%+v", m)
	}
	x.gets(protocol.ServerReauthed)
	x.types("x")
	var refused protocol.InputDropped
	x.until(protocol.ServerInputRefused).decode(t, &refused)
	if refused.Reason != protocol.RefusedNotController {
		t.Errorf("%+v", refused)
	}
}

// TestCodingAgent: viewers see what it does, from the start, and don't type
// while it works.
func TestCodingAgent(t *testing.T) {
	taken := protocol.Lease{Revision: 4, Term: 3, Holder: protocol.AgentHolder, State: protocol.LeaseHeld}
	w := newWorld(t, protocol.TerminalOpened{
		Epoch: 7, Lease: taken, Agent: &protocol.AgentReport{State: protocol.AgentRunning, Name: "claude"},
	})
	x := w.join(alice, nil)
	var state protocol.ControlState
	x.gets(protocol.ServerControlState).decode(t, &state)
	if state.Controller != protocol.AgentHolder || state.AgentState != "running" || state.Agent != "claude" {
		t.Errorf("%+v", state)
	}
	x.gets(protocol.ServerAttached)
	a := w.attached()
	refusal := func(want protocol.RefusalReason) {
		t.Helper()
		var m protocol.InputDropped
		x.until(protocol.ServerInputRefused).decode(t, &m)
		if m.Reason != want {
			t.Errorf("%+v, want %s", m, want)
		}
	}
	x.types("mine")
	refusal(protocol.RefusedAgentRunning)
	x.v.Execute("mine")
	refusal(protocol.RefusedAgentRunning)
	x.v.Say(protocol.ClientMessage{Type: protocol.ClientResize, Cols: 99, Rows: 9}) // as ignored as another viewer's

	a.say(protocol.Leased{Lease: held(5, 4)}, protocol.AgentReport{State: protocol.AgentPaused, Name: "claude"})
	x.until(protocol.ServerControlGranted)
	var m protocol.AgentStateMessage
	x.until(protocol.ServerAgentState).decode(t, &m)
	if m != (protocol.AgentStateMessage{AgentState: protocol.AgentPaused, Agent: "claude"}) {
		t.Errorf("%+v", m)
	}
	x.until(protocol.ServerControlState).decode(t, &state)
	if state.Controller != "usr_alice" || state.AgentState != "paused" || state.Agent != "claude" {
		t.Errorf("%+v", state)
	}
	x.types("mine now")
	in := hears[protocol.Input](a)
	if string(in.Bytes) != "mine now" || in.Term != 4 {
		t.Errorf("%+v", in)
	}

	// It continues while input is on its way: what the sandbox says.
	a.say(protocol.InputRefused{Client: in.Client, Seq: in.Seq, Reason: protocol.RefusedAgentRunning})
	refusal(protocol.RefusedAgentRunning)

	// A stream lost meanwhile: what was typed before is not typed into its work.
	x.types("lost")
	hears[protocol.Input](a)
	taken.Revision, taken.Term = 6, 5
	w.opens(protocol.TerminalOpened{Epoch: 7, Lease: taken, Agent: &protocol.AgentReport{State: protocol.AgentRunning, Name: "claude"}}, nil)
	a.stream.Close()
	w.attached()
	x.until(protocol.ServerAgentState)
	refusal(protocol.RefusedAgentRunning)
}
