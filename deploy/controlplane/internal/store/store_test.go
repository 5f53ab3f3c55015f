package store

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const aliceToken = "token-of-alice-0123456789"

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "dir with ? and # in it.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	seed := &Seed{
		Users: []SeedUser{{"usr_alice", "Alice", aliceToken}},
		Dashboards: []SeedDashboard{
			{"dash_1", "sb_1", "ses_1", []SeedMember{{"usr_alice", RoleOwner}}},
			{"dash_2", "sb_2", "ses_2", []SeedMember{{"usr_alice", RoleViewer}}},
		},
		Relays: []SeedRelay{{"rl_1", "credential-of-relay-one"}},
	}
	for range 2 { // loading is idempotent
		if err := s.Load(t.Context(), seed); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func command(key, hash string) Command {
	return Command{
		User: "usr_alice", Key: key, RequestHash: []byte(hash), Kind: protocol.OpPTYCreate,
		Envelope: protocol.CommandEnvelope{
			CommandID: protocol.NewCommandID(),
			Target:    protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1"},
		},
	}
}

func TestTokens(t *testing.T) {
	s := newStore(t)
	if u, err := s.UserByToken(t.Context(), aliceToken); err != nil || u != (User{"usr_alice", "Alice"}) {
		t.Errorf("%v, %v", u, err)
	}
	for _, token := range []string{"", "x", "credential-of-relay-one", aliceToken + "x"} {
		if _, err := s.UserByToken(t.Context(), token); protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Errorf("token %q: %v", token, err)
		}
	}
	if id, err := s.RelayByCredential(t.Context(), "credential-of-relay-one"); err != nil || id != "rl_1" {
		t.Errorf("%v, %v", id, err)
	}
}

// TestTwoDashboards: each has its session, its sandbox and its roles.
func TestTwoDashboards(t *testing.T) {
	s := newStore(t)
	got, err := s.Sessions(t.Context(), "usr_alice")
	want := []Session{{"ses_1", "dash_1", "sb_1", RoleOwner}, {"ses_2", "dash_2", "sb_2", RoleViewer}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestNewToken: a seed with a new token takes the old one away.
func TestNewToken(t *testing.T) {
	s := newStore(t)
	if err := s.Load(t.Context(), &Seed{
		Users: []SeedUser{{"usr_alice", "Alice", "another-token-of-alice"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UserByToken(t.Context(), aliceToken); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("the old token still works: %v", err)
	}
}

func TestOneCommandPerKey(t *testing.T) {
	s := newStore(t)
	ids := make([]protocol.CommandID, 20)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			cmd, err := s.AddCommand(t.Context(), command("k", "a"))
			if err != nil {
				t.Error(err)
			}
			ids[i] = cmd.Envelope.CommandID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("two commands: %s and %s", ids[0], id)
		}
	}
	if _, err := s.AddCommand(t.Context(), command("k", "b")); protocol.KindOf(err) != protocol.KindConflict {
		t.Errorf("another request: %v", err)
	}
	for range 2 { // no key, no memory
		if cmd, err := s.AddCommand(t.Context(), command("", "a")); err != nil || cmd.Envelope.CommandID == ids[0] {
			t.Errorf("%v, %v", cmd, err)
		}
	}
}

// TestOutcome: what an executor said once stays; a guess doesn't.
func TestOutcome(t *testing.T) {
	s := newStore(t)
	first, err := s.AddCommand(t.Context(), command("k", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ set, want Outcome }{
		{Outcome{Status: StatusUndelivered, Error: &protocol.ErrorBody{Message: "m", Name: "n"}}, Outcome{Status: StatusUndelivered}},
		{Outcome{Status: protocol.StatusUnknown}, Outcome{Status: protocol.StatusUnknown}},
		{Outcome{Status: protocol.StatusOK, Result: []byte(`{"a":1}`)}, Outcome{Status: protocol.StatusOK}},
		{Outcome{Status: protocol.StatusError}, Outcome{Status: protocol.StatusOK}},
	} {
		if err := s.FinishCommand(t.Context(), first.Envelope.CommandID, tt.set, epoch); err != nil {
			t.Fatal(err)
		}
		cmd, err := s.AddCommand(t.Context(), command("k", "a"))
		if err != nil || cmd.Outcome.Status != tt.want.Status {
			t.Errorf("after %+v: %+v, %v", tt.set, cmd.Outcome, err)
		}
		if tt.want.Status == protocol.StatusOK && string(cmd.Outcome.Result) != `{"a":1}` {
			t.Errorf("result %s", cmd.Outcome.Result)
		}
	}
}

func TestOldGrantsAreForgotten(t *testing.T) {
	s := newStore(t)
	for i := range 3 {
		at := epoch.Add(time.Duration(i) * 24 * time.Hour)
		if err := s.AddGrant(t.Context(), Grant{
			ID: protocol.NewGrantID(), User: "usr_alice", Session: "ses_1", Capabilities: "view",
			IssuedAt: at, ExpiresAt: at.Add(time.Minute),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := s.read.QueryRowContext(t.Context(), `SELECT count(*) FROM grants`).Scan(&n); err != nil || n != 2 {
		t.Errorf("%d grants, %v; want the last two", n, err)
	}
}

func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "db")
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.ExecContext(t.Context(),
		`INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), path+": schema 9999 is of a newer build") {
		t.Errorf("error %v", err)
	}
}
