package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main{M: m}) }

var schema = fstest.MapFS{"postgres/00001_things.sql": {Data: []byte("-- +goose Up\nCREATE TABLE things (id TEXT PRIMARY KEY);\n")}}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAway(t *testing.T) {
	for _, tt := range []struct {
		err  error
		away bool
	}{
		{nil, false},
		{sql.ErrNoRows, false},
		{errors.New("anything else"), false},
		{context.Canceled, false},
		{context.DeadlineExceeded, true},
		{&pgconn.PgError{Code: "08006"}, true},
		{&pgconn.PgError{Code: "53300"}, true},
		{&pgconn.PgError{Code: "57P01"}, true},
		{&pgconn.PgError{Code: "57014"}, false}, // a query that was cancelled
		{&pgconn.PgError{Code: "42601"}, false},
		{&pgconn.ConnectError{}, true},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, true},
		{fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), true},
		{sql.ErrConnDone, true},
	} {
		if got := away(tt.err); got != tt.away {
			t.Errorf("%T %v: %t, want %t", tt.err, tt.err, got, tt.away)
		}
	}
	for code, want := range map[int]bool{
		sqlite3.SQLITE_BUSY: true, sqlite3.SQLITE_BUSY_SNAPSHOT: true, sqlite3.SQLITE_IOERR_READ: true,
		sqlite3.SQLITE_FULL: true, sqlite3.SQLITE_CONSTRAINT_UNIQUE: false, sqlite3.SQLITE_ERROR: false,
	} {
		if got := awaySQLite(code); got != want {
			t.Errorf("SQLite's %d: %t, want %t", code, got, want)
		}
	}
}

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
		_, err := Open(t.Context(), bad, schema, time.Now)
		if err == nil || strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "store postgres") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
}

func TestWrongPassword(t *testing.T) {
	u, err := url.Parse(pgtest.New(t))
	must(t, err)
	u.User = url.UserPassword(u.User.Username(), "s3cr3t")
	_, err = Open(t.Context(), u.String(), schema, time.Now)
	if err == nil || strings.Contains(err.Error(), "s3cr3t") || !strings.Contains(err.Error(), "password authentication failed") {
		t.Errorf("error %v", err)
	}
}

// TestLostTurn: a process that stops in the middle of a transaction doesn't hold
// the others back for ever.
func TestLostTurn(t *testing.T) {
	db, err := Open(t.Context(), pgtest.New(t), schema, time.Now)
	must(t, err)
	defer db.Close()
	tx, err := db.write.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	must(t, Runner{tx, db}.waitForTurn(t.Context()))
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 20`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, db.Transact(ctx, func(tx Runner) error {
		_, err := tx.Exec(ctx, `INSERT INTO things (id) VALUES (?)`, "a")
		return err
	}))
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
