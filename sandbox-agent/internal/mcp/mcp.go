// Package mcp serves the tools of a sandbox by the Model Context Protocol: to
// the programs of its terminals on loopback, and to people's clients through
// relays. The same tools can be listed and called by two plain requests, as
// seed 001 has them.
//
// A program shows the secret of its terminal, a person a grant. MCP sessions
// belong to whoever began them. When the tools of somebody change, his clients
// are told at once; nobody needs to ask again and again.
package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	// Name is what the server calls itself.
	Name = "fairlead"
	// MaxSessions bounds the MCP sessions of all callers, MaxSessionsPerCaller
	// those of one. Where there are as many, the one that is idle for longest
	// ends; sessions with a request under way never do.
	MaxSessions          = 512
	MaxSessionsPerCaller = 64
	// MaxRequestsPerCaller bounds the requests of a caller that are under way,
	// streams included.
	MaxRequestsPerCaller = 128
	// IdleTimeout is how long a session may be without any request.
	IdleTimeout = 30 * time.Minute

	// changePause is the time between two looks at what has changed: longer than
	// the SDK waits for further changes, or it would wait for ever.
	changePause = 20 * time.Millisecond
	// sweepEvery is how often idle sessions are looked for.
	sweepEvery = time.Minute
)

// Options are what a Server works with. Sets and Secrets must be set; a func
// that is nil stands for a part that there is not.
type Options struct {
	Sets []toolbox.Set // of two tools of one name, the first counts
	// Secrets returns the secret of a terminal, false when there is no such
	// terminal.
	Secrets func(session protocol.SessionID, pty protocol.PTYID) (string, bool)
	// PeerUID returns the user at the other end of a connection; peer.UID does.
	// UID returns the user of a terminal, false when it has none of its own.
	// Without them the secret alone is looked at.
	PeerUID func(local, remote netip.AddrPort) (int, error)
	UID     func(session protocol.SessionID, pty protocol.PTYID) (int, bool)
	// Port returns the port of the loopback listener; 0: not known.
	Port func() int
	// Mask returns text without secrets. It may change its argument.
	Mask func(text []byte) []byte
	// Stopped, Started and Ready are told of the coding agents in a terminal: a
	// turn has ended, or begun, or the first prompt is waited for.
	Stopped func(session protocol.SessionID, pty protocol.PTYID, report protocol.AgentStoppedReport) error
	Started func(session protocol.SessionID, pty protocol.PTYID, agent string) error
	Ready   func(session protocol.SessionID, pty protocol.PTYID, agent string) error
	// Scrollback returns the end of what a terminal has shown, as plain text.
	Scrollback func(session protocol.SessionID, pty protocol.PTYID) ([]byte, error)
	// OnTools is told that the programs of a terminal have other tools than
	// before, old of them then and so many now; at first old is 0. It must not block.
	OnTools  func(session protocol.SessionID, pty protocol.PTYID, old, now int)
	Version  string // of this program
	Log      *slog.Logger
	Registry prometheus.Registerer

	features // of the conformance suite
}

// features are what a server has beside tools. Only tests have any.
type features struct {
	adjust func(*sdk.ServerOptions)
	extend func(*sdk.Server)
}

// Server serves MCP. It is safe for concurrent use.
type Server struct {
	// Static after construction.
	opts      Options
	events    *eventStore
	stateful  http.Handler // for sessions
	stateless http.Handler // for versions of the protocol without sessions
	metrics   *metrics
	schemas   schemas
	cancel    context.CancelFunc
	wake      chan struct{}  // something is in changed
	wait      sync.WaitGroup // for run, and for what ends sessions

	mu sync.Mutex
	// Guarded by mu.
	closed   bool
	owners   map[ownerKey]*owner
	sessions int            // of all owners
	large    int            // requests with a large body, of all owners
	changed  map[scope]bool // whose tools may be others; bounded by what there is
}

// A scope is a terminal, or all of a session where pty is empty.
type scope struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

func (s scope) contains(k ownerKey) bool {
	return s.session == k.session && (s.pty == "" || s.pty == k.pty)
}

// New returns a Server. Close must be called when it isn't needed any more.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Mask == nil {
		opts.Mask = func(text []byte) []byte { return text }
	}
	if opts.Version == "" {
		opts.Version = "dev"
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		opts: opts, events: newEventStore(), cancel: cancel, wake: make(chan struct{}, 1),
		owners: make(map[ownerKey]*owner), changed: make(map[scope]bool),
	}
	s.metrics = newMetrics(opts.Registry, s)
	s.stateful, s.stateless = s.transports()
	s.wait.Go(func() { s.run(ctx) }) // Close waits
	return s
}

// Changed says that the tools of a terminal's callers may be others than
// before; pty "" stands for all callers of the session. It returns at once:
// clients whose tools are really others are told within milliseconds, once for
// many calls.
func (s *Server) Changed(session protocol.SessionID, pty protocol.PTYID) {
	if pty != "" {
		if _, ok := s.opts.Secrets(session, pty); !ok {
			return // it is gone
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if key := (ownerKey{session: session, pty: pty}); pty != "" && s.owners[key] == nil {
		s.newOwner(key)
	}
	s.noteChange(scope{session, pty})
}

// noteChange has run look at the tools of at. The caller holds mu.
func (s *Server) noteChange(at scope) {
	s.changed[at] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ended ends the MCP sessions of a terminal that is gone, and of who spoke of
// it; pty "" stands for the whole session. Calls under way are cancelled. The
// terminal's secret must be unknown by then.
func (s *Server) Ended(session protocol.SessionID, pty protocol.PTYID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := scope{session, pty}
	delete(s.changed, at)
	for key, o := range s.owners {
		if at.contains(key) {
			s.endOwner(o)
		}
	}
}

// Close ends all sessions and waits for them.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for _, o := range s.owners {
		s.endOwner(o)
	}
	s.mu.Unlock()
	s.cancel()
	s.wait.Wait()
}

// run looks at what has changed, and for what is idle, until ctx ends.
func (s *Server) run(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	wake := s.wake
	pause := time.NewTimer(0)
	<-pause.C
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-sweep.C:
			s.sweep(now)
		case <-wake:
			s.announce()
			wake = nil
			pause.Reset(changePause)
		case <-pause.C:
			wake = s.wake
		}
	}
}
