package store

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/pgtest"
	"github.com/fairlead/fairlead/protocol"
)

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
	if r, w := s.Stats(); w.OpenConnections > 8 || r.OpenConnections > 8 || w.InUse+r.InUse > 0 {
		t.Errorf("writes %+v, reads %+v", w, r)
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
	_, err := s.db.Exec(t.Context(), `PRAGMA busy_timeout = 0`)
	must(t, err)
	must(t, open(t, path, &clock{}).db.Transact(t.Context(), func(db.Runner) error {
		wantKind(t, s.People.AddUser(t.Context(), User{ID: "usr_x", Name: "X"}), protocol.KindUnavailable)
		wantKind(t, s.Sessions.EndSession(t.Context(), "ses_1"), protocol.KindUnavailable)
		return nil
	}))
	must(t, s.Sessions.EndSession(t.Context(), "ses_1"))

	_, err = s.db.Exec(t.Context(), `PRAGMA max_page_count = 1`) // no more than there are
	must(t, err)
	item := Item{Dashboard: "dash_1", Kind: ItemNote, Body: fmt.Appendf(nil, `"%0*d"`, MaxItemBytes-2, 0), UpdatedBy: "usr_alice"}
	_, err = s.Contents.AddItem(t.Context(), item)
	wantKind(t, err, protocol.KindUnavailable)
	must(t, s.Ping(t.Context()))
}
