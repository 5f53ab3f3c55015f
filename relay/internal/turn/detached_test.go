package turn_test

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

func TestDetached(t *testing.T) {
	w := scene(t, alice, bob)
	w.step(turn.Revoked{Socket: 1}) // under way
	w.detach()
	w.wantError(1, protocol.KindUnavailable)
	for _, e := range []turn.Event{
		turn.Requested{Socket: 2}, turn.Taken{Socket: 2}, turn.Granted{Socket: 2, To: alice}, turn.Revoked{Socket: 2},
	} {
		w.step(e)
		w.wantError(2, protocol.KindUnavailable)
	}
	if id := w.join(carol); !w.greeted[id] {
		t.Fatal("not greeted")
	}
	w.reattach()
	w.wantSaid()
	w.wantControl(alice)
	if w.present[alice] != 1 || len(w.present) != 1 {
		t.Fatalf("%v", w.present)
	}
}

func TestDetachedHolderLeaves(t *testing.T) {
	w := scene(t, alice, bob)
	w.detach()
	w.leave(1)
	w.reattach()
	if m := w.toAgent; len(m) != 1 || m[0] != (protocol.Holder{User: alice}) {
		t.Fatalf("%+v", m)
	}
	w.wait(protocol.ControlGrace)
	w.wantSaid(protocol.ControlExpired{From: alice})
}

func TestClaimAcrossDetach(t *testing.T) {
	w := newWorld(t)
	creator := w.join(alice)
	w.detach() // before the answer
	if !w.greeted[creator] {
		t.Fatal("left waiting")
	}
	w.reattach()
	w.wantSaid(protocol.ControlTaken{Controller: alice, Term: 1})
}

// TestPresentBeforeTheStream: the agent hears of a holder's sockets here, though
// they are older than the stream and another relay made them the holder.
func TestPresentBeforeTheStream(t *testing.T) {
	w := scene(t, alice, bob)
	w.detach()
	w.reattach()
	w.elsewhere(protocol.LeaseNext{Holder: bob, GrantID: "gr_b"})
	w.wantSaid(protocol.ControlGranted{From: alice, To: bob, Controller: bob, Term: 2})
	if w.present[bob] != 1 {
		t.Fatalf("%v", w.present)
	}
}

func TestStaleWord(t *testing.T) {
	w := scene(t, alice)
	old := protocol.Leased{Lease: protocol.Lease{Revision: 1, Term: 9, Holder: bob, GrantID: "gr_b", State: protocol.LeaseHeld}}
	if _, effects := turn.Step(w.s, turn.Leased{Leased: old}); len(effects) > 0 {
		t.Fatalf("%#v", effects)
	}
}
