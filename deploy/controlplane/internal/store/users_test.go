package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func TestUsers(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		carol := User{"usr_carol", "Carol", "carol@fairlead.example"}
		must(t, s.People.AddUser(t.Context(), carol))
		wantKind(t, s.People.AddUser(t.Context(), carol), protocol.KindConflict)
		for _, u := range []User{{}, {ID: "a b", Name: "A"}, {ID: "usr_x"}, {ID: "agent", Name: "The agent"}} {
			wantKind(t, s.People.AddUser(t.Context(), u), protocol.KindInvalid)
		}
		for _, email := range []string{"notmail", "a@", "@b", "A <a@b.example>", "a@b.example, c@d.example", " a@b.example"} {
			wantKind(t, s.People.AddUser(t.Context(), User{"usr_x", "X", email}), protocol.KindInvalid)
		}
		wantKind(t, s.People.AddUser(t.Context(), User{"usr_x", "X", "CAROL@Fairlead.example"}), protocol.KindConflict)
		if got, err := s.People.User(t.Context(), "usr_carol"); err != nil || got != carol {
			t.Errorf("%+v, %v", got, err)
		}
		page, err := s.People.Users(t.Context(), "usr_alice", 1)
		if err != nil || len(page) != 1 || page[0].ID != "usr_bob" {
			t.Errorf("%+v, %v", page, err)
		}
		all, err := s.People.Users(t.Context(), "", 0)
		if err != nil || len(all) != 3 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestRemoveUser: who was removed has no token and no dashboard, and never comes
// back as another.
func TestRemoveUser(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		_, err := s.Commands.AddCommand(t.Context(), command("k", "a")) // refers to alice for ever
		must(t, err)
		must(t, s.People.AddToken(t.Context(), "usr_alice", "another-token-of-alice", "", time.Time{}))
		if ownerless, err := s.People.RemoveUser(t.Context(), "usr_alice"); err != nil || !slices.Equal(ownerless, []string{"dash_1"}) {
			t.Errorf("without an owner: %q, %v", ownerless, err)
		}
		_, err = s.People.RemoveUser(t.Context(), "usr_alice")
		wantKind(t, err, protocol.KindNotFound)
		must(t, s.People.KnownUser(t.Context(), "usr_alice"))
		wantKind(t, s.People.KnownUser(t.Context(), "usr_nobody"), protocol.KindNotFound)
		for _, token := range []string{aliceToken, "another-token-of-alice"} {
			_, err := s.People.UserByToken(t.Context(), token)
			wantKind(t, err, protocol.KindUnauthenticated)
		}
		_, err = s.Sessions.Session(t.Context(), "usr_alice", "ses_1")
		wantKind(t, err, protocol.KindNotFound)
		_, err = s.People.User(t.Context(), "usr_alice")
		wantKind(t, err, protocol.KindNotFound)
		wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_alice", Name: "Mallory"}), protocol.KindConflict)
		wantKind(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_alice", RoleOwner, ""), protocol.KindNotFound)
		if users, err := s.People.Users(t.Context(), "", 0); err != nil || len(users) != 1 {
			t.Errorf("%+v, %v", users, err)
		}
	})
}

func TestTokens(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		if u, err := s.People.UserByToken(t.Context(), aliceToken); err != nil || u.ID != "usr_alice" || u.Name != "Alice" {
			t.Errorf("%v, %v", u, err)
		}
		for _, token := range []string{"", "x", relayToken, aliceToken + "x", aliceToken[1:]} {
			_, err := s.People.UserByToken(t.Context(), token)
			wantKind(t, err, protocol.KindUnauthenticated)
		}
		const short = "a-token-of-one-minute"
		must(t, s.People.AddToken(t.Context(), "usr_bob", short, "laptop", c.Now().Add(time.Minute)))
		wantKind(t, s.People.AddToken(t.Context(), "usr_alice", short, "", time.Time{}), protocol.KindConflict)
		wantKind(t, s.People.AddToken(t.Context(), "usr_bob", "tiny", "", time.Time{}), protocol.KindInvalid)
		wantKind(t, s.People.AddToken(t.Context(), "usr_x", "a-token-of-nobody", "", time.Time{}), protocol.KindNotFound)
		c.Advance(time.Minute - time.Millisecond)
		if u, err := s.People.UserByToken(t.Context(), short); err != nil || u.ID != "usr_bob" {
			t.Errorf("%v, %v", u, err)
		}
		c.Advance(time.Millisecond)
		_, err := s.People.UserByToken(t.Context(), short)
		wantKind(t, err, protocol.KindUnauthenticated)

		must(t, s.People.RemoveToken(t.Context(), aliceToken))
		must(t, s.People.RemoveToken(t.Context(), aliceToken))
		_, err = s.People.UserByToken(t.Context(), aliceToken)
		wantKind(t, err, protocol.KindUnauthenticated)
	})
}

func TestTooManyTokens(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		add := func(i int) error {
			return s.People.AddToken(t.Context(), "usr_bob", fmt.Sprintf("token-number-%06d", i), "", c.Now().Add(time.Minute))
		}
		for i := range maxTokens - 1 { // and that of the seed
			must(t, add(i))
		}
		wantKind(t, add(maxTokens), protocol.KindTooMany)
		c.Advance(time.Minute)
		must(t, add(maxTokens)) // the others are forgotten
	})
}

// TestNewToken: a seed with a new token takes the old one away.
func TestNewToken(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must(t, s.People.AddToken(t.Context(), "usr_alice", "a-token-of-her-own", "cli", time.Time{}))
		must(t, s.Load(t.Context(), &Seed{Users: []SeedUser{{"usr_alice", "Alice", "another-token-of-alice"}}}))
		_, err := s.People.UserByToken(t.Context(), aliceToken)
		wantKind(t, err, protocol.KindUnauthenticated)
		for _, token := range []string{"another-token-of-alice", "a-token-of-her-own"} {
			if u, err := s.People.UserByToken(t.Context(), token); err != nil || u.ID != "usr_alice" {
				t.Errorf("%v, %v", u, err)
			}
		}
	})
}

const issuer = "https://accounts.fairlead.example"

// TestIdentity: of many first sign-ins of one person, one user comes.
func TestIdentity(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		_, err := s.People.UserByIdentity(t.Context(), issuer, "s1")
		wantKind(t, err, protocol.KindNotFound)
		ids := make([]protocol.UserID, 20)
		for _, err := range parallel(len(ids), func(i int) error {
			u, err := s.People.LinkIdentity(t.Context(), issuer, "s1", User{ID: protocol.NewUserID(), Name: "Carol"})
			ids[i] = u.ID
			return err
		}) {
			must(t, err)
		}
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("two users: %s and %s", id, ids[0])
			}
		}
		if users, err := s.People.Users(t.Context(), "", 0); err != nil || len(users) != 3 {
			t.Errorf("%v, %v", users, err)
		}
		if u, err := s.People.UserByIdentity(t.Context(), issuer, "s1"); err != nil || u.ID != ids[0] {
			t.Errorf("%v, %v", u, err)
		}
		_, err = s.People.UserByIdentity(t.Context(), issuer+"/other", "s1")
		wantKind(t, err, protocol.KindNotFound)

		// Who was removed stays out, and doesn't become somebody new.
		_, err = s.People.RemoveUser(t.Context(), ids[0])
		must(t, err)
		_, err = s.People.UserByIdentity(t.Context(), issuer, "s1")
		wantKind(t, err, protocol.KindForbidden)
		_, err = s.People.LinkIdentity(t.Context(), issuer, "s1", User{ID: "usr_again", Name: "Carol"})
		wantKind(t, err, protocol.KindForbidden)
	})
}

func TestInvitedUser(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		carol := User{"usr_carol", "Carol", "Carol@fairlead.example"}
		must(t, s.People.AddUser(t.Context(), carol))
		for _, email := range []string{"", "dave@fairlead.example"} {
			_, err := s.People.InvitedUser(t.Context(), email)
			wantKind(t, err, protocol.KindNotFound)
		}
		if u, err := s.People.InvitedUser(t.Context(), "carol@Fairlead.example"); err != nil || u != carol {
			t.Errorf("%v, %v", u, err)
		}
		if u, err := s.People.LinkIdentity(t.Context(), issuer, "s1", carol); err != nil || u != carol {
			t.Errorf("%v, %v", u, err)
		}
		_, err := s.People.InvitedUser(t.Context(), "carol@fairlead.example") // that was her
		wantKind(t, err, protocol.KindNotFound)
		_, err = s.People.LinkIdentity(t.Context(), issuer, "s2", carol)
		wantKind(t, err, protocol.KindConflict)
		must(t, s.People.AddUser(t.Context(), User{"usr_d1", "D", "d@fairlead.example"}))
		must(t, s.People.AddUser(t.Context(), User{"usr_d2", "D", "dd@fairlead.example"}))
		_, err = s.db.Exec(t.Context(), `UPDATE users SET email = 'D@fairlead.example' WHERE id = 'usr_d2'`) // as older builds allowed
		must(t, err)
		_, err = s.People.InvitedUser(t.Context(), "d@fairlead.example") // which of them?
		wantKind(t, err, protocol.KindNotFound)
	})
}
