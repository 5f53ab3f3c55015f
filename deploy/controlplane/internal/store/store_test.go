package store

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) {
	// Transactions take their time: fewer rounds, unless -rapid.checks says how many.
	if err := flag.Set("rapid.checks", "25"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(pgtest.Main{M: m})
}

const (
	aliceToken = "token-of-alice-0123456789"
	bobToken   = "token-of-bob-0123456789"
	relayToken = "credential-of-relay-one"
)

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A clock is a store's.
type clock struct{ ns atomic.Int64 }

func (c *clock) Now() time.Time          { return epoch.Add(time.Duration(c.ns.Load())) }
func (c *clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }

// databases name those that every test runs against, empty.
var databases = []struct {
	name string
	url  func(t *testing.T) string
}{
	{"sqlite", sqlitePath},
	{"postgres", func(t *testing.T) string { return pgtest.New(t) }},
}

func sqlitePath(t *testing.T) string { return filepath.Join(t.TempDir(), "dir with ? and # in it.db") }

// migrated is a file of this build's schema: to copy it is quicker than to
// migrate for each test.
var migrated = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "store")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "db")
	s, err := Open(context.Background(), path, nil)
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// each runs a test against an empty store in every database.
func each(t *testing.T, test func(t *testing.T, s *Store, c *clock)) {
	t.Helper()
	for _, kind := range databases {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			c, url := &clock{}, kind.url(t)
			if kind.name == "sqlite" {
				data, err := migrated()
				must(t, err)
				must(t, os.WriteFile(url, data, 0o600))
			}
			test(t, open(t, url, c), c)
		})
	}
}

func open(t *testing.T, url string, c *clock) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// eachSeeded runs a test against a store with two dashboards: alice owns dash_1,
// where bob is an editor, and views dash_2, which bob owns.
func eachSeeded(t *testing.T, test func(t *testing.T, s *Store, c *clock)) {
	t.Helper()
	each(t, func(t *testing.T, s *Store, c *clock) {
		for range 2 { // loading is idempotent
			must(t, s.Load(t.Context(), testSeed()))
		}
		test(t, s, c)
	})
}

func testSeed() *Seed {
	return &Seed{
		Users: []SeedUser{{"usr_alice", "Alice", aliceToken}, {"usr_bob", "Bob", bobToken}},
		Dashboards: []SeedDashboard{
			{ID: "dash_1", SandboxID: "sb_1", SessionID: "ses_1", Members: []SeedMember{
				{UserID: "usr_alice", Role: RoleOwner}, {UserID: "usr_bob", Role: RoleEditor, Capabilities: "control view"},
			}},
			{ID: "dash_2", SandboxID: "sb_2", SessionID: "ses_2", Members: []SeedMember{
				{UserID: "usr_alice", Role: RoleViewer}, {UserID: "usr_bob", Role: RoleOwner},
			}},
		},
		Relays: []SeedRelay{{"rl_1", relayToken}},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKind fails unless err is a failure of the kind.
func wantKind(t *testing.T, err error, kind protocol.Kind) {
	t.Helper()
	if err == nil || protocol.KindOf(err) != kind {
		t.Errorf("error %v (%v), want kind %v", err, protocol.KindOf(err), kind)
	}
}

// parallel runs n calls at a time and returns their errors.
func parallel(n int, call func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	return errs
}

func TestNewerSchema(t *testing.T) {
	for _, kind := range databases {
		t.Run(kind.name, func(t *testing.T) {
			url := kind.url(t)
			s := open(t, url, &clock{})
			newer := `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)`
			_, err := s.db.Exec(t.Context(), newer)
			must(t, err)
			_, err = Open(t.Context(), url, nil)
			if err == nil || !strings.Contains(err.Error(), ": schema 9999 is of a newer build; this one knows 6") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestWhere: one file by its path and by its URL, for its owner alone.
func TestWhere(t *testing.T) {
	path := sqlitePath(t)
	must(t, open(t, path, &clock{}).Load(t.Context(), testSeed()))
	s := open(t, "sqlite:"+path, &clock{})
	if _, err := s.People.UserByToken(t.Context(), aliceToken); err != nil {
		t.Error(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", suffix, info, err)
		}
		data, err := os.ReadFile(path + suffix)
		must(t, err)
		for _, secret := range []string{aliceToken, bobToken, relayToken} {
			if strings.Contains(string(data), secret) {
				t.Error("the database holds a token in the clear")
			}
		}
	}
	missing := filepath.Join(t.TempDir(), "missing", "db")
	if _, err := Open(t.Context(), missing, nil); err == nil || !strings.HasPrefix(err.Error(), "store "+missing+": ") {
		t.Errorf("error %v", err)
	}
}

// TestOpenTogether opens one new database many times at once, as processes do.
func TestOpenTogether(t *testing.T) {
	for _, kind := range databases {
		t.Run(kind.name, func(t *testing.T) {
			url := kind.url(t)
			for _, err := range parallel(3, func(int) error {
				s, err := Open(t.Context(), url, nil)
				if err != nil {
					return err
				}
				return s.Close()
			}) {
				must(t, err)
			}
		})
	}
}

// TestTwoProcesses writes by two stores of one database; neither loses a write
// nor sees half of one.
func TestTwoProcesses(t *testing.T) {
	for _, kind := range databases {
		t.Run(kind.name, func(t *testing.T) {
			url := kind.url(t)
			stores := []*Store{open(t, url, &clock{}), open(t, url, &clock{})}
			must(t, stores[0].Load(t.Context(), testSeed()))
			for _, err := range parallel(20, func(i int) error {
				_, err := stores[i%2].Contents.AddItem(t.Context(), Item{
					Dashboard: "dash_1", Kind: ItemNote, Body: []byte(`{}`), UpdatedBy: "usr_alice",
				})
				return err
			}) {
				must(t, err)
			}
			items, err := stores[0].Contents.Items(t.Context(), "dash_1")
			if err != nil || len(items) != 20 {
				t.Errorf("%d items, %v", len(items), err)
			}
		})
	}
}

// TestOneTransactionAtATime: what a transaction has read is still so when it
// writes.
func TestOneTransactionAtATime(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		for _, err := range parallel(30, func(int) error {
			return s.db.Transact(t.Context(), func(tx db.Runner) error {
				var n int64
				if err := tx.Row(t.Context(), `SELECT seen_at FROM relays WHERE id = ?`, "rl_1").Scan(&n); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), `UPDATE relays SET seen_at = ? WHERE id = ?`, n+1, "rl_1")
				return err
			})
		}) {
			must(t, err)
		}
		var n int64
		err := s.db.Reads().Row(t.Context(), `SELECT seen_at FROM relays`).Scan(&n)
		if err != nil || n != 30 {
			t.Errorf("%d updates were kept, %v; want 30", n, err)
		}
	})
}

// TestContext: nobody waits longer than they want to.
func TestContext(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		inside, release := make(chan struct{}), make(chan struct{})
		done := make(chan error, 1)
		go func() { // awaited below
			done <- s.db.Transact(t.Context(), func(db.Runner) error {
				close(inside)
				<-release
				return nil
			})
		}()
		<-inside
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := s.Boards.AddDashboard(ctx, Dashboard{ID: "dash_9", Name: "n"}, "usr_alice"); ctx.Err() == nil || err == nil {
			t.Errorf("error %v, context %v", err, ctx.Err())
		}
		if _, err := s.People.UserByToken(t.Context(), aliceToken); err != nil {
			t.Errorf("a read waited for a write: %v", err)
		}
		close(release)
		must(t, <-done)
		if _, _, err := s.Boards.DashboardFor(t.Context(), "usr_alice", "dash_9"); err == nil {
			t.Error("what was given up was done")
		}
	})
}

// TestStrangeText: what no database can hold, or what nobody can read, is
// refused or cleaned, never a failure of the store.
func TestStrangeText(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_x", Name: "a\x00b"}), protocol.KindInvalid)
		wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_x", Name: "a\xffb"}), protocol.KindInvalid)
		wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_x", Name: strings.Repeat("a", 257)}), protocol.KindInvalid)
		wantKind(t, s.Boards.RenameDashboard(t.Context(), "dash_1", "two\nlines"), protocol.KindInvalid)
		for _, id := range []string{"a\x00b", "a\xffb"} {
			if _, err := s.Sessions.Session(t.Context(), "usr_alice", protocol.SessionID(id)); err == nil || protocol.KindOf(err) == protocol.KindInternal {
				t.Errorf("session %q: %v", id, err)
			}
		}
		cmd, err := s.Commands.AddCommand(t.Context(), command("k", "a"))
		must(t, err)
		_, err = s.Commands.FinishCommand(t.Context(), cmd.Envelope.CommandID, Outcome{
			Status: protocol.StatusError, Error: &protocol.ErrorBody{Name: "n", Message: "a\x00b\xffc"},
			Result: []byte("\"\xff\""),
		}, epoch)
		must(t, err)
		cmd, err = s.Commands.Command(t.Context(), cmd.Envelope.CommandID)
		if err != nil || cmd.Outcome.Error.Message != "a\uFFFDb\uFFFDc" || string(cmd.Outcome.Result) != "\"\xff\"" {
			t.Errorf("%+v, %v", cmd.Outcome, err)
		}
	})
}

func TestRelayAddresses(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		id, err := s.Fleet.RelayByCredential(t.Context(), relayToken)
		if err != nil || id != "rl_1" {
			t.Errorf("%v, %v", id, err)
		}
		_, err = s.Fleet.RelayByCredential(t.Context(), aliceToken)
		wantKind(t, err, protocol.KindUnauthenticated)
		if relays, err := s.Fleet.Relays(t.Context(), epoch); err != nil || len(relays) != 0 {
			t.Errorf("%v, %v before any registered", relays, err)
		}
		want := Relay{"rl_1", "https://relay", "relay:443", "https://public"}
		must(t, s.Fleet.RegisterRelay(t.Context(), want, epoch))
		for since, n := range map[time.Time]int{epoch: 1, epoch.Add(time.Millisecond): 0} {
			relays, err := s.Fleet.Relays(t.Context(), since)
			if err != nil || len(relays) != n {
				t.Errorf("%v, %v since %v", relays, err, since)
			}
		}
		if got, err := s.Fleet.Relay(t.Context(), "rl_1"); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestSeedValidation(t *testing.T) {
	must(t, testSeed().Validate())
	for name, spoil := range map[string]func(*Seed){
		"the agent's own id":   func(s *Seed) { s.Users[0].ID = reservedUser },
		"a short token":        func(s *Seed) { s.Users[0].Token = "short" },
		"one token for two":    func(s *Seed) { s.Users[0].Token = relayToken },
		"an unknown role":      func(s *Seed) { s.Dashboards[0].Members[0].Role = "king" },
		"an unknown right":     func(s *Seed) { s.Dashboards[0].Members[0].Capabilities = "view fly" },
		"a stranger as member": func(s *Seed) { s.Dashboards[0].Members[0].UserID = "usr_x" },
		"a name of two lines":  func(s *Seed) { s.Dashboards[0].Name = "a\nb" },
	} {
		seed := testSeed()
		spoil(seed)
		err := seed.Validate()
		if err == nil || strings.Contains(err.Error(), relayToken) || strings.Contains(err.Error(), "short\"") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestFormerRole: an older seed's controller can do what they could, no more.
func TestFormerRole(t *testing.T) {
	each(t, func(t *testing.T, s *Store, _ *clock) {
		seed := testSeed()
		seed.Dashboards[0].Members[1] = SeedMember{UserID: "usr_bob", Role: "controller"}
		must(t, seed.Validate())
		must(t, s.Load(t.Context(), seed))
		got, err := s.Sessions.Session(t.Context(), "usr_bob", "ses_1")
		if err != nil || got.Role != RoleEditor || got.MemberCapabilities != "view control" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestTwoDashboards: each has its session, its sandbox and its roles.
func TestTwoDashboards(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		got, err := s.Sessions.Active(t.Context(), "usr_alice")
		want := []Session{
			{"ses_1", "dash_1", "sb_1", StateActive, epoch, RoleOwner, ""},
			{"ses_2", "dash_2", "sb_2", StateActive, epoch, RoleViewer, ""},
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		if got, err := s.Sessions.Session(t.Context(), "usr_bob", "ses_1"); err != nil || got.MemberCapabilities != "view control" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
