package terminal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// over returns how Next ends.
func (v *viewer) over() error {
	for {
		if _, err := v.Next(v.t.Context()); err != nil {
			return err
		}
	}
}

func TestAddGrant(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		r.host.RevokeGrants("gr_void", "gr_unknown")
		for _, tt := range []struct {
			what   string
			change func(*jws.Grant)
			kind   protocol.Kind
		}{
			{"another session", func(g *jws.Grant) { g.Session = "ses_2" }, protocol.KindForbidden},
			{"another terminal", func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }, protocol.KindForbidden},
			{"no view", func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapControl} }, protocol.KindForbidden},
			{"the agent's name", func(g *jws.Grant) { g.Subject = protocol.AgentHolder }, protocol.KindForbidden},
			{"revoked", func(g *jws.Grant) { g.ID = "gr_void" }, protocol.KindUnauthenticated},
			{"expired", func(g *jws.Grant) { g.ExpiresAt = time.Now().Add(-jws.Skew - time.Second).Unix() }, protocol.KindExpired},
		} {
			g := grantOf(alice, "gr_x", time.Hour, protocol.CapControl)
			tt.change(g)
			if err := v.AddGrant(g, 0); protocol.KindOf(err) != tt.kind {
				t.Errorf("%s: %v", tt.what, err)
			}
		}
		time.Sleep(time.Hour)
		v.nothing() // it never had one, and stays
		for i := range arbiter.MaxGrants {
			user := protocol.UserID(fmt.Sprintf("usr_%d", i))
			if err := v.AddGrant(grantOf(user, protocol.GrantID(fmt.Sprintf("gr_%d", i)), time.Duration(2+i)*time.Minute), 0); err != nil {
				t.Fatal(err)
			}
		}
		more := grantOf(alice, "gr_more", time.Hour)
		if err := v.AddGrant(more, 0); protocol.KindOf(err) != protocol.KindTooMany {
			t.Error(err)
		}
		time.Sleep(3 * time.Minute)
		if err := v.AddGrant(more, 0); err != nil {
			t.Error(err)
		}
		v.Close()
		if err := v.AddGrant(more, 0); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Error(err)
		}
	})
}

// TestFound10TheNextGrant: when the last grant of a stream is revoked nothing
// more comes by it, until another is presented; the relay hears which one.
func TestFound10TheNextGrant(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		if err := v.AddGrant(grantOf(alice, "gr_1", time.Hour), 7); err != nil {
			t.Fatal(err)
		}
		r.print("before")
		want[protocol.Data](v)
		r.host.RevokeGrants("gr_1")
		r.print("meanwhile")
		if m := want[protocol.Granted](v); m.Handle != 7 || m.GrantID != "gr_1" || m.Refused == "" {
			t.Errorf("%+v", m)
		}
		v.nothing()
		if err := v.AddGrant(grantOf(alice, "gr_1", time.Hour), 8); protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Error(err)
		}
		v.nothing()
		if err := v.AddGrant(grantOf(alice, "gr_2", time.Hour), 9); err != nil {
			t.Fatal(err)
		}
		if m := want[protocol.Data](v); string(m.Bytes) != "meanwhile" {
			t.Errorf("%q", m.Bytes)
		}
		time.Sleep(2 * arbiter.BareFor)
		v.nothing() // and it goes on
	})
}

// TestEndOfGrants: a stream ends a second after its last grant was dropped, has
// expired or was revoked.
func TestEndOfGrants(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(r *stageRig, v *viewer)
		took time.Duration
	}{
		"expired": {func(*stageRig, *viewer) {}, time.Minute + arbiter.BareFor},
		"dropped": {func(_ *stageRig, v *viewer) { v.DropGrant("gr_1"); v.DropGrant("gr_1") }, arbiter.BareFor},
		"revoked": {func(r *stageRig, _ *viewer) { r.host.RevokeGrants("gr_1", "gr_none") }, arbiter.BareFor},
		"renewed": {func(_ *stageRig, v *viewer) {
			v.DropGrant("gr_1")
			time.Sleep(arbiter.BareFor - time.Millisecond)
			if err := v.AddGrant(grantOf(alice, "gr_2", time.Minute), 0); err != nil {
				t.Error(err)
			}
		}, time.Minute + arbiter.BareFor}, // grants count in whole seconds
		"one of two": {func(r *stageRig, v *viewer) {
			if err := v.AddGrant(grantOf(bob, "gr_2", 2*time.Minute), 0); err != nil {
				t.Error(err)
			}
			r.host.RevokeGrants("gr_1")
		}, 2*time.Minute + arbiter.BareFor},
		"of an ended terminal": {func(r *stageRig, v *viewer) {
			r.print(strings.Repeat("x", 3*protocol.MaxDataBytes))
			r.host.end(0)
			time.Sleep(2 * time.Minute)
			want[protocol.Data](v)
			time.Sleep(arbiter.BareFor + time.Millisecond)
		}, 2*time.Minute + arbiter.BareFor},
	} {
		t.Run(name, func(t *testing.T) {
			stageBubble(t, func(t *testing.T, r *stageRig) {
				v := r.attach(t, nil)
				if err := v.AddGrant(grantOf(alice, "gr_1", time.Minute), 0); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				tt.end(r, v)
				if err := v.over(); !errors.Is(err, arbiter.ErrNoGrant) {
					t.Fatal(err)
				}
				if took := time.Since(start); took.Truncate(time.Second) != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}

// TestExpiredController: a lease ends with its grant, unless that was renewed, at
// whichever relay; a relay that hides the grant changes nothing.
func TestExpiredController(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(t *testing.T, v, other *viewer)
		grant     protocol.GrantID // under which it goes on
	}{
		"not renewed":     {func(*testing.T, *viewer, *viewer) {}, ""},
		"renewed here":    {func(_ *testing.T, v, _ *viewer) { v.mayControl(alice, "gr_2") }, "gr_2"},
		"renewed there":   {func(_ *testing.T, _, other *viewer) { other.mayControl(alice, "gr_2") }, "gr_2"},
		"another's":       {func(_ *testing.T, v, _ *viewer) { v.mayControl(bob, "gr_2") }, ""},
		"hidden":          {func(_ *testing.T, v, _ *viewer) { v.DropGrant("gr_1"); v.sockets(alice, 1) }, ""},
		"hidden, renewed": {func(_ *testing.T, v, _ *viewer) { v.mayControl(alice, "gr_2"); v.DropGrant("gr_1") }, "gr_2"},
		"to view only": {func(t *testing.T, v, _ *viewer) {
			if err := v.AddGrant(grantOf(alice, "gr_2", time.Hour), 0); err != nil {
				t.Error(err)
			}
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				v, other := r.attach(t, nil), r.attach(t, nil)
				if err := other.AddGrant(grantOf(bob, "gr_b", time.Hour), 0); err != nil {
					t.Fatal(err)
				}
				held := v.propose(alice).Lease
				want[protocol.Leased](other)
				time.Sleep(5 * time.Minute)
				tt.meanwhile(t, v, other)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				other.nothing()
				time.Sleep(2 * time.Second)
				m := want[protocol.Leased](other)
				switch {
				case m.Lease.Revision != held.Revision+2 || m.Lease.Term != held.Term: // the holder has been idle
					t.Errorf("%+v after %+v", m.Lease, held)
				case tt.grant == "" && m.Lease.State != protocol.LeaseFree,
					tt.grant != "" && (m.Lease.Holder != alice || m.Lease.GrantID != tt.grant):
					t.Errorf("%+v", m)
				}
				other.nothing()
			})
		})
	}
}

// TestRevokedController: the lease is free at once, without grace, and whatever
// waits is refused.
func TestRevokedController(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v, other := r.attach(t, nil), r.attach(t, nil)
		if err := other.AddGrant(grantOf(bob, "gr_b", time.Hour), 0); err != nil {
			t.Fatal(err)
		}
		term := v.propose(alice).Lease.Term
		want[protocol.Leased](other)
		r.dev.setRoom(3)
		v.typed(term, 1, "rm -rf /\r")
		r.host.RevokeGrants("gr_2")
		other.nothing()
		r.host.RevokeGrants("gr_1")
		if m := want[protocol.Leased](other); m.Lease.State != protocol.LeaseFree || m.Lease.Term != term {
			t.Errorf("%+v", m)
		}
		if err := v.over(); !errors.Is(err, arbiter.ErrNoGrant) {
			t.Error(err)
		}
		r.dev.setRoom(100)
		other.typed(term, 2, "\r")
		other.wantRefused(2, protocol.RefusedNotController)
		if got := r.dev.take(); got != "rm " {
			t.Errorf("wrote %q", got)
		}
		if err := other.AddGrant(grantOf(alice, "gr_1", time.Hour, protocol.CapControl), 0); protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Error(err)
		}
	})
}

// TestRevokedByList: a newer list does the same as RevokeGrants.
func TestRevokedByList(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		v.propose(alice)
		r.host.config.Revoked.Apply(&jws.Revocations{Number: 1, Subjects: []jws.RevokedSubject{{Subject: alice, Before: time.Now().Unix() + 1}}})
		if err := v.over(); !errors.Is(err, arbiter.ErrNoGrant) {
			t.Error(err)
		}
		if l := r.attach(t, nil).opened.Lease; l.State != protocol.LeaseFree {
			t.Errorf("%+v", l)
		}
	})
}

// A leaseLog is told of changes of leases.
type leaseLog func(protocol.SessionID, protocol.PTYID, protocol.Lease)

func (f leaseLog) Lease(s protocol.SessionID, id protocol.PTYID, l protocol.Lease, _ string) {
	f(s, id, l)
}

// TestLeaseLog: somebody is told of every change in its order, and a slow one
// holds nothing up.
func TestLeaseLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []protocol.Lease
		slow := make(chan struct{})
		h := newFakeHost(t, func(c *Config) {
			c.Leases = leaseLog(func(s protocol.SessionID, id protocol.PTYID, l protocol.Lease) {
				if s != session || id != "pty_1" {
					t.Errorf("%s %s", s, id)
				}
				<-slow
				mu.Lock()
				defer mu.Unlock()
				told = append(told, l)
			})
		})
		h.create(t, "pty_1")
		term, err := h.Get(session, "pty_1")
		if err != nil {
			t.Fatal(err)
		}
		v := attach(t, term, nil)
		v.propose(alice)
		v.sockets(alice, 0)
		time.Sleep(protocol.ControlGrace)
		synctest.Wait()
		want[protocol.Leased](v)
		want[protocol.Leased](v)
		v.propose(bob)
		if _, err := h.StartAgent(t.Context(), session, "pty_1", op.AgentStart{Name: robot, Command: "exec robot"}); err != nil {
			t.Fatal(err)
		}
		h.RevokeGrants("gr_1")
		h.launched[1].quit(0)
		const changes = 6
		if len(told) != 0 {
			t.Fatalf("%+v", told)
		}
		slow <- struct{}{}
		close(slow)
		synctest.Wait()
		holders := []protocol.UserID{alice, alice, "", bob, protocol.AgentHolder, ""}
		if len(told) != changes {
			t.Fatalf("%d changes: %+v", len(told), told)
		}
		for i, l := range told {
			if l.Revision != uint64(i+1) || l.Holder != holders[i] {
				t.Errorf("change %d: %+v", i, l)
			}
		}
	})
}

// TestLeaseChangesAreBounded: what is too much is lost and counted.
func TestLeaseChangesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, n := make(chan struct{}), 0
		c := newLeaseChanges(leaseLog(func(protocol.SessionID, protocol.PTYID, protocol.Lease) { <-slow; n++ }), newFakeHost(t).log)
		c.note(session, "pty_1", protocol.Lease{})
		synctest.Wait()
		for range maxLeaseChanges + 3 {
			c.note(session, "pty_1", protocol.Lease{})
		}
		close(slow)
		c.end()
		if n != maxLeaseChanges+1 || c.lost != 3 {
			t.Errorf("told of %d, lost %d", n, c.lost)
		}
	})
}
