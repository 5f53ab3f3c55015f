package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

func account(id string, user protocol.UserID, provider, name string) Account {
	return Account{ID: id, User: user, Provider: provider, Name: name, Scopes: "a b", KeyID: "k1", Sealed: []byte{1, 0, 255}}
}

func TestAccounts(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		a, err := s.Integrations.PutAccount(t.Context(), account("acc_1", "usr_alice", "github", "octo"))
		must(t, err)
		if a.Version != 1 || !a.CreatedAt.Equal(epoch) || !a.FailedAt.IsZero() {
			t.Errorf("%+v", a)
		}
		_, err = s.Integrations.PutAccount(t.Context(), account("acc_2", "usr_alice", "github", "octo"))
		wantKind(t, err, protocol.KindConflict)
		_, err = s.Integrations.PutAccount(t.Context(), account("acc_1", "usr_bob", "github", "octo"))
		wantKind(t, err, protocol.KindConflict)
		_, err = s.Integrations.PutAccount(t.Context(), account("acc_3", "usr_nobody", "github", "octo"))
		wantKind(t, err, protocol.KindNotFound)
		for _, bad := range []Account{account("a b", "usr_alice", "github", "x"), account("acc_4", "usr_alice", "github", ""), account("acc_4", "usr_alice", "github", "a\nb")} {
			_, err = s.Integrations.PutAccount(t.Context(), bad)
			wantKind(t, err, protocol.KindInvalid)
		}
		must(t, s.Integrations.FailAccount(t.Context(), "acc_1", 1))
		if a, err = s.Integrations.Account(t.Context(), "acc_1"); err != nil || a.FailedAt.IsZero() {
			t.Errorf("%+v, %v", a, err)
		}
		c.Advance(time.Second)
		again := account("acc_1", "usr_alice", "github", "octo")
		again.Sealed = []byte{2}
		a, err = s.Integrations.PutAccount(t.Context(), again)
		must(t, err)
		if a.Version != 2 || !a.FailedAt.IsZero() || !a.CreatedAt.Equal(epoch) || !bytes.Equal(a.Sealed, []byte{2}) {
			t.Errorf("%+v", a)
		}
		wantKind(t, s.Integrations.SetTokens(t.Context(), "acc_1", 1, "k2", []byte{3}), protocol.KindConflict)
		wantKind(t, s.Integrations.FailAccount(t.Context(), "acc_1", 1), protocol.KindConflict)
		wantKind(t, s.Integrations.SetTokens(t.Context(), "acc_9", 1, "k2", []byte{3}), protocol.KindNotFound)
		must(t, s.Integrations.SetTokens(t.Context(), "acc_1", 2, "k2", []byte{3}))
		found, err := s.Integrations.FindAccount(t.Context(), "usr_alice", "github", "octo")
		must(t, err)
		if found.KeyID != "k2" || found.Version != 3 || !bytes.Equal(found.Sealed, []byte{3}) {
			t.Errorf("%+v", found)
		}
		_, err = s.Integrations.FindAccount(t.Context(), "usr_bob", "github", "octo")
		wantKind(t, err, protocol.KindNotFound)
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_0", "usr_bob", "github", "octo")))
		all, err := s.Integrations.AllAccounts(t.Context(), "acc_0", 10)
		if err != nil || len(all) != 1 || all[0].ID != "acc_1" {
			t.Errorf("%+v, %v", all, err)
		}
		if own, err := s.Integrations.Accounts(t.Context(), "usr_bob"); err != nil || len(own) != 1 || own[0].ID != "acc_0" {
			t.Errorf("%+v, %v", own, err)
		}
		// A user who goes takes their accounts along.
		must1(t)(s.People.RemoveUser(t.Context(), "usr_bob"))
		_, err = s.Integrations.Account(t.Context(), "acc_0")
		wantKind(t, err, protocol.KindNotFound)
	})
}

// must1 is must for what returns something beside its error.
func must1(t *testing.T) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
}

func TestAccountsBounded(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_0", "usr_alice", "github", "0")))
		must(t, s.db.Concurrently(t.Context(), func(tx db.Runner) error {
			for i := range MaxAccounts - 1 {
				if _, err := tx.Exec(t.Context(), `
					INSERT INTO accounts (id, user_id, provider, name, scopes, key_id, sealed, version, created_at, updated_at)
					SELECT ?, user_id, provider, ?, scopes, key_id, sealed, version, created_at, updated_at FROM accounts WHERE id = 'acc_0'`,
					fmt.Sprintf("acc_%d", i+1), fmt.Sprint(i+1)); err != nil {
					return err
				}
			}
			return nil
		}))
		_, err := s.Integrations.PutAccount(t.Context(), account("acc_x", "usr_alice", "github", "x"))
		wantKind(t, err, protocol.KindTooMany)
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_0", "usr_alice", "github", "0")))
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_x", "usr_bob", "github", "x")))
	})
}

// TestTokensRace: of several that renew tokens of a version one alone does.
func TestTokensRace(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_1", "usr_alice", "github", "octo")))
		won := 0
		for _, err := range parallel(8, func(i int) error {
			return s.Integrations.SetTokens(t.Context(), "acc_1", 1, "k", []byte{byte(i)})
		}) {
			if err == nil {
				won++
				continue
			}
			wantKind(t, err, protocol.KindConflict)
		}
		if won != 1 {
			t.Errorf("%d won", won)
		}
	})
}

func TestConnects(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, c *clock) {
		connect := Connect{
			User: "usr_alice", Provider: "github", Origin: "https://a.example", ReturnTo: "/x", State: "state-1", Browser: "browser-1",
			ExpiresAt: epoch.Add(10 * time.Minute),
		}
		must(t, s.Integrations.AddConnect(t.Context(), connect))
		if got, err := s.Integrations.TakeConnect(t.Context(), "state-1", "browser-1"); err != nil || got != connect {
			t.Errorf("%+v, %v", got, err)
		}
		_, err := s.Integrations.TakeConnect(t.Context(), "state-1", "browser-1")
		wantKind(t, err, protocol.KindUnauthenticated)
		for _, browser := range []string{"", "browser-2"} {
			must(t, s.Integrations.AddConnect(t.Context(), connect))
			_, err = s.Integrations.TakeConnect(t.Context(), "state-1", browser)
			wantKind(t, err, protocol.KindUnauthenticated)
			_, err = s.Integrations.TakeConnect(t.Context(), "state-1", "browser-1") // it is spent
			wantKind(t, err, protocol.KindUnauthenticated)
		}
		must(t, s.Integrations.AddConnect(t.Context(), connect))
		c.Advance(10 * time.Minute)
		_, err = s.Integrations.TakeConnect(t.Context(), "state-1", "browser-1")
		wantKind(t, err, protocol.KindExpired)
		connect.User = "usr_nobody"
		wantKind(t, s.Integrations.AddConnect(t.Context(), connect), protocol.KindNotFound)
		// Of many that come back at a time one alone is let in.
		connect.User, connect.ExpiresAt = "usr_alice", epoch.Add(time.Hour)
		must(t, s.Integrations.AddConnect(t.Context(), connect))
		in := 0
		for _, err := range parallel(8, func(int) error {
			_, err := s.Integrations.TakeConnect(t.Context(), "state-1", "browser-1")
			return err
		}) {
			if err == nil {
				in++
			}
		}
		if in != 1 {
			t.Errorf("%d came in", in)
		}
	})
}

func attachment(pty protocol.PTYID, account, policy string) Attachment {
	return Attachment{
		Session: "ses_1", PTY: pty, Provider: "github", Account: account, Policy: json.RawMessage(policy), AttachedBy: "usr_alice",
	}
}

func TestAttachments(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_1", "usr_alice", "github", "octo")))
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_2", "usr_bob", "github", "bob")))
		first, changed, err := s.Integrations.Attach(t.Context(), attachment("pty_1", "acc_1", `{"read_only":true}`))
		must(t, err)
		if !changed || first.PolicyVersion != 1 || first.AccountName != "octo" || first.Dashboard != "dash_1" || first.Sandbox != "sb_1" || first.AccountUser != "usr_alice" {
			t.Errorf("%+v", first)
		}
		same, changed, err := s.Integrations.Attach(t.Context(), attachment("pty_1", "acc_1", `{"read_only":true}`))
		if err != nil || changed || same.PolicyVersion != 1 {
			t.Errorf("%+v, %v, %v", same, changed, err)
		}
		second, changed, err := s.Integrations.Attach(t.Context(), attachment("pty_1", "acc_1", `{}`))
		if err != nil || !changed || second.PolicyID != first.PolicyID || second.PolicyVersion != 2 {
			t.Errorf("%+v, %v, %v", second, changed, err)
		}
		other, changed, err := s.Integrations.Attach(t.Context(), attachment("pty_1", "acc_2", `{}`))
		if err != nil || !changed || other.PolicyID == first.PolicyID || other.PolicyVersion != 1 {
			t.Errorf("%+v, %v, %v", other, changed, err)
		}
		for version, want := range map[int64]string{1: `{"read_only":true}`, 2: `{}`} { // records refer to them
			if body, err := s.Integrations.PolicyAt(t.Context(), first.PolicyID, version); err != nil || string(body) != want {
				t.Errorf("%s, %v", body, err)
			}
		}
		got, err := s.Integrations.Attachment(t.Context(), "ses_1", "pty_1", "github")
		if err != nil || got.Account != "acc_2" || string(got.Policy) != `{}` {
			t.Errorf("%+v, %v", got, err)
		}
		_, err = s.Integrations.Attachment(t.Context(), "ses_2", "pty_1", "github")
		wantKind(t, err, protocol.KindNotFound)

		// It holds as long as whoever owns the account works there.
		must(t, s.Boards.SetMember(t.Context(), "dash_1", "usr_bob", RoleViewer, ""))
		_, err = s.Integrations.Attachment(t.Context(), "ses_1", "pty_1", "github")
		wantKind(t, err, protocol.KindNotFound)
		must(t, s.Boards.RemoveMember(t.Context(), "dash_1", "usr_bob"))
		if list, err := s.Integrations.Attachments(t.Context(), "ses_1", "pty_1"); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if list, err := s.Integrations.DetachAll(t.Context(), "usr_bob", "dash_2"); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if list, err := s.Integrations.DetachAll(t.Context(), "usr_bob", "dash_1"); err != nil || len(list) != 1 || list[0].PTY != "pty_1" {
			t.Errorf("%+v, %v", list, err)
		}
		wantKind(t, s.Integrations.Detach(t.Context(), "ses_1", "pty_1", "github"), protocol.KindNotFound)
		must1(t)(s.Integrations.RemoveAccount(t.Context(), "usr_bob", "acc_2"))
		wantKind(t, s.Integrations.Detach(t.Context(), "ses_1", "pty_1", "github"), protocol.KindNotFound)

		for _, pty := range []protocol.PTYID{"pty_1", "pty_2"} {
			_, _, err = s.Integrations.Attach(t.Context(), attachment(pty, "acc_1", `{}`))
			must(t, err)
		}
		if list, err := s.Integrations.AttachmentsIn(t.Context(), "dash_1"); err != nil || len(list) != 2 || list[0].PTY != "pty_1" {
			t.Errorf("%+v, %v", list, err)
		}
		_, err = s.Integrations.RemoveAccount(t.Context(), "usr_bob", "acc_1")
		wantKind(t, err, protocol.KindNotFound)
		if gone, err := s.Integrations.RemoveAccount(t.Context(), "usr_alice", "acc_1"); err != nil || len(gone) != 2 {
			t.Errorf("%+v, %v", gone, err)
		}
	})
}

func TestAttachRefused(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must1(t)(s.Integrations.PutAccount(t.Context(), account("acc_1", "usr_alice", "github", "octo")))
		try := func(t2 Attachment, kind protocol.Kind) {
			t.Helper()
			_, _, err := s.Integrations.Attach(t.Context(), t2)
			wantKind(t, err, kind)
		}
		try(attachment("a b", "acc_1", `{}`), protocol.KindInvalid)
		try(attachment("pty_1", "acc_1", `{`), protocol.KindInvalid)
		try(attachment("pty_1", "acc_9", `{}`), protocol.KindConflict)
		unknown := attachment("pty_1", "acc_1", `{}`)
		unknown.Session = "ses_9"
		try(unknown, protocol.KindNotFound)
		one, _, err := s.Integrations.Attach(t.Context(), attachment("pty_0", "acc_1", `{}`))
		must(t, err)
		must(t, s.db.Concurrently(t.Context(), func(tx db.Runner) error {
			for i := range MaxAttachments - 1 {
				if _, err := tx.Exec(t.Context(), `
					INSERT INTO attachments (session_id, pty_id, provider, account_id, policy_id, policy_version, attached_by, attached_at)
					VALUES ('ses_1', ?, 'github', 'acc_1', ?, 1, 'usr_alice', 1)`, fmt.Sprint("pty_", i+1), one.PolicyID); err != nil {
					return err
				}
			}
			return nil
		}))
		try(attachment("pty_x", "acc_1", `{}`), protocol.KindTooMany)
		_, _, err = s.Integrations.Attach(t.Context(), attachment("pty_1", "acc_1", `{"read_only":true}`)) // in place of one
		must(t, err)
		must(t, s.Sessions.EndSession(t.Context(), "ses_1"))
		try(attachment("pty_y", "acc_1", `{}`), protocol.KindEnded)
		if list, err := s.Integrations.Attachments(t.Context(), "ses_1", "pty_1"); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}
