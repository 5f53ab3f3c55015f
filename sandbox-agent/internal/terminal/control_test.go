package terminal

import (
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

func TestProposals(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v, other := r.attach(t, nil), r.attach(t, nil)
		taken := v.propose(alice)
		if taken.Lease.Holder != alice || taken.Lease.State != protocol.LeaseHeld || taken.Refused != "" {
			t.Fatalf("%+v", taken)
		}
		if seen := want[protocol.Leased](other); seen.ID != 0 || seen.Lease != taken.Lease {
			t.Fatalf("%+v", seen)
		}
		v.mayControl(bob, "gr_2")
		v.Propose(protocol.LeaseProposal{ID: 9, ExpectRevision: taken.Lease.Revision - 1, Next: protocol.LeaseNext{Holder: bob, GrantID: "gr_2"}})
		if late := want[protocol.Leased](v); late.ID != 9 || late.Refused == "" || late.Lease != taken.Lease {
			t.Fatalf("%+v", late)
		}
		other.nothing()
		v.RefuseProposal(10, "no")
		if no := want[protocol.Leased](v); no.ID != 10 || no.Refused != "no" || no.Lease != taken.Lease {
			t.Fatalf("%+v", no)
		}
		if !r.attach(t, nil).opened.Claimed {
			t.Fatal("not claimed")
		}
	})
}

func TestGrace(t *testing.T) {
	for away, state := range map[time.Duration]protocol.LeaseState{
		protocol.ControlGrace - time.Millisecond: protocol.LeaseHeld,
		protocol.ControlGrace:                    protocol.LeaseFree,
	} {
		bubble(t, func(t *testing.T, r *rig) {
			v := r.attach(t, nil)
			held := v.propose(alice)
			v.Holder(protocol.Holder{User: alice, Sockets: 0})
			if l := want[protocol.Leased](v).Lease; l.State != protocol.LeaseGrace || l.MSLeft != protocol.ControlGrace.Milliseconds() {
				t.Fatalf("%+v", l)
			}
			time.Sleep(away)
			synctest.Wait()
			v.Holder(protocol.Holder{User: alice, Sockets: 1})
			l := want[protocol.Leased](v)
			if l.Lease.State != state || l.ID != 0 || l.Lease.Term != held.Lease.Term {
				t.Fatalf("back after %v: %+v", away, l)
			}
			v.nothing()
		})
	}
}

// TestGraceStartsAnew goes away twice: an earlier deadline must not end a
// later grace.
func TestGraceStartsAnew(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.propose(alice)
		for range 5 {
			v.Holder(protocol.Holder{User: alice, Sockets: 0})
			want[protocol.Leased](v)
			time.Sleep(protocol.ControlGrace - time.Millisecond)
			v.Holder(protocol.Holder{User: alice, Sockets: 1})
			l := want[protocol.Leased](v)
			if l.Lease.State == protocol.LeaseGrace && l.Lease.Idle { // she has typed nothing for 30 s by now
				l = want[protocol.Leased](v)
			}
			if l.Lease.State != protocol.LeaseHeld {
				t.Fatalf("%+v", l)
			}
		}
	})
}

// TestLostTunnel closes the attachment of the holder's relay: the grace begins,
// unless another relay has sockets of the holder too.
func TestLostTunnel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first, second := r.attach(t, nil), r.attach(t, nil)
		second.Holder(protocol.Holder{User: alice, Sockets: 2})
		first.propose(alice)
		want[protocol.Leased](second)
		first.Close()
		second.nothing()
		second.Close()
		third := r.attach(t, nil)
		if l := third.opened.Lease; l.State != protocol.LeaseGrace || l.Holder != alice {
			t.Fatalf("%+v", l)
		}
		third.Holder(protocol.Holder{User: alice, Sockets: 1})
		if l := want[protocol.Leased](third).Lease; l.State != protocol.LeaseHeld {
			t.Fatalf("%+v", l)
		}
	})
}

func TestResize(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		v.Resize(protocol.Resize{Term: 0, Cols: 100, Rows: 30})
		term := v.propose(alice).Lease.Term
		v.Resize(protocol.Resize{Term: term + 1, Cols: 100, Rows: 30})
		v.nothing()
		v.Resize(protocol.Resize{Term: term, Cols: 100, Rows: 30})
		if m := want[protocol.Resized](v); m.Cols != 100 || m.Rows != 30 {
			t.Fatalf("%+v", m)
		}
		// A window that is dragged: the last size counts, 20 times a second.
		for i := range 100 {
			v.Resize(protocol.Resize{Term: term, Cols: 101 + i, Rows: 30})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(arbiter.ResizeEvery)
		synctest.Wait()
		if n := len(r.dev.sized()); n < 3 || n > 4 {
			t.Fatalf("%d sizes: %v", n, r.dev.sized())
		}
		if info := r.Info(); info.Cols != 200 || r.dev.sized()[len(r.dev.sized())-1] != [2]int{200, 30} {
			t.Fatalf("%+v, %v", info, r.dev.sized())
		}
		if m := want[protocol.Resized](v); m.Cols != 200 { // at one offset the last is left
			t.Fatalf("%+v", m)
		}
		if late := r.attach(t, nil).opened; late.Cols != 200 {
			t.Fatalf("%+v", late)
		}
	})
}

func TestResizeIsClamped(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		v := r.attach(t, nil)
		term := v.propose(alice).Lease.Term
		v.Resize(protocol.Resize{Term: term, Cols: 65535, Rows: 0})
		if want := [][2]int{{protocol.MaxCols, protocol.MinRows}}; !reflect.DeepEqual(r.dev.sized(), want) {
			t.Fatalf("%v", r.dev.sized())
		}
	})
}

// TestCleanCut changes the holder while both type as fast as they can: once a
// change is answered, no byte of an earlier term is written. Real time, so
// that the goroutines race.
func TestCleanCut(t *testing.T) {
	r := newRig(t)
	var announced atomic.Uint64 // the term last answered
	r.dev.offered = func(p []byte) {
		if term := uint64(p[0])<<16 | uint64(p[1])<<8 | uint64(p[2]); term < announced.Load() {
			t.Errorf("input of term %d written in term %d", term, announced.Load())
		}
	}
	stop, done := make(chan struct{}), make(chan struct{})
	typist := r.attach(t, nil)
	go func() { // the test waits for it
		defer close(done)
		for seq := uint64(1); ; seq++ {
			select {
			case <-stop:
				return
			default:
			}
			term := announced.Load()
			typist.typed(term, seq, string([]byte{byte(term >> 16), byte(term >> 8), byte(term)}))
			typist.Poll()
			typist.Poll()
			r.dev.setRoom(3 * int(seq%3)) // whole inputs, so that each offer begins with one
		}
	}()
	v := r.attach(t, nil)
	for i := range 5000 {
		announced.Store(v.propose([]protocol.UserID{alice, bob}[i%2]).Lease.Term)
	}
	close(stop)
	<-done
}

// TestFound16IdleByTheAgentsClock: who has typed nothing for so long is idle, and
// may be replaced for that alone; typing ends it. Only the owner's grant takes
// control back.
func TestFound16IdleByTheAgentsClock(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.dev.setRoom(100)
		v := r.attach(t, nil)
		held := v.propose(alice).Lease
		if err := v.AddGrant(grantOf(bob, "gr_bob", 10*time.Minute, protocol.CapControl), 0); err != nil {
			t.Fatal(err)
		}
		if err := v.AddGrant(grantOf("usr_owner", "gr_owner", 10*time.Minute, protocol.CapControl, protocol.CapAdmin), 0); err != nil {
			t.Fatal(err)
		}
		asks := func(user protocol.UserID, grant protocol.GrantID, reason protocol.LeaseReason) protocol.Leased {
			t.Helper()
			v.Propose(protocol.LeaseProposal{ID: 3, ExpectRevision: held.Revision, Next: protocol.LeaseNext{Holder: user, GrantID: grant, Reason: reason}})
			l := want[protocol.Leased](v)
			if l.ID != 3 {
				t.Fatalf("%+v", l)
			}
			held = l.Lease
			return l
		}
		if l := asks(bob, "gr_bob", protocol.ReasonIdle); l.Refused == "" || l.Lease.Holder != alice {
			t.Fatalf("%+v, though nobody is idle", l)
		}
		time.Sleep(protocol.ControlIdle - time.Second)
		v.typed(held.Term, 1, "x")
		v.wantAck(1)
		time.Sleep(protocol.ControlIdle - time.Millisecond)
		synctest.Wait()
		if m, err := v.Poll(); m != nil || err != nil {
			t.Fatalf("too early: %+v, %v", m, err)
		}
		time.Sleep(time.Millisecond)
		l := want[protocol.Leased](v)
		if !l.Lease.Idle || l.ID != 0 || l.Lease.Revision != held.Revision+1 || l.Lease.Term != held.Term {
			t.Fatalf("%+v after %+v", l, held)
		}
		v.typed(held.Term, 2, "y")
		if again := want[protocol.Leased](v); again.Lease.Idle || again.Lease.Revision != l.Lease.Revision+1 {
			t.Fatalf("%+v after a key", again)
		}
		v.wantAck(2)
		time.Sleep(protocol.ControlIdle)
		held = want[protocol.Leased](v).Lease
		if l := asks(bob, "gr_bob", protocol.ReasonIdle); l.Refused != "" || l.Lease.Holder != bob || l.Lease.Reason != protocol.ReasonIdle || l.Lease.Idle {
			t.Fatalf("%+v", l)
		}
		if l := asks(alice, "gr_1", protocol.ReasonOwner); l.Refused == "" || l.Lease.Holder != bob {
			t.Fatalf("taken back by one who doesn't own the session: %+v", l)
		}
		if l := asks("usr_owner", "gr_owner", protocol.ReasonOwner); l.Refused != "" || l.Lease.Holder != "usr_owner" || l.Lease.Reason != protocol.ReasonOwner {
			t.Fatalf("%+v", l)
		}
	})
}
