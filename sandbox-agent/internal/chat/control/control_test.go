package control

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
)

func grant(user protocol.UserID, id string, life time.Duration, caps ...protocol.Capability) *jws.Grant {
	return &jws.Grant{
		Subject: user, Session: session, ID: protocol.GrantID(id), Caps: append(caps, protocol.CapView),
		IssuedAt: time.Now().Unix(), ExpiresAt: time.Now().Add(life).Unix(),
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTake: the first sender takes a free lease, and has it for as long as the
// sender has sockets, and the grace beyond.
func TestTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(session, nil)
		s := r.Enter()
		must(t, r.AddGrant(s, grant(alice, "gr_a", time.Hour, protocol.CapChat), 0, time.Now()))
		r.Holder(s, protocol.Holder{User: alice, Sockets: 1}, time.Now())
		if changed, err := r.Take(alice, "gr_x", time.Now()); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if l := r.Lease(time.Now()); l.Holder != alice || l.GrantID != "gr_a" || l.State != protocol.LeaseHeld {
			t.Errorf("%+v", l)
		}
		if _, err := r.Take(bob, "gr_b", time.Now()); protocol.KindOf(err) != protocol.KindForbidden || r.May(bob, time.Now()) {
			t.Error(err)
		}
		if !r.Leave(s, time.Now()) || r.Lease(time.Now()).State != protocol.LeaseGrace || r.Empty() {
			t.Errorf("%+v", r.Lease(time.Now()))
		}
		if _, next := r.Tick(time.Now()); next > protocol.ControlGrace {
			t.Error(next)
		}
		time.Sleep(protocol.ControlGrace)
		if !r.May(bob, time.Now()) {
			t.Error("the grace is over")
		}
		if changed, _ := r.Tick(time.Now()); !changed || !r.Empty() {
			t.Errorf("%+v", r.Lease(time.Now()))
		}
	})
}

// TestAbort: the holder and the owner may stop a run, and anybody while nobody has
// control.
func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(session, nil)
		s := r.Enter()
		if !r.MayAbort(bob, time.Now()) {
			t.Error("nobody has control")
		}
		_, err := r.Take(alice, "gr_a", time.Now())
		must(t, err)
		must(t, r.AddGrant(s, grant(bob, "gr_b", time.Hour, protocol.CapChat), 0, time.Now()))
		if r.MayAbort(bob, time.Now()) || !r.MayAbort(alice, time.Now()) {
			t.Error("only alice has control")
		}
		must(t, r.AddGrant(s, grant(bob, "gr_c", time.Hour, protocol.CapChat, protocol.CapAdmin), 0, time.Now()))
		if !r.MayAbort(bob, time.Now()) {
			t.Error("bob owns the session")
		}
	})
}

// TestGrants: the lease ends with the grant, unless it is renewed; a stream without
// a grant ends; what is revoked ends at once.
func TestGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revoked := jws.NewRevocationSet()
		r := New(session, revoked)
		s := r.Enter()
		must(t, r.AddGrant(s, grant(alice, "gr_1", time.Minute, protocol.CapChat), 7, time.Now()))
		if changed, err := r.Propose(s, protocol.LeaseProposal{Next: protocol.LeaseNext{Holder: alice, GrantID: "gr_1"}}, time.Now()); err != nil || !changed {
			t.Fatal(changed, err)
		}
		for _, bad := range []protocol.LeaseNext{
			{Holder: bob, GrantID: "gr_1"}, {Holder: alice, GrantID: "gr_9"}, {Holder: alice, GrantID: "gr_1", Reason: protocol.ReasonOwner},
		} {
			p := protocol.LeaseProposal{ExpectRevision: r.Lease(time.Now()).Revision, Next: bad}
			if _, err := r.Propose(s, p, time.Now()); protocol.KindOf(err) != protocol.KindForbidden {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		must(t, r.AddGrant(s, grant(alice, "gr_2", 2*time.Minute, protocol.CapChat), 8, time.Now()))
		time.Sleep(time.Minute + jws.Skew + time.Second)
		r.Tick(time.Now())
		if l := r.Lease(time.Now()); l.Holder != alice || l.GrantID != "gr_2" {
			t.Errorf("%+v", l)
		}
		revoked.Add("gr_2")
		dropped, changed := r.DropRevoked(time.Now())
		if len(dropped) != 1 || dropped[0].Handle != 8 || !changed || r.Lease(time.Now()).Holder != "" || !s.Muted() {
			t.Errorf("%+v %t %+v", dropped, changed, r.Lease(time.Now()))
		}
		r.Tick(time.Now())
		if s.Over() {
			t.Error("its relay may present another grant")
		}
		time.Sleep(2 * time.Second)
		if r.Tick(time.Now()); !s.Over() {
			t.Error("no grant remains")
		}
		for name, g := range map[string]*jws.Grant{
			"revoked": grant(alice, "gr_2", time.Hour), "expired": grant(alice, "gr_3", -time.Hour), "no view": {Subject: alice, Session: session, ID: "gr_4"},
		} {
			if err := r.AddGrant(r.Enter(), g, 0, time.Now()); err == nil {
				t.Errorf("%s: taken", name)
			}
		}
	})
}

// TestModel: whatever happens, a revision never falls, a new holder has a new term,
// and who holds the lease by a stream had a grant for it there.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Unix(1_000_000_000, 0)
		r := New(session, nil)
		seats := []*Seat{r.Enter(), r.Enter()}
		users := []protocol.UserID{alice, bob}
		may := map[protocol.UserID]bool{}
		before := r.Lease(now)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			s, user := rapid.SampledFrom(seats).Draw(rt, "seat"), rapid.SampledFrom(users).Draw(rt, "user")
			id := protocol.GrantID("gr_" + user)
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0:
				g := &jws.Grant{
					Subject: user, Session: session, ID: id, Caps: []protocol.Capability{protocol.CapView, protocol.CapChat},
					ExpiresAt: now.Add(time.Duration(rapid.IntRange(1, 600).Draw(rt, "life")) * time.Second).Unix(),
				}
				if r.AddGrant(s, g, 0, now) == nil {
					may[user] = true
				}
			case 1:
				r.DropGrant(s, id, now)
			case 2:
				p := protocol.LeaseProposal{ExpectRevision: r.Lease(now).Revision, Next: protocol.LeaseNext{Holder: user, GrantID: id}}
				if _, err := r.Propose(s, p, now); err == nil && !may[user] {
					rt.Fatalf("%s holds the lease without a grant", user)
				}
			case 3:
				free := r.May(user, now)
				_, err := r.Take(user, id, now)
				if (err == nil) != free {
					rt.Fatalf("may: %t, takes: %v", free, err)
				}
			case 4:
				r.Holder(s, protocol.Holder{User: user, Sockets: rapid.IntRange(0, 2).Draw(rt, "sockets")}, now)
			case 5:
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(rt, "ms")) * time.Millisecond)
				if _, next := r.Tick(now); next <= 0 {
					rt.Fatalf("due again after %v", next)
				}
			case 6:
				r.Typed(now)
			}
			after := r.Lease(now)
			if after.Revision < before.Revision || after.Term < before.Term || after.Holder != "" && after.Holder != before.Holder && after.Term == before.Term {
				rt.Fatalf("%+v became %+v", before, after)
			}
			before = after
		}
	})
}
