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
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
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

// Terminals are the sandbox's. *terminal.Host has them.
type Terminals interface {
	// UID returns the user of a terminal; false when there is no such terminal.
	UID(session protocol.SessionID, pty protocol.PTYID) (int, bool)
	// AgentTurn, AgentStarted and AgentReady are told of the coding agents in a
	// terminal: a turn has ended, or begun, or the first prompt is waited for.
	AgentTurn(session protocol.SessionID, pty protocol.PTYID, turn protocol.AgentTurn) error
	AgentStarted(session protocol.SessionID, pty protocol.PTYID, agent string) error
	AgentReady(session protocol.SessionID, pty protocol.PTYID, agent string) error
	// Scrollback returns the end of what a terminal has shown, as plain text.
	Scrollback(session protocol.SessionID, pty protocol.PTYID) ([]byte, error)
	// NoteTools is told that the programs of a terminal have other tools than
	// before, old of them then and so many now; at first old is 0. It must not
	// block.
	NoteTools(session protocol.SessionID, pty protocol.PTYID, old, now int)
}

// Options are what a Server works with. Listener, Terminals and Sets must be set.
type Options struct {
	Listener  net.Listener // on loopback; Run serves it
	Terminals Terminals
	Sets      []toolbox.Set // of two tools of one name, the first counts
	// PeerUID returns the user at the other end of a connection; peer.UID does.
	// nil: the secret alone is looked at.
	PeerUID func(local, remote netip.AddrPort) (int, error)
	Secrets *mask.Secrets // are masked in answers
	Version string        // of this program
	Log     *slog.Logger

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

// Changed says that the tools of a terminal's callers may be others than
// before; pty "" stands for all callers of the session. It returns at once:
// clients whose tools are really others are told within milliseconds, once for
// many calls.
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
