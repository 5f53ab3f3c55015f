// Package mcp serves the tools of a sandbox by the Model Context Protocol: to
// the programs of its terminals on loopback, and to people's clients through
// relays. Two plain requests list and call the same tools, as in seed 001.
//
// A program shows the secret of its terminal, a person a grant. An MCP session
// belongs to the caller that began it. When a caller's tools change, its
// clients are told at once and needn't poll.
package mcp

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/pluginsocket"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	// Name is what the server calls itself.
	Name = "fairlead"
	// MaxSessions bounds the MCP sessions of all callers, MaxSessionsPerCaller
	// those of one. At the limit the session that is idle for longest ends;
	// sessions with a request under way never do.
	MaxSessions          = 512
	MaxSessionsPerCaller = 64
	// MaxRequestsPerCaller bounds a caller's requests under way, streams included.
	MaxRequestsPerCaller = 128
	// IdleTimeout is how long a session may have no request.
	IdleTimeout = 30 * time.Minute

	// changePause is the time between two checks for changes. It exceeds the SDK's
	// wait for further changes, which otherwise would never end.
	changePause = 20 * time.Millisecond
	// sweepEvery is the time between two checks for idle sessions.
	sweepEvery = time.Minute
)

// Terminals are the sandbox's. *terminal.Host has them.
type Terminals interface {
	// UID returns the user of a terminal; false when there is no such terminal.
	UID(session protocol.SessionID, pty protocol.PTYID) (int, bool)
	// AgentTurn, AgentStarted and AgentReady learn of a terminal's coding agents:
	// a turn has ended or begun, or the first prompt is awaited.
	AgentTurn(session protocol.SessionID, pty protocol.PTYID, turn protocol.AgentTurn) error
	AgentStarted(session protocol.SessionID, pty protocol.PTYID, agent string) error
	AgentReady(session protocol.SessionID, pty protocol.PTYID, agent string) error
	// Scrollback returns the end of a terminal's output, as plain text.
	Scrollback(session protocol.SessionID, pty protocol.PTYID) ([]byte, error)
	// NoteTools learns that the tools of a terminal's programs have changed, and
	// their number from old, at first 0, to now. It must not block.
	NoteTools(session protocol.SessionID, pty protocol.PTYID, old, now int)
}

// Options configure a Server. Listener, Terminals and Sets must be set.
type Options struct {
	Listener  net.Listener // on loopback; Run serves it
	Terminals Terminals
	Sessions  Sessions      // nil: nobody asks
	Plugins   Plugins       // nil: there are none
	Sets      []toolbox.Set // of tools with one name, the first counts
	// Peers tell the user at the other end of a connection; nil: only the secret is
	// checked.
	Peers   peer.Users
	Secrets *mask.Secrets // masked in answers
	Version string        // of this program
	Log     *slog.Logger

	features // for the conformance suite
}

// features are what a server has besides tools. Only tests set any.
type features struct {
	adjust func(*sdk.ServerOptions)
	extend func(*sdk.Server)
}

// Sessions learn which session of its own a coding agent in a terminal has open.
type Sessions interface {
	AgentSession(session protocol.SessionID, pty protocol.PTYID, agent, native string)
}

// Plugins take what programs of terminals register.
type Plugins interface {
	Register(session protocol.SessionID, pty protocol.PTYID, offer pluginsocket.Offer) (pluginsocket.Info, error)
}

// Server serves MCP. It is safe for concurrent use.
type Server struct {
	// Static after construction.
	*metrics  // a collector, too
	opts      Options
	loopback  *http.Server
	port      int // of the listener
	known     *credentials
	events    *eventStore
	stateful  http.Handler // for sessions
	stateless http.Handler // for versions of the protocol without sessions
	schemas   schemas
	cancel    context.CancelFunc
	wake      chan struct{}  // changed isn't empty
	wait      sync.WaitGroup // for run, and for the goroutines that end sessions

	mu sync.Mutex
	// Guarded by mu.
	closed   bool
	owners   map[ownerKey]*owner
	sessions int            // of all owners
	large    int            // requests with a large body, of all owners
	changed  map[scope]bool // whose tools may have changed; bounded by the terminals
}

// A scope is a terminal, or all of a session if pty is empty.
type scope struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

func (s scope) contains(k ownerKey) bool {
	return s.session == k.session && (s.pty == "" || s.pty == k.pty)
}

// New returns a Server. Close must be called when it is no longer needed.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Version == "" {
		opts.Version = "dev"
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		opts: opts, port: opts.Listener.Addr().(*net.TCPAddr).Port, events: newEventStore(), cancel: cancel, wake: make(chan struct{}, 1),
		owners: make(map[ownerKey]*owner), changed: make(map[scope]bool),
		known: &credentials{at: "http://" + opts.Listener.Addr().String(), byPTY: make(map[protocol.PTYID]protocol.MCPCredentials)},
	}
	s.metrics = newMetrics(s)
	s.stateful, s.stateless = s.transports()
	s.loopback = loopbackServer(s.Loopback())
	s.wait.Go(func() { s.run(ctx) }) // Close waits
	return s
}

// Changed says that the tools of a terminal's callers may have changed; pty ""
// stands for all callers of the session. It returns at once. Clients whose
// tools did change are told within milliseconds, once for many calls.
func (s *Server) Changed(session protocol.SessionID, pty protocol.PTYID) {
	if pty != "" {
		if _, ok := s.known.secret(session, pty); !ok {
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

// noteChange makes run check the tools of at. The caller holds mu.
func (s *Server) noteChange(at scope) {
	s.changed[at] = true
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Ended ends the MCP sessions of an ended terminal's programs, and of people
// who named it; pty "" stands for the whole session. Calls under way are
// cancelled. The terminal's secret must be forgotten before.
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
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, o := range s.owners {
		s.endOwner(o)
	}
	s.mu.Unlock()
	s.cancel()
	s.wait.Wait()
	return nil
}

// run checks for changes and for idle sessions until ctx ends.
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
