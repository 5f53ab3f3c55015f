package turn_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// scene returns a world with one settled socket of each user, in order: the
// first's id is 1. What was said so far is forgotten.
func scene(t *testing.T, users ...protocol.UserID) *world {
	t.Helper()
	w := newWorld(t)
	for _, user := range users {
		w.join(user)
	}
	w.checkSettled()
	w.forget()
	return w
}

func (w *world) forget() {
	w.said, w.changes = nil, 0
	clear(w.sent)
}

// wantSaid checks what everybody was told since the last time, after all is
// delivered.
func (w *world) wantSaid(messages ...protocol.ServerMessage) {
	w.t.Helper()
	w.checkSettled()
	if len(w.said)+len(messages) > 0 && !reflect.DeepEqual(w.said, messages) {
		w.t.Fatalf("said %#v, want %#v", w.said, messages)
	}
	if len(messages) > 0 && w.changes == 0 {
		w.t.Fatalf("%#v without a control_state", messages)
	}
	w.forget()
}

// wantError checks that one socket alone was told, an error of kind.
func (w *world) wantError(id turn.SocketID, kind protocol.Kind) {
	w.t.Helper()
	w.settle()
	m, ok := protocol.ErrorMessage{}, false
	if len(w.sent[id]) == 1 {
		m, ok = w.sent[id][0].(protocol.ErrorMessage)
	}
	if !ok || m.Name != kind.Name() || m.Message == "" || len(w.sent) != 1 || len(w.said) > 0 {
		w.t.Fatalf("sent %#v, said %#v; want %v to %d", w.sent, w.said, kind, id)
	}
	w.forget()
}

func (w *world) wantControl(user protocol.UserID, requests ...protocol.UserID) {
	w.t.Helper()
	s := w.s.StateFor(0)
	if s.Controller != user || len(s.Requests)+len(requests) > 0 && !reflect.DeepEqual(s.Requests, requests) {
		w.t.Fatalf("%+v, want %q and %v", s, user, requests)
	}
}

func TestCreatorClaims(t *testing.T) {
	w := newWorld(t)
	creator, other := w.join(alice), w.join(bob)
	if w.greeted[creator] || !w.greeted[other] {
		t.Fatalf("greeted before the answer: %v", w.greeted)
	}
	second := w.join(alice)
	if !w.greeted[second] {
		t.Fatal("only one claim is waited for")
	}
	w.wantSaid(protocol.ControlTaken{Controller: alice, Term: 1})
	w.wantControl(alice)

	// Once only.
	w.step(turn.Revoked{Socket: creator})
	w.wantSaid(protocol.ControlRevoked{From: alice})
	w.join(alice)
	w.wantSaid()
	w.wantControl("")
}

func TestNoClaim(t *testing.T) {
	free := protocol.Lease{State: protocol.LeaseFree}
	for name, s := range map[string]turn.State{
		"claimed before":   turn.New(protocol.TerminalOpened{Creator: alice, Claimed: true, Lease: free}),
		"no creator":       turn.New(protocol.TerminalOpened{Lease: free}),
		"another creator":  turn.New(protocol.TerminalOpened{Creator: bob, Lease: free}),
		"held by somebody": turn.New(protocol.TerminalOpened{Creator: alice, Lease: protocol.Lease{Revision: 1, Term: 1, Holder: bob, GrantID: "gr_b", State: protocol.LeaseHeld}}),
		"held by a coding agent": turn.New(protocol.TerminalOpened{
			Creator: alice, Lease: protocol.Lease{Revision: 1, Term: 1, Holder: protocol.AgentHolder, State: protocol.LeaseHeld}}),
		"a coding agent runs": turn.New(protocol.TerminalOpened{
			Creator: alice, Lease: free, Agent: &protocol.AgentReport{State: protocol.AgentRunning}}),
	} {
		_, effects := turn.Step(s, turn.Joined{Socket: 1, User: alice, GrantID: "gr_a", CanControl: true})
		want := []turn.Effect{
			turn.ReportHolder{Holder: protocol.Holder{User: alice, Sockets: 1}},
			turn.Greet{Socket: 1},
		}
		if !reflect.DeepEqual(effects, want) {
			t.Errorf("%s: %#v", name, effects)
		}
	}
	_, effects := turn.Step(turn.New(protocol.TerminalOpened{Creator: alice, Lease: free}), turn.Joined{Socket: 1, User: alice, GrantID: "gr_a"})
	if want := []turn.Effect{turn.Greet{Socket: 1}}; !reflect.DeepEqual(effects, want) {
		t.Errorf("view only: %#v", effects)
	}
}

func TestClaimIsRefused(t *testing.T) {
	w := newWorld(t)
	w.refusing = true
	creator := w.join(alice)
	w.checkSettled()
	if !w.greeted[creator] || len(w.sent) > 0 || len(w.said) > 0 {
		t.Fatalf("greeted %v, sent %#v, said %#v", w.greeted, w.sent, w.said)
	}
}

// TestClaimComesLate: another relay's viewer was faster.
func TestClaimComesLate(t *testing.T) {
	w := newWorld(t)
	w.elsewhere(protocol.LeaseNext{Holder: bob, GrantID: "gr_b"})
	creator := w.join(alice)
	w.wantSaid(protocol.ControlTaken{Controller: bob, Term: 1})
	if !w.greeted[creator] {
		t.Fatal("not greeted")
	}
}

func TestRequestWhenFree(t *testing.T) {
	for name, event := range map[string]turn.Event{
		"request": turn.Requested{Socket: 1},
		"take":    turn.Taken{Socket: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := scene(t, bob, carol)
			w.step(event)
			if w.wantControl(""); len(w.said) > 0 {
				t.Fatal("announced before the agent has confirmed it")
			}
			w.wantSaid(protocol.ControlTaken{Controller: bob, Term: 1})
			w.wantControl(bob)
			w.step(event) // has it already
			w.settle()
			m := []protocol.ServerMessage{protocol.ControlTaken{Controller: bob, Term: 1}, w.s.StateFor(1)}
			if !reflect.DeepEqual(w.sent[1], m) || len(w.said) > 0 {
				t.Fatalf("%#v, %#v", w.sent, w.said)
			}
		})
	}
}

func TestRequestWhenHeld(t *testing.T) {
	w := scene(t, alice, bob, carol, bob)
	for range 2 {
		w.step(turn.Requested{Socket: 2})
		w.step(turn.Requested{Socket: 4})
	}
	w.wantSaid(protocol.ControlRequested{From: bob, Requests: []protocol.UserID{bob}})
	w.step(turn.Requested{Socket: 3})
	w.wantSaid(protocol.ControlRequested{From: carol, Requests: []protocol.UserID{bob, carol}})
	w.wantControl(alice, bob, carol)

	w.leave(2) // bob has another
	w.wantControl(alice, bob, carol)
	w.leave(4)
	w.wantControl(alice, carol)
	if w.changes != 1 {
		t.Fatalf("%d changes", w.changes)
	}
	w.step(turn.Cancelled{Socket: 3})
	w.step(turn.Cancelled{Socket: 3})
	w.wantControl(alice)
	if w.changes != 2 {
		t.Fatalf("%d changes", w.changes)
	}
}

func TestTakeWhenHeld(t *testing.T) {
	w := scene(t, alice, bob)
	w.step(turn.Taken{Socket: 2})
	if m := w.sent[2]; len(m) != 1 || m[0].(protocol.ErrorMessage).Message != "alice has control" {
		t.Fatalf("%#v", m)
	}
	w.wantError(2, protocol.KindConflict)
	w.wantControl(alice)
}

// TestRace: of ten who ask for a free terminal at once one gets it, and the
// others stand in line in the order they asked.
func TestRace(t *testing.T) {
	w := newWorld(t)
	var line []protocol.UserID
	for i := range 10 {
		line = append(line, protocol.UserID(fmt.Sprintf("usr_%d", i)))
		w.join(line[i])
	}
	for id := range turn.SocketID(10) {
		w.step(turn.Requested{Socket: id + 1})
	}
	w.checkSettled()
	w.wantControl(line[0], line[1:]...)
	if len(w.said) != 10 {
		t.Fatalf("%#v", w.said)
	}
}

func TestGrant(t *testing.T) {
	w := scene(t, alice, bob, carol)
	w.step(turn.Requested{Socket: 2})
	w.step(turn.Requested{Socket: 3})
	w.forget()
	w.step(turn.Granted{Socket: 1, To: carol})
	w.wantSaid(protocol.ControlGranted{From: alice, To: carol, Controller: carol, Term: 2})
	w.wantControl(carol, bob)
	if l := w.register.Lease(w.now); l.GrantID != "gr_3" {
		t.Fatalf("%+v", l)
	}
	if reason, ok := w.s.MayType(1, w.s.Term()); ok || reason != protocol.RefusedNotController {
		t.Fatalf("%q, %v", reason, ok)
	}
	w.step(turn.Granted{Socket: 3, To: bob})   // without a request it works as well
	w.step(turn.Granted{Socket: 2, To: alice}) // judged when bob has control
	w.wantSaid(
		protocol.ControlGranted{From: carol, To: bob, Controller: bob, Term: 3},
		protocol.ControlGranted{From: bob, To: alice, Controller: alice, Term: 4},
	)
	w.wantControl(alice)
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		event turn.Event
		from  turn.SocketID
		kind  protocol.Kind
	}{
		"grant by another":      {turn.Granted{Socket: 2, To: carol}, 2, protocol.KindForbidden},
		"revoke by another":     {turn.Revoked{Socket: 2}, 2, protocol.KindForbidden},
		"grant to nobody there": {turn.Granted{Socket: 1, To: "usr_dave"}, 1, protocol.KindNotFound},
		"grant to who may not":  {turn.Granted{Socket: 1, To: carol}, 1, protocol.KindForbidden},
		"request without right": {turn.Requested{Socket: 3}, 3, protocol.KindForbidden},
		"take without right":    {turn.Taken{Socket: 3}, 3, protocol.KindForbidden},
		"grant by own viewer":   {turn.Granted{Socket: 4, To: bob}, 4, protocol.KindForbidden},
		"revoke by own viewer":  {turn.Revoked{Socket: 4}, 4, protocol.KindForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := scene(t, alice, bob)
			w.joinAs(carol, false)
			w.joinAs(alice, false) // a window opened for viewing
			w.forget()
			w.step(c.event)
			w.wantError(c.from, c.kind)
			w.wantControl(alice)
		})
	}
}

func TestRefusedByAgent(t *testing.T) {
	w := scene(t, bob)
	w.refusing = true
	w.step(turn.Requested{Socket: 1})
	w.wantError(1, protocol.KindForbidden)
	w.wantControl("")
}

func TestRevoke(t *testing.T) {
	w := scene(t, alice, bob)
	w.step(turn.Requested{Socket: 2})
	w.forget()
	w.step(turn.Revoked{Socket: 1})
	w.wantSaid(protocol.ControlRevoked{From: alice})
	w.wantControl("", bob)                   // nobody moves up by themselves
	w.step(turn.Requested{Socket: 2})        // asks again
	w.step(turn.Granted{Socket: 1, To: bob}) // too late
	w.checkSettled()
	w.wantControl(bob)
	if m, ok := w.sent[1][0].(protocol.ErrorMessage); !ok || m.Name != protocol.KindForbidden.Name() {
		t.Fatalf("%#v", w.sent)
	}
}

func TestGrace(t *testing.T) {
	for away, kept := range map[time.Duration]bool{
		9999 * time.Millisecond:                  true,
		protocol.ControlGrace:                    false,
		protocol.ControlGrace + time.Millisecond: false,
	} {
		t.Run(away.String(), func(t *testing.T) {
			w := scene(t, alice, bob, alice)
			w.leave(3) // one of two windows
			w.wantSaid()
			w.leave(1)
			w.wantSaid()
			if s := w.s.StateFor(2); s.Controller != alice || s.GraceMS != protocol.ControlGrace.Milliseconds() {
				t.Fatalf("%+v", s)
			}
			w.wait(away)
			back := w.join(alice)
			if !w.greeted[back] {
				t.Fatal("greeted late")
			}
			if kept {
				w.wantSaid()
				w.wantControl(alice)
				if l := w.register.Lease(w.now); l.GrantID != w.sockets[back].GrantID || l.Term != 1 {
					t.Fatalf("%+v: not under the grant that is there", l)
				}
				return
			}
			w.wantSaid(protocol.ControlExpired{From: alice})
			w.wantControl("")
			w.step(turn.Requested{Socket: 2})
			w.wantSaid(protocol.ControlTaken{Controller: bob, Term: 2})
		})
	}
}

// TestGraceIsShown: a control_state goes out when the grace begins and ends.
func TestGraceIsShown(t *testing.T) {
	w := scene(t, alice, bob)
	w.leave(1)
	w.settle()
	w.join(alice)
	w.settle()
	if w.changes != 2 || w.s.StateFor(2).GraceMS != 0 {
		t.Fatalf("%d changes, %+v", w.changes, w.s.StateFor(2))
	}
}

// TestConflict: the lease changed while the proposal was on its way. The intent is
// judged again.
func TestConflict(t *testing.T) {
	w := scene(t, bob, carol)
	w.step(turn.Requested{Socket: 1})
	w.elsewhere(protocol.LeaseNext{Holder: "usr_dave", GrantID: "gr_d"})
	w.wantSaid(
		protocol.ControlTaken{Controller: "usr_dave", Term: 1},
		protocol.ControlRequested{From: bob, Requests: []protocol.UserID{bob}},
	)

	w = scene(t, bob, carol)
	w.step(turn.Requested{Socket: 1})
	w.elsewhere(protocol.LeaseNext{Holder: "usr_dave", GrantID: "gr_d"})
	w.elsewhere(protocol.LeaseNext{})
	w.wantSaid(
		protocol.ControlTaken{Controller: "usr_dave", Term: 1},
		protocol.ControlRevoked{From: "usr_dave"},
		protocol.ControlTaken{Controller: bob, Term: 2},
	)
}

// TestEndlessConflict: an agent that changes the lease all the time is not
// asked for ever.
func TestEndlessConflict(t *testing.T) {
	w := scene(t, bob)
	w.step(turn.Requested{Socket: 1})
	tries := 0
	for ; len(w.toAgent) > 0; tries++ {
		w.elsewhere(protocol.LeaseNext{Holder: "usr_dave", GrantID: "gr_d"})
		w.elsewhere(protocol.LeaseNext{})
		for w.obey() {
		}
		w.settleOnce()
	}
	if m := w.sent[1]; tries < 2 || tries > 10 || len(m) != 1 || m[0].(protocol.ErrorMessage).Name != protocol.KindConflict.Name() {
		t.Fatalf("after %d tries: %#v", tries, m)
	}
}

// settleOnce delivers what the agent has said so far.
func (w *world) settleOnce() {
	for range len(w.fromAgent) {
		w.hear()
	}
}

func TestQueueIsBounded(t *testing.T) {
	w := scene(t, bob, carol)
	w.step(turn.Requested{Socket: 1}) // under way
	for range 64 {
		w.step(turn.Taken{Socket: 2})
	}
	if len(w.sent) > 0 {
		t.Fatalf("%#v", w.sent)
	}
	w.step(turn.Taken{Socket: 2})
	if m := w.sent[2]; len(m) != 1 || m[0].(protocol.ErrorMessage).Name != protocol.KindTooMany.Name() {
		t.Fatalf("%#v", m)
	}
	w.leave(2)
	w.wantSaid(protocol.ControlTaken{Controller: bob, Term: 1})
}

func TestLineIsBounded(t *testing.T) {
	w := scene(t, alice)
	for i := range 64 {
		w.step(turn.Requested{Socket: w.join(protocol.UserID(fmt.Sprintf("usr_%d", i)))})
	}
	w.settle()
	w.forget()
	late := w.join(bob)
	w.step(turn.Requested{Socket: late})
	w.wantError(late, protocol.KindTooMany)
}

func TestRenewed(t *testing.T) {
	w := scene(t, alice, bob)
	w.renew(1, "gr_new", true)
	w.wantSaid()
	if l := w.register.Lease(w.now); l.GrantID != "gr_new" || l.Term != 1 || l.Holder != alice {
		t.Fatalf("%+v", l)
	}

	// Without the right to control, control is lost like by going away.
	w.renew(1, "gr_less", false)
	w.checkSettled()
	if _, ok := w.s.MayType(1, w.s.Term()); ok || w.register.Lease(w.now).State != protocol.LeaseGrace {
		t.Fatalf("%+v", w.register.Lease(w.now))
	}
	if m := w.sent[1]; len(m) != 1 || m[0].(protocol.ControlState).CanControl {
		t.Fatalf("%#v", m)
	}
	w.renew(1, "gr_more", true)
	w.checkSettled()
	if l := w.register.Lease(w.now); l.State != protocol.LeaseHeld || l.GrantID != "gr_more" {
		t.Fatalf("%+v", l)
	}
}

// TestOtherWindow: the lease moves to the grant of the window that stays.
func TestOtherWindow(t *testing.T) {
	w := scene(t, alice, alice)
	w.leave(1)
	w.wantSaid()
	if l := w.register.Lease(w.now); l.GrantID != "gr_2" || l.State != protocol.LeaseHeld {
		t.Fatalf("%+v", l)
	}
}

// TestUndecided counts the intents to yield control that have no answer.
func TestUndecided(t *testing.T) {
	w := scene(t, alice, bob)
	check := func(id turn.SocketID, want int) {
		t.Helper()
		if n := w.s.Undecided(id); n != want {
			t.Fatalf("%d intents are undecided, want %d", n, want)
		}
	}
	w.step(turn.Granted{Socket: 1, To: carol}) // who is not there
	check(1, 0)
	w.step(turn.Granted{Socket: 1, To: bob})
	w.step(turn.Revoked{Socket: 1})
	w.step(turn.Requested{Socket: 1})
	w.step(turn.Requested{Socket: 2})
	check(1, 2)
	check(2, 0)
	w.refusing = true
	w.obey()
	w.hear()
	check(1, 1)
	w.refusing = false
	w.settle()
	check(1, 0)
	w.step(turn.Taken{Socket: 1})
	w.settle()
	w.step(turn.Revoked{Socket: 1})
	check(1, 1)
	w.detach()
	check(1, 0)
}
