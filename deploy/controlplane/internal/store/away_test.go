package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
	"github.com/fairlead/fairlead/protocol"
)

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

// wantAway has the store fail in each way in which it is used.
func wantAway(t *testing.T, s *Store) {
	t.Helper()
	wantKind(t, s.Ping(t.Context()), protocol.KindUnavailable)
	_, err := s.People.UserByToken(t.Context(), aliceToken)
	wantKind(t, err, protocol.KindUnavailable)
	_, err = s.Boards.Dashboards(t.Context(), "usr_alice")
	wantKind(t, err, protocol.KindUnavailable)
	_, err = s.Grants.RevocationNumber(t.Context())
	wantKind(t, err, protocol.KindUnavailable)
	wantKind(t, s.Sessions.EndSession(t.Context(), "ses_1"), protocol.KindUnavailable)
	wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_x", Name: "X"}), protocol.KindUnavailable)
}

func TestClosed(t *testing.T) {
	eachSeeded(t, func(t *testing.T, s *Store, _ *clock) {
		must(t, s.Ping(t.Context()))
		late, cancel := context.WithTimeout(t.Context(), -time.Second)
		defer cancel()
		wantKind(t, s.Ping(late), protocol.KindUnavailable)
		must(t, s.Close())
		wantAway(t, s)
	})
}

// TestPostgresAway takes a server away from a store and gives it back.
func TestPostgresAway(t *testing.T) {
	u, err := url.Parse(pgtest.New(t))
	must(t, err)
	query := u.Query()
	far, near := query.Get("host"), t.TempDir()
	const socket = ".s.PGSQL.5432"
	way := newWay(t, filepath.Join(near, socket), filepath.Join(far, socket))
	query.Set("host", near)
	u.RawQuery = query.Encode()
	s := open(t, u.String(), &clock{})
	must(t, s.Load(t.Context(), testSeed()))
	must(t, s.Ping(t.Context()))
	way.cut()
	wantAway(t, s)
	again := newWay(t, filepath.Join(near, socket), filepath.Join(far, socket))
	defer again.cut()
	must(t, s.Ping(t.Context()))
	must(t, s.Close())
}

// A way leads from one socket to another until it is cut.
type way struct {
	listener net.Listener
	ends     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	isCut bool       // guarded by mu
}

func newWay(t *testing.T, from, to string) *way {
	t.Helper()
	l, err := net.Listen("unix", from)
	must(t, err)
	w := &way{listener: l}
	w.ends.Go(func() { // cut waits for it
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", to)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			if w.isCut {
				near.Close()
			}
			w.conns = append(w.conns, near, far)
			w.mu.Unlock()
			w.ends.Go(func() { io.Copy(near, far); near.Close() })
			w.ends.Go(func() { io.Copy(far, near); far.Close() })
		}
	})
	return w
}

func (w *way) cut() {
	w.listener.Close()
	w.mu.Lock()
	w.isCut = true
	for _, c := range w.conns {
		c.Close()
	}
	w.mu.Unlock()
	w.ends.Wait()
}

// TestSQLiteAway: a file that another one writes to, and one that can't grow.
func TestSQLiteAway(t *testing.T) {
	path := sqlitePath(t)
	s := open(t, path, &clock{})
	must(t, s.Load(t.Context(), testSeed()))
	if _, err := s.db.write.ExecContext(t.Context(), `PRAGMA busy_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", sqliteDSN(path, "immediate", true))
	must(t, err)
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	must(t, err)
	wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_x", Name: "X"}), protocol.KindUnavailable)
	wantKind(t, s.Sessions.EndSession(t.Context(), "ses_1"), protocol.KindUnavailable)
	must(t, tx.Rollback())
	must(t, s.Sessions.EndSession(t.Context(), "ses_1"))

	if _, err := s.db.write.ExecContext(t.Context(), `PRAGMA max_page_count = 1`); err != nil { // no more than there are
		t.Fatal(err)
	}
	item := Item{Dashboard: "dash_1", Kind: ItemNote, Body: fmt.Appendf(nil, `"%0*d"`, MaxItemBytes-2, 0), UpdatedBy: "usr_alice"}
	_, err = s.Contents.AddItem(t.Context(), item)
	wantKind(t, err, protocol.KindUnavailable)
	must(t, s.Ping(t.Context()))
}
