package turn_test

import (
	"reflect"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

const coder = protocol.AgentHolder

func running(name string) protocol.AgentStateMessage {
	return protocol.AgentStateMessage{AgentState: protocol.AgentRunning, Agent: name}
}

func paused(name string) protocol.AgentStateMessage {
	return protocol.AgentStateMessage{AgentState: protocol.AgentPaused, Agent: name}
}

func stopped(name string) protocol.AgentStateMessage {
	return protocol.AgentStateMessage{AgentState: protocol.AgentStopped, Agent: name}
}

// TestCodingAgent: it takes control from whoever has it, and gives it back.
func TestCodingAgent(t *testing.T) {
	for _, leaseFirst := range []bool{true, false} {
		w := scene(t, alice, bob)
		inOrder := func(lease, state protocol.ServerMessage) []protocol.ServerMessage {
			if leaseFirst {
				return []protocol.ServerMessage{lease, state}
			}
			return []protocol.ServerMessage{state, lease}
		}
		taken := func(term uint64) protocol.ServerMessage {
			return protocol.ControlTaken{Controller: coder, Term: term}
		}
		back := func(term uint64) protocol.ServerMessage {
			return protocol.ControlGranted{From: coder, To: alice, Controller: alice, Term: term}
		}

		w.start("claude", leaseFirst)
		w.wantSaid(inOrder(taken(2), running("claude"))...)
		for id := range turn.SocketID(2) {
			if reason, may := w.s.MayType(id+1, 1); may || reason != protocol.RefusedAgentRunning {
				t.Fatalf("socket %d may type: %v, %q", id+1, may, reason)
			}
		}
		if s := w.s.StateFor(2); s.AgentState != "running" || s.Agent != "claude" || s.Controller != coder {
			t.Fatalf("%+v", s)
		}
		w.pause(leaseFirst)
		w.wantSaid(inOrder(back(3), paused("claude"))...)
		w.wantControl(alice)
		w.resume(leaseFirst)
		w.wantSaid(inOrder(taken(4), running("claude"))...)
		w.stop(leaseFirst)
		w.wantSaid(inOrder(back(5), stopped("claude"))...)
		if _, may := w.s.MayType(1, 5); !may {
			t.Fatal("alice can't type")
		}
	}
}

// TestTurns: who had control types the prompts, and nobody while the agent works
// on them. A pause in between changes nothing, whatever happens during it.
func TestTurns(t *testing.T) {
	for _, leaseFirst := range []bool{true, false} {
		w := scene(t, alice, bob)
		mayType := func(id turn.SocketID, want bool) {
			t.Helper()
			if reason, may := w.s.MayType(id, w.s.Term()); may != want {
				t.Fatalf("socket %d may type: %v, %q", id, may, reason)
			}
		}
		w.start("claude", leaseFirst)
		for range 3 {
			w.settle()
			mayType(1, false)
			w.endTurn(leaseFirst)
			w.settle()
			if s := w.s.StateFor(2); s.AgentState != "waiting" || s.Controller != alice {
				t.Fatalf("%+v", s)
			}
			mayType(1, true)
			mayType(2, false)
			w.pause(leaseFirst)
			w.settle()
			mayType(1, true)
			w.resume(leaseFirst)
			w.beginTurn(leaseFirst)
		}
		w.settle()
		w.forget()
		w.endTurn(leaseFirst)
		w.settle()
		w.step(turn.Granted{Socket: 1, To: bob})
		w.settle()
		mayType(2, true)
		w.forget()
		w.pause(leaseFirst)
		w.beginTurn(leaseFirst) // its hook was late
		w.wantSaid(paused("claude"))
		mayType(2, true)
		w.resume(leaseFirst)
		w.settle()
		mayType(2, false)
		w.endTurn(leaseFirst)
		w.settle()
		w.wantControl(bob)
	}
}

// TestProgramTypes: one that types for a tool has control for a moment, and
// nobody gets in between.
func TestProgramTypes(t *testing.T) {
	w := scene(t, alice, bob)
	w.step(turn.Revoked{Socket: 1})
	w.settle()
	w.forget()
	w.toolTakes()
	w.wantSaid(protocol.ControlTaken{Controller: coder, Term: 2})
	w.step(turn.Taken{Socket: 2})
	if m := w.sent[2]; len(m) != 1 || m[0].(protocol.ErrorMessage).Message != "a program of the sandbox has control for a moment" {
		t.Fatalf("%#v", m)
	}
	w.toolGives()
	w.wantSaid(protocol.ControlRevoked{From: coder})
	w.step(turn.Taken{Socket: 2})
	w.settle()
	w.wantControl(bob)
	w.toolTakes() // refused: it is bob's
	w.settle()
	w.wantControl(bob)
}

// TestLineWhileCodingAgentWorks: requests are kept, and whoever has control
// afterwards sees them.
func TestLineWhileCodingAgentWorks(t *testing.T) {
	w := scene(t, alice, bob, carol)
	w.step(turn.Requested{Socket: 2})
	w.start("claude", true)
	w.settle()
	w.forget()
	w.step(turn.Requested{Socket: 3})
	w.wantSaid(protocol.ControlRequested{From: carol, Requests: []protocol.UserID{bob, carol}})
	w.step(turn.Requested{Socket: 1})
	w.step(turn.Cancelled{Socket: 2})
	w.wantSaid(protocol.ControlRequested{From: alice, Requests: []protocol.UserID{bob, carol, alice}})
	w.wantControl(coder, carol, alice)
	w.pause(true)
	w.settle()
	w.wantControl(alice, carol) // who has it asks no longer
	w.forget()
	w.step(turn.Granted{Socket: 1, To: carol})
	w.wantSaid(protocol.ControlGranted{From: alice, To: carol, Controller: carol, Term: 4})
	w.wantControl(carol)
}

func TestRefusalsWhileCodingAgentWorks(t *testing.T) {
	for name, e := range map[string]turn.Event{
		"take":  turn.Taken{Socket: 1},
		"grant": turn.Granted{Socket: 1, To: bob},
		"give":  turn.Revoked{Socket: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := scene(t, alice, bob)
			w.start("claude", false)
			w.hear() // that it runs, and not yet that it has control
			w.forget()
			w.step(e)
			if m := w.sent[1]; name != "take" && (len(m) != 1 || m[0].(protocol.ErrorMessage).Message != "claude has control until its turn is over, or it is paused") {
				t.Fatalf("%#v", m)
			}
			w.settle()
			w.forget()
			w.step(e)
			w.wantError(1, protocol.KindConflict)
			w.wantControl(coder)
			w.pause(true)
			w.settle()
			w.forget()
			w.step(e)
			w.settle()
			if len(w.said)+len(w.sent) != 1 {
				t.Fatalf("said %#v, sent %#v", w.said, w.sent)
			}
		})
	}
}

// TestCodingAgentOvertakes: it takes control while a change is on its way, which
// is judged anew.
func TestCodingAgentOvertakes(t *testing.T) {
	for name, c := range map[string]struct {
		e    turn.Event
		kind protocol.Kind // 0: a place in line
	}{
		"request": {turn.Requested{Socket: 1}, 0},
		"take":    {turn.Taken{Socket: 1}, protocol.KindConflict},
	} {
		t.Run(name, func(t *testing.T) {
			w := scene(t, bob)
			w.step(c.e)
			w.start("", true)
			w.settle()
			if m := w.sent[1]; c.kind != 0 && (len(m) != 1 || m[0].(protocol.ErrorMessage).Message != "a coding agent has control until its turn is over, or it is paused") {
				t.Fatalf("%#v", m)
			}
			if c.kind == 0 {
				w.wantControl(coder, bob)
			} else {
				w.wantControl(coder)
			}
		})
	}
}

// TestCodingAgentYieldsToNobody: who had control is gone. The line stays, and
// nobody moves up.
func TestCodingAgentYieldsToNobody(t *testing.T) {
	w := scene(t, alice, bob)
	w.start("codex", true)
	w.step(turn.Requested{Socket: 2})
	w.settle()
	w.leave(1)
	w.settle()
	w.forget()
	w.stop(true)
	w.wantSaid(protocol.ControlRevoked{From: coder}, stopped("codex"))
	w.wantControl("", bob)
	w.step(turn.Requested{Socket: 2})
	w.wantSaid(protocol.ControlTaken{Controller: bob, Term: 3})
	w.wantControl(bob)
}

// TestCodingAgentBeforeTheCreator: the creator's claim waits until it yields.
func TestCodingAgentBeforeTheCreator(t *testing.T) {
	w := scene(t, bob)
	w.start("claude", true)
	w.settle()
	w.join(alice)
	w.settle()
	w.forget()
	w.pause(false)
	w.wantSaid(paused("claude"), protocol.ControlRevoked{From: coder}, protocol.ControlTaken{Controller: alice, Term: 2})
}

// TestYieldsUnderAnOldGrant: control comes back under a grant that its holder no
// longer has here, and moves to one that there is.
func TestYieldsUnderAnOldGrant(t *testing.T) {
	w := scene(t, alice)
	w.start("claude", true)
	w.settle()
	w.renew(1, "gr_new", true)
	w.pause(true)
	w.settle()
	if l := w.register.Lease(w.now); l.Holder != alice || l.GrantID != "gr_new" {
		t.Fatalf("%+v", l)
	}
}

// TestReattachedToCodingAgent: the relay tells the agent of everybody who may
// get control back.
func TestReattachedToCodingAgent(t *testing.T) {
	w := scene(t, alice, bob, alice)
	w.start("claude", true)
	w.settle()
	w.detach()
	w.pause(true)
	w.resume(true)
	w.forget()
	w.reattach()
	w.wantControl(coder)
	w.settle()
	if want := map[protocol.UserID]int{alice: 2, bob: 1}; !reflect.DeepEqual(w.present, want) {
		t.Fatalf("%v", w.present)
	}
	w.detach()
	w.stop(true)
	w.forget()
	w.reattach()
	if m := []protocol.ServerMessage{stopped("claude")}; !reflect.DeepEqual(w.said, m) {
		t.Fatalf("%#v", w.said)
	}
}

// TestNobodyIsTheCodingAgent: a user of that id never counts as present.
func TestNobodyIsTheCodingAgent(t *testing.T) {
	w := scene(t, bob)
	effects := []turn.Effect(nil)
	w.s, effects = turn.Step(w.s, turn.Joined{Socket: 9, User: coder, GrantID: "gr_x", CanControl: true})
	if want := []turn.Effect{turn.Greet{Socket: 9}}; !reflect.DeepEqual(effects, want) {
		t.Fatalf("%#v", effects)
	}
	w.s, effects = turn.Step(w.s, turn.Renewed{Socket: 9, GrantID: "gr_y", CanControl: true})
	if len(effects) > 0 {
		t.Fatalf("%#v", effects)
	}
	w.start("claude", true)
	w.settle()
	if reason, may := w.s.MayType(9, w.s.Term()); may || reason != protocol.RefusedNotController {
		t.Fatalf("%v, %q", may, reason)
	}
}

// Two relays.

func TestOtherRelay(t *testing.T) {
	here := scene(t, alice, bob)
	there := here.relay()
	there.join(carol)
	there.join(bob)
	here.settle()
	here.forget()
	there.forget()

	there.step(turn.Requested{Socket: 1})
	there.step(turn.Requested{Socket: 2})
	here.wantSaid() // the line is the relay's own
	there.wantControl(alice, carol, bob)
	there.forget()

	here.step(turn.Granted{Socket: 1, To: carol}) // who is only there
	here.wantError(1, protocol.KindNotFound)
	here.step(turn.Granted{Socket: 1, To: bob})
	if there.wantControl(alice, carol, bob); len(there.said) > 0 {
		t.Fatalf("announced before the agent has confirmed it: %#v", there.said)
	}
	granted := protocol.ControlGranted{From: alice, To: bob, Controller: bob, Term: 2}
	here.settle()
	there.wantControl(bob, carol)
	here.wantSaid(granted)
	there.wantSaid(granted)
	for _, w := range []*world{here, there} {
		if _, may := w.s.MayType(2, 2); !may {
			t.Fatal("bob can't type")
		}
	}

	// bob's windows at one relay go, those at the other keep control.
	here.leave(2)
	here.wantSaid()
	there.step(turn.Granted{Socket: 2, To: carol})
	here.wantSaid(protocol.ControlGranted{From: bob, To: carol, Controller: carol, Term: 3})
	there.wantControl(carol)
}

// TestRaceOfRelays: of two who take a free terminal at once, at two relays, one
// gets it, and both relays say the same.
func TestRaceOfRelays(t *testing.T) {
	here := scene(t, bob)
	there := here.relay()
	there.join(carol)
	here.settle()
	here.step(turn.Taken{Socket: 1})
	there.step(turn.Requested{Socket: 1})
	here.settle()
	here.wantControl(bob)
	there.wantControl(bob, carol)
}

// TestNoTornState: what the agent says in two messages, state and lease, is one
// control_state, which doesn't contradict itself.
func TestNoTornState(t *testing.T) {
	w := scene(t, alice, bob)
	for _, c := range []struct {
		do         func(leaseFirst bool)
		controller protocol.UserID
		state      protocol.AgentState
	}{
		{func(leaseFirst bool) { w.start("claude", leaseFirst) }, coder, protocol.AgentRunning},
		{w.pause, alice, protocol.AgentPaused},
		{w.resume, coder, protocol.AgentRunning},
		{w.stop, alice, protocol.AgentStopped},
	} {
		w.settle()
		w.forget()
		c.do(false)
		w.hear()
		if want := []protocol.ServerMessage{protocol.AgentStateMessage{AgentState: c.state, Agent: "claude"}}; !reflect.DeepEqual(w.said, want) || w.changes != 0 {
			t.Fatalf("said %#v and %d control_states, want %#v alone", w.said, w.changes, want)
		}
		w.hear()
		if s := w.s.StateFor(1); w.changes != 1 || s.Controller != c.controller || s.AgentState != string(c.state) {
			t.Fatalf("%d control_states, %+v", w.changes, s)
		}
	}

	// A coding agent that was paused and ends changes nothing but its state.
	w.start("codex", false)
	w.pause(false)
	w.settle()
	w.forget()
	w.stop(false)
	w.wantSaid(stopped("codex"))
}
