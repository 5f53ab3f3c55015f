// Package cookies is the sink of sealed sync (seed 004): it pairs a session with
// browsers of people, takes what these send sealed, and keeps whose cookies the
// session's Chromium has.
//
// A session's state is a folder of its own: its policy, and for each pairing the
// secret, the sequences and the cookies. What is kept there is the truth, and
// Chromium a cache of it.
package cookies

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// DefaultMaxBytes bounds the body of an envelope.
const DefaultMaxBytes = 32 << 20

// Chromium is a session's browser, whether it runs or not.
type Chromium interface {
	// SetCookies writes cookies into it, or into its profile. refused says of some, by
	// their index, why they are not there. It fails if nothing could be done.
	SetCookies(ctx context.Context, session protocol.SessionID, cookies []seal.Cookie) (refused map[int]string, err error)
	// RemoveCookies takes cookies out of it, those that are there.
	RemoveCookies(ctx context.Context, session protocol.SessionID, ids []seal.CookieID) error
}

// A Seal opens the secrets that commands bring. [DeviceSeal] is one.
type Seal interface {
	Open(box []byte) (op.SyncSecrets, error)
}

// An Audit records what came of envelopes. It must not wait. *audit.Log is one.
type Audit interface{ Sync(push audit.Sync) }

// Options say how a Sink works.
type Options struct {
	Dir      string // made when missing, 0700
	Sandbox  protocol.SandboxID
	Seal     Seal
	Chromium Chromium
	Audit    Audit // nil: nothing is recorded
	// Isolated says that the session's programs run as other users than its Chromium:
	// else they could read the cookies, and nothing is paired or taken. Unisolated
	// does it all the same.
	Isolated   bool
	Unisolated bool
	MaxBytes   int64        // of an envelope's body; default DefaultMaxBytes
	Metrics    *Metrics     // nil: nothing is counted
	Log        *slog.Logger // nil: nothing is logged
}

// A Sink is the pairings of all sessions of a sandbox. It is safe for concurrent use.
type Sink struct {
	// Static after construction.
	o      Options
	budget budget

	mu sync.Mutex
	// Guarded by mu.
	sessions  map[protocol.SessionID]*session
	addresses map[string]*pairing // those that envelopes are taken at
}

var _ interface {
	feature.Router
	feature.Operator
	feature.SessionEnder
} = (*Sink)(nil)

// Open returns the Sink whose state is in o.Dir. What can't be read of a pairing is
// logged, and the pairing takes nothing.
func Open(o Options) (*Sink, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sink{
		o: o, sessions: map[protocol.SessionID]*session{}, addresses: map[string]*pairing{},
		budget: budget{total: 4 * o.MaxBytes, each: 2 * o.MaxBytes, under: map[string]int64{}},
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if id := protocol.SessionID(entry.Name()); entry.IsDir() && protocol.ValidID(id) {
			s.load(id)
		}
	}
	return s, nil
}

// load takes up what an earlier agent has left of a session.
func (s *Sink) load(id protocol.SessionID) {
	entries, err := os.ReadDir(s.dirOf(id))
	if err != nil {
		s.o.Log.Error("a session's pairings can't be read", "session", id, "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.session(id)
	removeHalves(s.dirOf(id))
	for _, entry := range entries {
		pairing := protocol.PairingID(entry.Name())
		if !entry.IsDir() || !protocol.ValidID(pairing) {
			continue
		}
		removeHalves(filepath.Join(s.dirOf(id), entry.Name()))
		p, err := loadPairing(in.ground, filepath.Join(s.dirOf(id), entry.Name()))
		if errors.Is(err, fs.ErrNotExist) { // it was never whole, or has ended
			if err := os.RemoveAll(filepath.Join(s.dirOf(id), entry.Name())); err != nil {
				s.o.Log.Error("what an ended pairing has left can't be removed", "pairing", pairing, "err", err)
			}
			continue
		}
		if err != nil {
			s.o.Log.Error("a pairing can't be read, and takes nothing", "session", id, "pairing", pairing, "err", err)
			continue
		}
		s.admit(in, p)
		in.push = max(in.push, p.sum.push)
	}
}

// removeHalves removes what an agent that was killed has written of files, beside them.
func removeHalves(dir string) {
	halves, err := filepath.Glob(filepath.Join(dir, ".*-*"))
	if err != nil {
		return // the pattern is right unless the folder's path has another one in it
	}
	for _, half := range halves {
		os.Remove(half)
	}
}

func (s *Sink) dirOf(session protocol.SessionID) string {
	return filepath.Join(s.o.Dir, string(session))
}

// session returns a session, made when there is none. It is called with mu held.
func (s *Sink) session(id protocol.SessionID) *session {
	in := s.sessions[id]
	if in == nil {
		in = newSession(id)
		s.sessions[id] = in
	}
	return in
}

// admit has envelopes taken for a pairing. It is called with mu held.
func (s *Sink) admit(in *session, p *pairing) {
	in.pairings[p.ID], s.addresses[p.Address] = p, p
	s.o.Metrics.pairings.Set(float64(len(s.addresses)))
}

// close ends a pairing's address. It is called with mu held.
func (s *Sink) close(p *pairing) {
	delete(s.addresses, p.Address)
	s.o.Metrics.pairings.Set(float64(len(s.addresses)))
}

// isolated fails where programs of terminals could read what Chromium has.
func (s *Sink) isolated() error {
	if s.o.Isolated || s.o.Unisolated {
		return nil
	}
	return protocol.Errorf(protocol.KindUnsupported,
		"this sandbox has no isolation, so any program in it could read the cookies: it must run as root, or its operator allow this with --sync-unisolated")
}

// Kept returns the cookies that a session's Chromium should have. It waits for nothing
// but the disk.
func (s *Sink) Kept(session protocol.SessionID) []seal.Cookie {
	if s.isolated() != nil {
		return nil
	}
	policy, err := readPolicy(s.dirOf(session))
	if err != nil {
		s.o.Log.Error("no cookies are given to a browser", "session", session, "err", errors.Unwrap(err))
		return nil
	}
	newest, err := s.newest(session, func(seal.CookieID) bool { return true })
	if err != nil {
		s.o.Log.Error("not all cookies are given to a browser", "session", session, "err", err)
	}
	now := time.Now()
	var cookies []seal.Cookie
	for _, k := range newest {
		if policy.Passes(k.Cookie.HostKey) && k.Cookie.Check(now) == nil {
			cookies = append(cookies, k.Cookie)
		}
	}
	return cookies
}

// newest returns what was last pushed of some cookies, whichever pairing has it. An
// error says that one couldn't be asked; the others' are there all the same.
func (s *Sink) newest(session protocol.SessionID, of func(seal.CookieID) bool) (map[seal.CookieID]kept, error) {
	newest := map[seal.CookieID]kept{}
	var errs []error
	for _, p := range s.pairingsOf(session) {
		errs = append(errs, p.kept.each(func(k kept) error {
			id := k.Cookie.ID()
			if before, known := newest[id]; of(id) && (!known || before.Push < k.Push) {
				newest[id] = k
			}
			return nil
		}))
	}
	return newest, errors.Join(errs...)
}

// pairingsOf returns a session's pairings, the oldest first.
func (s *Sink) pairingsOf(session protocol.SessionID) []*pairing {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.sessions[session]
	if in == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(in.pairings), func(a, b *pairing) int {
		return cmp.Or(cmp.Compare(a.PairedAt, b.PairedAt), cmp.Compare(a.ID, b.ID))
	})
}

// SessionEnded implements [feature.SessionEnder]: nothing of a session is left. Its
// Chromium ends by itself.
func (s *Sink) SessionEnded(session protocol.SessionID) error {
	s.mu.Lock()
	in := s.sessions[session]
	delete(s.sessions, session)
	if in != nil {
		for id, p := range in.pairings {
			s.close(p)
			delete(in.pairings, id)
		}
		clear(in.openings)
	}
	s.mu.Unlock()
	if in != nil {
		close(in.over.ended)
		if err := in.turn.take(context.Background()); err != nil {
			return err
		}
		defer in.turn.give()
	}
	return os.RemoveAll(s.dirOf(session))
}
