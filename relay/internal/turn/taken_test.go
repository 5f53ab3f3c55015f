package turn_test

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// TestFound16TheOwnerTakesControlBack: at once, from whoever has it, and everybody
// is told why. Nobody else can.
func TestFound16TheOwnerTakesControlBack(t *testing.T) {
	w := scene(t, alice, bob, carol) // alice owns the session
	w.step(turn.Granted{Socket: 1, To: bob})
	w.wantSaid(protocol.ControlGranted{From: alice, To: bob, Controller: bob, Term: 2})
	w.step(turn.TakenBack{Socket: 3})
	w.wantError(3, protocol.KindForbidden)
	w.step(turn.TakenBack{Socket: 2}) // who has it, and is no owner
	w.wantError(2, protocol.KindForbidden)
	w.step(turn.TakenBack{Socket: 1})
	w.wantSaid(protocol.ControlGranted{From: bob, To: alice, Controller: alice, Term: 3, Reason: protocol.ReasonOwner})
	w.wantControl(alice)
	w.step(turn.TakenBack{Socket: 1}) // has it
	if w.settle(); len(w.said) > 0 || len(w.sent[1]) == 0 {
		t.Fatalf("said %v, sent %v", w.said, w.sent)
	}
	w.forget()

	// From one who is away, and of a free terminal.
	w.step(turn.Granted{Socket: 1, To: bob})
	w.settle()
	w.leave(2)
	w.settle()
	w.forget()
	w.step(turn.TakenBack{Socket: 1})
	w.wantSaid(protocol.ControlGranted{From: bob, To: alice, Controller: alice, Term: 5, Reason: protocol.ReasonOwner})
	w.step(turn.Revoked{Socket: 1})
	w.wantSaid(protocol.ControlRevoked{From: alice})
	w.step(turn.TakenBack{Socket: 1})
	w.wantSaid(protocol.ControlTaken{Controller: alice, Term: 6})

	// Not from a coding agent, which is paused first.
	w.start("claude", true)
	w.settle()
	w.forget()
	w.step(turn.TakenBack{Socket: 1})
	w.wantError(1, protocol.KindConflict)

	for id, want := range map[turn.SocketID]bool{1: true, 3: false} {
		if got := w.s.StateFor(id).CanTakeBack; got != want {
			t.Errorf("socket %d can take back: %t", id, got)
		}
	}
}

// An owner who may not control can't take it back either.
func TestFound16AnOwnerWhoMayNotControl(t *testing.T) {
	w := scene(t, bob)
	w.step(turn.Requested{Socket: 1})
	w.settle()
	owner := w.joinAs(alice, false)
	w.forget()
	w.step(turn.TakenBack{Socket: owner})
	w.wantError(owner, protocol.KindForbidden)
}

// TestFound16AnIdleHolderYields: to the first in line, as soon as somebody asks
// or the holder is idle, whichever is later; not while they type.
func TestFound16AnIdleHolderYields(t *testing.T) {
	w := scene(t, alice, bob, carol)
	w.step(turn.Requested{Socket: 2})
	w.step(turn.Requested{Socket: 3})
	w.settle()
	w.forget()
	w.wait(protocol.ControlIdle - time.Second)
	w.wantSaid()
	w.types(1)
	w.settle()
	w.wait(protocol.ControlIdle - 1)
	w.wantSaid()
	w.wait(1)
	w.wantSaid(protocol.ControlGranted{From: alice, To: bob, Controller: bob, Term: 2, Reason: protocol.ReasonIdle})
	w.wantControl(bob, carol)

	// Idle first, asked later; typing in between ends it.
	w.step(turn.Cancelled{Socket: 3})
	w.wait(protocol.ControlIdle)
	w.wantSaid()
	w.types(2)
	w.settle()
	w.step(turn.Requested{Socket: 1})
	w.wantSaid(protocol.ControlRequested{From: alice, Requests: []protocol.UserID{alice}})
	w.wait(protocol.ControlIdle)
	w.wantSaid(protocol.ControlGranted{From: bob, To: alice, Controller: alice, Term: 3, Reason: protocol.ReasonIdle})
	w.wait(protocol.ControlIdle)
	w.settle()
	w.step(turn.Requested{Socket: 3})
	w.wantSaid(protocol.ControlRequested{From: carol, Requests: []protocol.UserID{carol}},
		protocol.ControlGranted{From: alice, To: carol, Controller: carol, Term: 4, Reason: protocol.ReasonIdle})
}

// A key that was typed while the proposal was under way keeps control.
func TestFound16TypedJustInTime(t *testing.T) {
	w := scene(t, alice, bob)
	w.wait(protocol.ControlIdle)
	w.settle()
	w.types(1) // on its way before the proposal
	w.step(turn.Requested{Socket: 2})
	w.settle()
	w.wantControl(alice, bob)
}

// Nobody yields during the grace: it is there to be back in.
func TestFound16NoYieldingInTheGrace(t *testing.T) {
	w := scene(t, alice, bob)
	w.wait(protocol.ControlIdle)
	w.settle()
	w.leave(1)
	w.settle()
	w.step(turn.Requested{Socket: 2})
	w.settle()
	w.wantControl(alice, bob)
}

// TestFound16TheFirstKeyTakes: a free terminal, without a word where it doesn't.
func TestFound16TheFirstKeyTakes(t *testing.T) {
	w := scene(t, alice, bob)
	viewer := w.joinAs(carol, false)
	w.forget()
	w.step(turn.Keyed{Socket: 2})
	if w.s.Taking(2) {
		t.Fatal("takes what alice has")
	}
	w.wantSaid()
	w.step(turn.Revoked{Socket: 1})
	w.wantSaid(protocol.ControlRevoked{From: alice})
	w.step(turn.Keyed{Socket: viewer})
	if w.s.Taking(viewer) || !w.s.Free() {
		t.Fatal("a viewer takes")
	}
	w.step(turn.Keyed{Socket: 2})
	w.step(turn.Keyed{Socket: 1}) // too late
	if !w.s.Taking(2) || !w.s.Taking(1) {
		t.Fatal("it is decided before the agent has said so")
	}
	w.wantSaid(protocol.ControlTaken{Controller: bob, Term: 2})
	if w.s.Taking(2) || w.s.Taking(1) || len(w.sent) > 0 {
		t.Fatalf("undecided, or %v", w.sent)
	}
	w.step(turn.Revoked{Socket: 2})
	w.settle()
	w.refusing = true
	w.forget()
	w.step(turn.Keyed{Socket: 1})
	w.wantSaid()
	if w.s.Taking(1) || len(w.sent) > 0 {
		t.Fatalf("undecided, or %v", w.sent)
	}
}
