package lease_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/lease"
)

const (
	alice = protocol.UserID("alice")
	bob   = protocol.UserID("bob")
)

var start = time.Unix(1_800_000_000, 0)

// at returns the time so long after the start of a test.
func at(d time.Duration) time.Time { return start.Add(d) }

func to(revision uint64, holder protocol.UserID, grant protocol.GrantID) protocol.LeaseProposal {
	return protocol.LeaseProposal{
		ID: 1, ExpectRevision: revision, Next: protocol.LeaseNext{Holder: holder, GrantID: grant},
	}
}

// held returns a register that alice holds with one socket, at revision 1.
func held(t *testing.T) *lease.Register {
	t.Helper()
	r := lease.New()
	if _, err := r.Propose(to(0, alice, "gr_a"), 1, start); err != nil {
		t.Fatal(err)
	}
	return r
}

func wantLease(t *testing.T, got, want protocol.Lease) {
	t.Helper()
	if got != want {
		t.Fatalf("lease %+v, want %+v", got, want)
	}
}

func TestNew(t *testing.T) {
	r := lease.New()
	wantLease(t, r.Lease(start), protocol.Lease{State: protocol.LeaseFree})
	if _, ok := r.Deadline(); ok || r.Claimed() || r.Expire(at(time.Hour)) {
		t.Fatal("a new register has a history")
	}
	if reason, ok := r.Check(0); ok || reason != protocol.RefusedNotController {
		t.Fatalf("term 0 of a free lease: %q, %v", reason, ok)
	}
}

func TestPropose(t *testing.T) {
	for name, tt := range map[string]struct {
		p       protocol.LeaseProposal
		sockets int
		want    protocol.Lease
	}{
		"to another": {to(1, bob, "gr_b"), 1,
			protocol.Lease{Revision: 2, Term: 2, Holder: bob, GrantID: "gr_b", State: protocol.LeaseHeld}},
		"to one who has just left": {to(1, bob, "gr_b"), 0, // two changes: the holder, then the grace
			protocol.Lease{Revision: 3, Term: 2, Holder: bob, GrantID: "gr_b", State: protocol.LeaseGrace, MSLeft: 10_000}},
		"to nobody": {to(1, "", ""), 0,
			protocol.Lease{Revision: 2, Term: 1, State: protocol.LeaseFree}},
		"another grant": {to(1, alice, "gr_a2"), 1,
			protocol.Lease{Revision: 2, Term: 1, Holder: alice, GrantID: "gr_a2", State: protocol.LeaseHeld}},
		"another grant of one who has just left": {to(1, alice, "gr_a2"), 0,
			protocol.Lease{Revision: 3, Term: 1, Holder: alice, GrantID: "gr_a2", State: protocol.LeaseGrace, MSLeft: 10_000}},
		"what is there": {to(1, alice, "gr_a"), 1,
			protocol.Lease{Revision: 1, Term: 1, Holder: alice, GrantID: "gr_a", State: protocol.LeaseHeld}},
	} {
		t.Run(name, func(t *testing.T) {
			r := held(t)
			got, err := r.Propose(tt.p, tt.sockets, start)
			if err != nil {
				t.Fatal(err)
			}
			wantLease(t, got, tt.want)
			wantLease(t, r.Lease(start), tt.want)
			if !r.Claimed() {
				t.Error("not claimed")
			}
		})
	}
}

// TestAgentClaimsNothing: a coding agent that starts before anybody came leaves
// the claim to the terminal's creator.
func TestAgentClaimsNothing(t *testing.T) {
	r := lease.New()
	for revision, step := range []struct {
		holder  protocol.UserID
		claimed bool
	}{{protocol.AgentHolder, false}, {"", false}, {alice, true}, {protocol.AgentHolder, true}} {
		if _, err := r.Propose(to(uint64(revision), step.holder, "gr"), 1, start); err != nil {
			t.Fatal(err)
		}
		if r.Claimed() != step.claimed {
			t.Errorf("after %q: %t", step.holder, r.Claimed())
		}
	}
}

func TestProposeRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		p    protocol.LeaseProposal
		kind protocol.Kind
	}{
		"an old revision":    {to(0, bob, "gr_b"), protocol.KindConflict},
		"a future revision":  {to(2, bob, "gr_b"), protocol.KindConflict},
		"free, old revision": {to(0, "", ""), protocol.KindConflict},
		"same, old revision": {to(0, alice, "gr_a"), protocol.KindConflict},
	} {
		t.Run(name, func(t *testing.T) {
			r := held(t)
			before := r.Lease(start)
			got, err := r.Propose(tt.p, 1, start)
			var e *protocol.Error
			if !errors.As(err, &e) || e.Kind != tt.kind {
				t.Fatalf("error %v, want kind %v", err, tt.kind)
			}
			wantLease(t, got, before)
			wantLease(t, r.Lease(start), before)
		})
	}
}

// TestTerms takes control, gives it back and takes it again: the second time is
// a new term, though the holder is the same, and nothing typed in the first
// passes.
func TestTerms(t *testing.T) {
	r := held(t)
	if _, ok := r.Check(1); !ok {
		t.Fatal("the holder can't type")
	}
	if _, err := r.Propose(to(1, "", ""), 0, start); err != nil {
		t.Fatal(err)
	}
	if reason, ok := r.Check(1); ok || reason != protocol.RefusedNotController {
		t.Fatalf("typed into a free terminal: %q, %v", reason, ok)
	}
	if _, err := r.Propose(to(2, alice, "gr_a"), 1, start); err != nil {
		t.Fatal(err)
	}
	for term, want := range map[uint64]bool{0: false, 1: false, 2: true, 3: false} {
		reason, ok := r.Check(term)
		if ok != want || !ok && reason != protocol.RefusedStaleTerm {
			t.Errorf("term %d: %q, %v", term, reason, ok)
		}
	}
}

// TestBack returns around the end of the grace (threat 45). Nobody called
// Expire before: however late the timer is, it must not stretch the grace.
func TestBack(t *testing.T) {
	for away, kept := range map[time.Duration]bool{
		0:                            true,
		9_999 * time.Millisecond:     true,
		10*time.Second - 1:           true,
		10_000 * time.Millisecond:    false,
		10_001 * time.Millisecond:    false,
		24 * time.Hour:               false,
		-time.Second:                 true, // a clock that jumped
		protocol.ControlGrace + 1:    false,
		protocol.ControlGrace / 2:    true,
		protocol.ControlGrace - 1000: true,
	} {
		t.Run(away.String(), func(t *testing.T) {
			r := held(t)
			if !r.Sockets(alice, 0, start) {
				t.Fatal("no grace")
			}
			if deadline, ok := r.Deadline(); !ok || !deadline.Equal(at(protocol.ControlGrace)) {
				t.Fatalf("deadline %v, %v", deadline, ok)
			}
			if !r.Sockets(alice, 1, at(away)) {
				t.Fatal("neither kept nor expired")
			}
			if r.Expire(at(away)) {
				t.Fatal("expired twice")
			}
			want := protocol.Lease{Revision: 3, Term: 1, State: protocol.LeaseFree}
			if kept {
				want = protocol.Lease{Revision: 3, Term: 1, Holder: alice, GrantID: "gr_a", State: protocol.LeaseHeld}
			}
			wantLease(t, r.Lease(at(away)), want)
			if _, ok := r.Deadline(); ok {
				t.Fatal("a deadline is left")
			}
		})
	}
}

// TestOverBeforeExpire finds the grace over before its owner did: a proposal
// conflicts, and Expire still reports the end, once.
func TestOverBeforeExpire(t *testing.T) {
	r := held(t)
	r.Sockets(alice, 0, start)
	late := at(protocol.ControlGrace)
	for _, p := range []protocol.LeaseProposal{to(2, bob, "gr_b"), to(2, alice, "gr_a2"), to(2, "", "")} {
		if _, err := r.Propose(p, 1, late); protocol.KindOf(err) != protocol.KindConflict {
			t.Fatalf("%+v: %v", p.Next, err)
		}
	}
	wantLease(t, r.Lease(late), protocol.Lease{Revision: 2, Term: 1, Holder: alice, GrantID: "gr_a", State: protocol.LeaseGrace})
	if !r.Expire(late) || r.Expire(late) {
		t.Fatal("the end is reported once")
	}
	if _, err := r.Propose(to(3, bob, "gr_b"), 1, late); err != nil {
		t.Fatal(err)
	}
}

// TestAwayTwice goes away a second time: the grace begins anew, and the first
// one's deadline means nothing (threat 46).
func TestAwayTwice(t *testing.T) {
	r := held(t)
	r.Sockets(alice, 0, start)
	r.Sockets(alice, 1, at(9*time.Second))
	if r.Expire(at(10 * time.Second)) {
		t.Fatal("the old deadline ended the lease")
	}
	r.Sockets(alice, 0, at(11*time.Second))
	if r.Expire(at(20 * time.Second)) {
		t.Fatal("less than the whole grace")
	}
	if r.Sockets(alice, 0, at(15*time.Second)) {
		t.Fatal("away twice without coming back")
	}
	if got := r.Lease(at(15 * time.Second)).MSLeft; got != 6000 {
		t.Fatalf("%d ms left", got)
	}
	if !r.Expire(at(21 * time.Second)) {
		t.Fatal("not expired")
	}
}

func TestSocketsOfOthers(t *testing.T) {
	r := held(t)
	if r.Sockets(bob, 0, start) || r.Sockets(bob, 1, start) || r.Sockets("", 0, start) || r.Sockets(alice, 2, start) {
		t.Fatal("changed")
	}
	free := lease.New()
	if free.Sockets(alice, 0, start) || free.Sockets("", 1, start) || free.Sockets("", 0, start) {
		t.Fatal("a free lease changed")
	}
}

// TestPassedOnInGrace passes the lease on while its holder is away: a new grant
// alone doesn't end the grace, and a new holder starts without a deadline.
func TestPassedOnInGrace(t *testing.T) {
	r := held(t)
	r.Sockets(alice, 0, start)
	l, err := r.Propose(to(2, alice, "gr_a2"), 0, at(time.Second))
	if err != nil || l.State != protocol.LeaseGrace || l.MSLeft != 9000 {
		t.Fatalf("%+v, %v", l, err)
	}
	if l, err = r.Propose(to(3, bob, "gr_b"), 1, at(time.Second)); err != nil || l.State != protocol.LeaseHeld {
		t.Fatalf("%+v, %v", l, err)
	}
	if r.Expire(at(time.Hour)) {
		t.Fatal("alice's deadline ended bob's lease")
	}
}

func TestMSLeftRoundsUp(t *testing.T) {
	r := held(t)
	r.Sockets(alice, 0, start)
	for gone, want := range map[time.Duration]int64{
		0: 10_000, 1: 10_000, time.Millisecond: 9_999, 9999*time.Millisecond + 1: 1, 10 * time.Second: 0, time.Hour: 0,
	} {
		if got := r.Lease(at(gone)).MSLeft; got != want {
			t.Errorf("after %v: %d ms left, want %d", gone, got, want)
		}
	}
}
