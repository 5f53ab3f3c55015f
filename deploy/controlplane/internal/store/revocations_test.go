package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

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
			must(t, s.AddGrant(t.Context(), grant(fmt.Sprint("gr_", i), "usr_alice", "ses_1", at)))
		}
		if grants, err := s.Grants(t.Context(), GrantFilter{}); err != nil || len(grants) != 2 || grants[0].ID != "gr_2" {
			t.Errorf("%+v, %v; want the last two", grants, err)
		}
	})
}

// TestAddGrant: a grant rests on what its user is when it is stored.
func TestAddGrant(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		g := grant("gr_1", "usr_bob", "ses_1", c.Now())
		g.Role, g.MemberCapabilities = RoleEditor, "view control"
		must(t, s.AddGrant(t.Context(), g))
		g.ID = "gr_2"
		must(t, s.SetMember(t.Context(), "dash_1", "usr_bob", RoleEditor, "view"))
		wantKind(t, s.AddGrant(t.Context(), g), protocol.KindConflict)
		g.MemberCapabilities = "view"
		must(t, s.SetMember(t.Context(), "dash_1", "usr_bob", RoleViewer, "view"))
		wantKind(t, s.AddGrant(t.Context(), g), protocol.KindConflict)
		g.Role = ""
		must(t, s.AddGrant(t.Context(), g))
		g.ID = "gr_3"
		must(t, s.RemoveMember(t.Context(), "dash_1", "usr_bob"))
		wantKind(t, s.AddGrant(t.Context(), g), protocol.KindNotFound)
		must(t, s.EndSession(t.Context(), "ses_1"))
		wantKind(t, s.AddGrant(t.Context(), grant("gr_4", "usr_alice", "ses_1", c.Now())), protocol.KindEnded)
		want := grant("gr_1", "usr_bob", "ses_1", c.Now())
		want.Dashboard, want.Sandbox = "dash_1", "sb_1"
		if got, err := s.Grant(t.Context(), "gr_1"); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
		_, err := s.Grant(t.Context(), "gr_4")
		wantKind(t, err, protocol.KindNotFound)
	})
}

func TestGrantFilter(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		must(t, s.AddGrant(t.Context(), grant("gr_1", "usr_alice", "ses_1", c.Now())))
		c.Advance(time.Minute)
		must(t, s.AddGrant(t.Context(), grant("gr_2", "usr_alice", "ses_2", c.Now())))
		must(t, s.AddGrant(t.Context(), grant("gr_3", "usr_bob", "ses_2", c.Now())))
		must(t, s.RevokeGrant(t.Context(), "gr_3", c.Now()))
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
			grants, err := s.Grants(t.Context(), tt.filter)
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
	n, err := s.RevocationNumber(t.Context())
	must(t, err)
	return n
}

func TestRevokeGrant(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		if list, err := s.Revocations(t.Context(), c.Now()); err != nil || list.Number != 0 || list.Grants != nil {
			t.Errorf("%+v, %v", list, err)
		}
		wantKind(t, s.RevokeGrant(t.Context(), "gr_1", c.Now()), protocol.KindNotFound)
		for i := range 4 {
			must(t, s.AddGrant(t.Context(), grant(fmt.Sprint("gr_", i), "usr_alice", "ses_1", c.Now())))
		}
		before := number(t, s)
		for _, err := range parallel(10, func(i int) error {
			return s.RevokeGrant(t.Context(), protocol.GrantID(fmt.Sprint("gr_", i%2)), c.Now())
		}) {
			must(t, err)
		}
		// The number is of our time, and each entry counts once.
		if n := number(t, s); before != 0 || n != uint64(epoch.Unix())+1 {
			t.Errorf("number %d, then %d", before, n)
		}
		expires := epoch.Add(protocol.MaxGrantTTL).Unix()
		want := []jws.RevokedGrant{{ID: "gr_0", ExpiresAt: expires}, {ID: "gr_1", ExpiresAt: expires}}
		c.Advance(protocol.MaxGrantTTL + protocol.ClockSkew) // clocks may be behind
		if list, err := s.Revocations(t.Context(), c.Now()); err != nil || !slices.Equal(list.Grants, want) {
			t.Errorf("%+v, %v", list, err)
		}
		if grants, err := s.RevokedGrants(t.Context(), c.Now()); err != nil || len(grants) != 2 || grants[0].Sandbox != "sb_1" ||
			!grants[0].RevokedAt.Equal(epoch) {
			t.Errorf("%+v, %v", grants, err)
		}
		n := number(t, s)
		c.Advance(2 * time.Second)
		must(t, s.RevokeGrant(t.Context(), "gr_2", c.Now())) // it has expired
		list, err := s.Revocations(t.Context(), c.Now())
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
			must(t, s.AddGrant(t.Context(), g))
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
		ids, err := s.RevokeGrantsOf(t.Context(), "usr_alice", "dash_1", c.Now())
		if err != nil || !slices.Equal(ids, []protocol.GrantID{"gr_old", "gr_recent"}) {
			t.Errorf("%v, %v", ids, err)
		}
		c.Advance(100 * time.Millisecond)
		after := add("gr_after", "usr_alice", "ses_1") // in the same second
		unknown := jws.Grant{ID: "gr_x", Subject: "usr_alice", Dashboard: "dash_1", IssuedAt: c.Now().Unix() - 1}

		check := func(void, valid []jws.Grant) {
			t.Helper()
			list, err := s.Revocations(t.Context(), c.Now())
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
		ids, err = s.RevokeGrantsOf(t.Context(), "usr_alice", "", c.Now())
		if err != nil || !slices.Equal(ids, []protocol.GrantID{"gr_after", "gr_elsewhere"}) {
			t.Errorf("%v, %v", ids, err)
		}
		check([]jws.Grant{old, recent, unknown, elsewhere, after}, []jws.Grant{other})
		if number(t, s) <= n {
			t.Error("the number didn't rise")
		}
		c.Advance(protocol.MaxGrantTTL + protocol.ClockSkew + 3*time.Second)
		if list, err := s.Revocations(t.Context(), c.Now()); err != nil || len(list.Subjects)+len(list.Grants) != 0 {
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
				if err := s.RemoveMember(t.Context(), "dash_1", "usr_bob"); err != nil {
					return err
				}
				_, err := s.RevokeGrantsOf(t.Context(), "usr_bob", "dash_1", c.Now())
				return err
			}
			err := s.AddGrant(t.Context(), grant(fmt.Sprint("gr_", i), "usr_bob", "ses_1", c.Now()))
			stored[i] = err == nil
			if protocol.KindOf(err) == protocol.KindNotFound && err != nil {
				err = nil
			}
			return err
		})
		for _, err := range errs {
			must(t, err)
		}
		list, err := s.Revocations(t.Context(), c.Now())
		must(t, err)
		for i, was := range stored {
			g := jws.Grant{ID: protocol.GrantID(fmt.Sprint("gr_", i)), Subject: "usr_bob", Dashboard: "dash_1", IssuedAt: c.Now().Unix()}
			if was != list.Revokes(&g) {
				t.Errorf("%s was stored: %v, is void: %v", g.ID, was, !was)
			}
		}
	})
}

// TestFullList: whoever revokes grant by grant ends with all revoked.
func TestFullList(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		must(t, s.AddGrant(t.Context(), grant("gr_1", "usr_alice", "ses_1", c.Now())))
		must(t, s.AddGrant(t.Context(), grant("gr_2", "usr_alice", "ses_2", c.Now())))
		var filler []void
		for i := range maxVoidGrants {
			filler = append(filler, void{kind: voidGrant, id: fmt.Sprint("f", i), expires: epoch.Unix() + 600})
		}
		must(t, s.transact(t.Context(), func(tx runner) error {
			for part := range slices.Chunk(filler, 200) {
				query, args := `INSERT INTO revocations (kind, id, dashboard_id, before, expires_at) VALUES `, []any(nil)
				for i, v := range part {
					if i > 0 {
						query += `, `
					}
					query, args = query+`(?, ?, ?, ?, ?)`, append(args, v.kind, v.id, v.dashboard, v.before, v.expires)
				}
				if _, err := tx.exec(t.Context(), query, args...); err != nil {
					return err
				}
			}
			return nil
		}))
		must(t, s.RevokeGrant(t.Context(), "gr_1", c.Now()))
		list, err := s.Revocations(t.Context(), c.Now())
		if err != nil || len(list.Subjects) != 1 || list.Subjects[0].Subject != "usr_alice" {
			t.Errorf("%+v, %v", list.Subjects, err)
		}
	})
}
