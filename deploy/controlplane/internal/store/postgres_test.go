package store

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
)

// TestURLSecrets: whatever is wrong with a URL, no part of its password is shown.
func TestURLSecrets(t *testing.T) {
	for _, bad := range []string{
		"postgres://u:s3cr3t@127.0.0.1:1/db?connect_timeout=1",
		"postgres://u:s3cr3t@127.0.0.1:1,127.0.0.1:2/db?connect_timeout=1",
		"postgres://u@127.0.0.1:1/db?connect_timeout=1&password=s3cr3t",
		"postgres://u:s3cr3t@127.0.0.1:port/db",
		"postgres://u:s3cr3t@[::1/db",
		"postgres://u:%zzs3cr3t@127.0.0.1/db",
		"postgres://u:a@s3cr3t@127.0.0.1:1/db",
		"postgres://u:a/s3cr3t@127.0.0.1:1/db",
		"postgres://u:1?s3cr3t=x@127.0.0.1:1/db",
		"postgres://u:1#s3cr3t@127.0.0.1:1/db",
		"postgres://u:a:s3cr3t",
		"postgresql://u:s3cr3t@127.0.0.1:1/db?sslmode=s3cr3t",
		"postgres://u:s3cr3t@127.0.0.1:1/db?sslmode=verify-full&sslrootcert=/nowhere",
	} {
		_, err := Open(t.Context(), bad)
		if err == nil || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "store postgres") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

func TestWrongPassword(t *testing.T) {
	u, err := url.Parse(pgtest.New(t))
	must(t, err)
	u.User = url.UserPassword(u.User.Username(), "s3cr3t")
	_, err = Open(t.Context(), u.String())
	if err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("error %v", err)
	}
}

// TestConnections: the pool is bounded, and gives back what it took.
func TestConnections(t *testing.T) {
	s := open(t, pgtest.New(t), &clock{})
	must(t, s.Load(t.Context(), testSeed()))
	for _, err := range parallel(100, func(i int) error {
		if i%2 == 0 {
			_, err := s.Commands.AddCommand(t.Context(), command("", "a"))
			return err
		}
		_, err := s.People.UserByToken(t.Context(), aliceToken)
		return err
	}) {
		must(t, err)
	}
	if w, r := s.db.write.Stats(), s.db.read.Stats(); w.OpenConnections > postgresWriters || r.OpenConnections > postgresReaders || w.InUse+r.InUse > 0 {
		t.Errorf("writes %+v, reads %+v", w, r)
	}
}

// TestLostTurn: a process that stops in the middle of a transaction doesn't hold
// the others back for ever.
func TestLostTurn(t *testing.T) {
	s := open(t, pgtest.New(t), &clock{})
	tx, err := s.db.write.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	must(t, postgres.waitForTurn(t.Context(), runner{tx, s.db}))
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 20`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, s.People.AddUser(ctx, User{ID: "usr_x", Name: "X"}))
}

func TestRebind(t *testing.T) {
	const query = `SELECT a FROM b WHERE c = ? AND d IN (?, ?)`
	if got := sqlite.rebind(query); got != query {
		t.Error(got)
	}
	if got := postgres.rebind(query); got != `SELECT a FROM b WHERE c = $1 AND d IN ($2, $3)` {
		t.Error(got)
	}
}
