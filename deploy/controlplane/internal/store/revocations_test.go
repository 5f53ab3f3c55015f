package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

func grant(id string, user protocol.UserID, session protocol.SessionID, at time.Time) Grant {
	return Grant{
		ID: protocol.GrantID(id), User: user, Session: session, Capabilities: "view",
		IssuedAt: at.Truncate(time.Second), ExpiresAt: at.Truncate(time.Second).Add(protocol.MaxGrantTTL),
	}
}

func TestOldGrantsAreForgotten(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		for i := range 3 {
			at := epoch.Add(time.Duration(i) * 24 * time.Hour)
			must(t, s.Grants.AddGrant(t.Context(), grant(fmt.Sprint("gr_", i), "usr_alice", "ses_1", at)))
		}
		if grants, err := s.Grants.List(t.Context(), GrantFilter{}); err != nil || len(grants) != 2 || grants[0].ID != "gr_2" {
			t.Errorf("%+v, %v; want the last two", grants, err)
		}
	})
}

// TestAddGrant: a grant rests on what its user is when it is stored.
func TestAddGrant(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		g := grant("gr_1", "usr_bob", "ses_1", c.Now())
		g.Role, g.MemberCapabilities = RoleEditor, "view control"
		must(t, s.Grants.AddGrant(t.Context(), g))
		g.ID = "gr_2"
		must(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_bob", RoleEditor, "view"))
		wantKind(t, s.Grants.AddGrant(t.Context(), g), protocol.KindConflict)
		g.MemberCapabilities = "view"
		must(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_bob", RoleViewer, "view"))
		wantKind(t, s.Grants.AddGrant(t.Context(), g), protocol.KindConflict)
		g.Role = ""
		must(t, s.Grants.AddGrant(t.Context(), g))
		g.ID = "gr_3"
		must(t, s.Boards.RemoveMember(t.Context(), "dash_1", "usr_bob"))
		wantKind(t, s.Grants.AddGrant(t.Context(), g), protocol.KindNotFound)
		must(t, s.Sessions.EndSession(t.Context(), "ses_1"))
		wantKind(t, s.Grants.AddGrant(t.Context(), grant("gr_4", "usr_alice", "ses_1", c.Now())), protocol.KindEnded)
		want := grant("gr_1", "usr_bob", "ses_1", c.Now())
		want.Dashboard, want.Sandbox = "dash_1", "sb_1"
		if got, err := s.Grants.Grant(t.Context(), "gr_1"); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		_, err := s.Grants.Grant(t.Context(), "gr_4")
		wantKind(t, err, protocol.KindNotFound)
	})
}

func TestGrantFilter(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		must(t, s.Grants.AddGrant(t.Context(), grant("gr_1", "usr_alice", "ses_1", c.Now())))
		c.Advance(time.Minute)
		must(t, s.Grants.AddGrant(t.Context(), grant("gr_2", "usr_alice", "ses_2", c.Now())))
		must(t, s.Grants.AddGrant(t.Context(), grant("gr_3", "usr_bob", "ses_2", c.Now())))
		must(t, s.Grants.RevokeGrant(t.Context(), "gr_3", c.Now()))
		c.Advance(protocol.MaxGrantTTL - time.Second)
		for _, tt := range []struct {
			filter GrantFilter
			want   string
		}{
			{GrantFilter{}, "[gr_3 gr_2 gr_1]"},
			{GrantFilter{Limit: 1}, "[gr_3]"},
			{GrantFilter{User: "usr_alice"}, "[gr_2 gr_1]"},
			{GrantFilter{Session: "ses_2"}, "[gr_3 gr_2]"},
			{GrantFilter{Dashboard: "dash_1"}, "[gr_1]"},
			{GrantFilter{Live: c.Now()}, "[gr_2]"},
			{GrantFilter{User: "usr_alice", Dashboard: "dash_1", Live: c.Now()}, "[]"},
		} {
			grants, err := s.Grants.List(t.Context(), tt.filter)
			ids := make([]protocol.GrantID, 0)
			for _, g := range grants {
				ids = append(ids, g.ID)
			}
			if err != nil || fmt.Sprint(ids) != tt.want {
				t.Errorf("%+v: %v, %v; want %s", tt.filter, ids, err, tt.want)
			}
		}
	})
}

func number(t *testing.T, s *Store) uint64 {
	t.Helper()
	n, err := s.Grants.RevocationNumber(t.Context())
	must(t, err)
	return n
}

func TestRevokeGrant(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		if list, err := s.Grants.Revocations(t.Context(), c.Now()); err != nil || list.Number != 0 || list.Grants != nil {
			t.Errorf("%+v, %v", list, err)
		}
		wantKind(t, s.Grants.RevokeGrant(t.Context(), "gr_1", c.Now()), protocol.KindNotFound)
		for i := range 4 {
			must(t, s.Grants.AddGrant(t.Context(), grant(fmt.Sprint("gr_", i), "usr_alice", "ses_1", c.Now())))
		}
		before := number(t, s)
		for _, err := range parallel(10, func(i int) error {
			return s.Grants.RevokeGrant(t.Context(), protocol.GrantID(fmt.Sprint("gr_", i%2)), c.Now())
		}) {
			must(t, err)
		}
		// The number is of our time, and each entry counts once.
		if n := number(t, s); before != 0 || n != uint64(epoch.Unix())+1 {
			t.Errorf("number %d, then %d", before, n)
		}
		expires := epoch.Add(protocol.MaxGrantTTL).Unix()
		want := []jws.RevokedGrant{{ID: "gr_0", ExpiresAt: expires}, {ID: "gr_1", ExpiresAt: expires}}
		c.Advance(protocol.MaxGrantTTL + 2*protocol.ClockSkew) // clocks may be behind
		if list, err := s.Grants.Revocations(t.Context(), c.Now()); err != nil || !slices.Equal(list.Grants, want) {
			t.Errorf("%+v, %v", list, err)
		}
		if grants, err := s.Grants.RevokedGrants(t.Context(), c.Now()); err != nil || len(grants) != 2 || grants[0].Sandbox != "sb_1" ||
			!grants[0].RevokedAt.Equal(epoch) {
			t.Errorf("%+v, %v", grants, err)
		}
		n := number(t, s)
		c.Advance(2 * time.Second)
		must(t, s.Grants.RevokeGrant(t.Context(), "gr_2", c.Now())) // it has expired
		list, err := s.Grants.Revocations(t.Context(), c.Now())
		if err != nil || len(list.Grants) != 0 || list.Number != n {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// TestRevokeGrantsOf: what was issued before is void, what comes after isn't.
func TestRevokeGrantsOf(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		add := func(id string, user protocol.UserID, session protocol.SessionID) jws.Grant {
			t.Helper()
			g := grant(id, user, session, c.Now())
			must(t, s.Grants.AddGrant(t.Context(), g))
			return jws.Grant{
				ID: g.ID, Subject: user, Session: session, IssuedAt: g.IssuedAt.Unix(),
				Dashboard: map[protocol.SessionID]string{"ses_1": "dash_1", "ses_2": "dash_2"}[session],
			}
		}
		old := add("gr_old", "usr_alice", "ses_1")
		c.Advance(time.Minute)
		recent := add("gr_recent", "usr_alice", "ses_1")
		elsewhere := add("gr_elsewhere", "usr_alice", "ses_2")
		other := add("gr_other", "usr_bob", "ses_1")
		c.Advance(100 * time.Millisecond)
		ids, err := s.Grants.RevokeGrantsOf(t.Context(), "usr_alice", "dash_1", c.Now())
		if err != nil || !slices.Equal(ids, []protocol.GrantID{"gr_old", "gr_recent"}) {
			t.Errorf("%v, %v", ids, err)
		}
		c.Advance(100 * time.Millisecond)
		after := add("gr_after", "usr_alice", "ses_1") // in the same second
		unknown := jws.Grant{ID: "gr_x", Subject: "usr_alice", Dashboard: "dash_1", IssuedAt: c.Now().Unix() - 1}

		check := func(void, valid []jws.Grant) {
			t.Helper()
			list, err := s.Grants.Revocations(t.Context(), c.Now())
			must(t, err)
			for _, g := range void {
				if !list.Revokes(&g) {
					t.Errorf("%s is still valid", g.ID)
				}
			}
			for _, g := range valid {
				if list.Revokes(&g) {
					t.Errorf("%s is void", g.ID)
				}
			}
		}
		check([]jws.Grant{old, recent, unknown}, []jws.Grant{elsewhere, other, after})
		n := number(t, s)
		c.Advance(time.Second)
		ids, err = s.Grants.RevokeGrantsOf(t.Context(), "usr_alice", "", c.Now())
		if err != nil || !slices.Equal(ids, []protocol.GrantID{"gr_after", "gr_elsewhere"}) {
			t.Errorf("%v, %v", ids, err)
		}
		check([]jws.Grant{old, recent, unknown, elsewhere, after}, []jws.Grant{other})
		if number(t, s) <= n {
			t.Error("the number didn't rise")
		}
		c.Advance(protocol.MaxGrantTTL + 2*protocol.ClockSkew + 3*time.Second)
		if list, err := s.Grants.Revocations(t.Context(), c.Now()); err != nil || len(list.Subjects)+len(list.Grants) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// TestRevokeRace adds grants while all are revoked: none slips through.
func TestRevokeRace(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		stored := make([]bool, 20)
		errs := parallel(len(stored)+1, func(i int) error {
			if i == len(stored) {
				if err := s.Boards.RemoveMember(t.Context(), "dash_1", "usr_bob"); err != nil {
					return err
				}
				_, err := s.Grants.RevokeGrantsOf(t.Context(), "usr_bob", "dash_1", c.Now())
				return err
			}
			err := s.Grants.AddGrant(t.Context(), grant(fmt.Sprint("gr_", i), "usr_bob", "ses_1", c.Now()))
			stored[i] = err == nil
			if protocol.KindOf(err) == protocol.KindNotFound && err != nil {
				err = nil
			}
			return err
		})
		for _, err := range errs {
			must(t, err)
		}
		list, err := s.Grants.Revocations(t.Context(), c.Now())
		must(t, err)
		for i, was := range stored {
			g := jws.Grant{ID: protocol.GrantID(fmt.Sprint("gr_", i)), Subject: "usr_bob", Dashboard: "dash_1", IssuedAt: c.Now().Unix()}
			if was != list.Revokes(&g) {
				t.Errorf("%s was stored: %v, is void: %v", g.ID, was, !was)
			}
		}
	})
}

// TestFound02NoEntryWithoutAGrant: who holds nothing puts nothing on the list,
// and an entry lasts as long as the last grant that it voids.
func TestFound02NoEntryWithoutAGrant(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		revoke := func(user protocol.UserID, dashboard string) jws.Revocations {
			t.Helper()
			_, err := s.Grants.RevokeGrantsOf(t.Context(), user, dashboard, c.Now())
			must(t, err)
			list, err := s.Grants.Revocations(t.Context(), c.Now())
			must(t, err)
			return list
		}
		if list := revoke("usr_alice", "dash_1"); list.Number != 0 || len(list.Subjects) != 0 {
			t.Errorf("without a grant: %+v", list)
		}
		old := grant("gr_1", "usr_alice", "ses_1", c.Now())
		must(t, s.Grants.AddGrant(t.Context(), old))
		c.Advance(time.Minute)
		list := revoke("usr_alice", "dash_1")
		if len(list.Subjects) != 1 || list.Subjects[0].ExpiresAt != old.ExpiresAt.Unix() {
			t.Errorf("%+v, want the end of %+v", list, old)
		}
		if again := revoke("usr_alice", "dash_1"); again.Number != list.Number {
			t.Errorf("what is void already was put there again: %d, was %d", again.Number, list.Number)
		}
		// An entry of the same second may have to last longer.
		must(t, s.db.Transact(t.Context(), func(tx db.Runner) error {
			v := void{voidSubject, "usr_alice", "dash_1", list.Subjects[0].Before, list.Subjects[0].ExpiresAt + 60}
			return addVoids(t.Context(), tx, c.Now(), v, void{voidSubject, "usr_alice", "dash_1", v.before - 9, v.expires - 30})
		}))
		after, err := s.Grants.Revocations(t.Context(), c.Now())
		must(t, err)
		want := list.Subjects[0]
		want.ExpiresAt += 60
		if len(after.Subjects) != 1 || after.Subjects[0] != want || after.Number == list.Number {
			t.Errorf("%+v, want %+v", after, want)
		}
		c.Advance(protocol.MaxGrantTTL + 3*time.Minute)
		must(t, s.Grants.AddGrant(t.Context(), grant("gr_2", "usr_bob", "ses_1", c.Now().Add(-protocol.MaxGrantTTL-2*time.Minute))))
		if list := revoke("usr_bob", "dash_1"); list.Number != after.Number {
			t.Errorf("a grant that has expired: %+v", list)
		}
	})
}

// TestFound10GrantsPerPerson: a person has so many live ones, and nobody else's
// count; what is revoked makes room, but not without end.
func TestFound10GrantsPerPerson(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		n := 0
		add := func(user protocol.UserID) (protocol.GrantID, error) {
			n++
			g := grant(fmt.Sprint("gr_", n), user, "ses_1", c.Now())
			g.Most = 3
			return g.ID, s.Grants.AddGrant(t.Context(), g)
		}
		full := func(user protocol.UserID, until time.Time) {
			t.Helper()
			_, err := add(user)
			wantKind(t, err, protocol.KindTooMany)
			if full, ok := errors.AsType[*FullError](err); !ok || !full.Until.Equal(until) {
				t.Errorf("%v: %+v, want until %v", err, full, until)
			}
		}
		first, err := add("usr_alice")
		must(t, err)
		c.Advance(time.Minute)
		for range 2 {
			_, err := add("usr_alice")
			must(t, err)
		}
		end := epoch.Truncate(time.Second).Add(protocol.MaxGrantTTL)
		full("usr_alice", end)
		_, err = add("usr_bob")
		must(t, err)
		if number(t, s) != 0 {
			t.Error("something was voided")
		}
		c.Advance(protocol.MaxGrantTTL - time.Minute) // the first one has expired
		last, err := add("usr_alice")
		must(t, err)
		full("usr_alice", end.Add(time.Minute))
		wantKind(t, s.Grants.RevokeGrant(t.Context(), "gr_none", c.Now()), protocol.KindNotFound)
		made := 3 // that haven't expired
		for ; err == nil; made++ {
			must(t, s.Grants.RevokeGrant(t.Context(), last, c.Now()))
			last, err = add("usr_alice")
		}
		wantKind(t, err, protocol.KindTooMany)
		if made-1 != 3*revokedPerLive {
			t.Errorf("%d grants in one life", made-1)
		}
		if g, err := s.Grants.Grant(t.Context(), first); err != nil || !g.RevokedAt.IsZero() {
			t.Errorf("%+v, %v", g, err)
		}
	})
}
