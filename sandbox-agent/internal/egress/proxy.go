// Package egress lets a sandbox's terminals reach the hosts that rules or
// people allow: a forward proxy on loopback for HTTP and CONNECT, its rules,
// and the enforcement that confines a program which ignores the proxy.
//
// A host has one verdict per port, in all its spellings. Loopback is allowed
// without asking, except for the agent's ports; then denying rules count, then
// allowing ones, and otherwise somebody is asked while the connection is held.
// What leaves must match what was asked for: a tunnel to port 443 carries TLS
// for its CONNECT's host, and a request's Host is its URL's.
// for the host of its CONNECT, a request's Host is that of its URL.
package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
)

const (
	// MaxConnections bounds clients' concurrent connections; more get 503. It is
	// well above the number that may wait for one decision.
	MaxConnections = 4096
	// MaxHeadBytes bounds a request's header.
	MaxHeadBytes = 16 << 10

	headTimeout  = 30 * time.Second // for a request's header
	idleTimeout  = 5 * time.Minute  // between two requests
	helloTimeout = 5 * time.Second  // for a ClientHello
	dialTimeout  = 10 * time.Second
)

// Config configures a proxy.
type Config struct {
	Listener net.Listener // on a loopback address; Run closes it
	Rules    *Rules
	Approver Approver // nil: nobody is asked

	Dialer Dialer
	// DialLocal connects to a port of this machine; nil: the default.
	DialLocal func(ctx context.Context, address string) (net.Conn, error)
	Agent     AgentPorts // unreachable through the proxy; nil: none
	// Peers tell the user of a connection's remote socket, if terminals have users
	// of their own; nil: not checked.
	Peers peer.Users
	// OnEvent, if not nil, is called with each verdict on the goroutine that needs
	// it.
	OnEvent func(Event)
	Log     *slog.Logger // nil: silent
}

// A Dialer connects to hosts. *outbound.Dialer is one.
type Dialer interface {
	// DialHost connects to a host at port, or for 0 at its own port. An error of
	// KindForbidden says that the host's address is not public.
	DialHost(ctx context.Context, host hostname.Host, port int) (net.Conn, error)
	// Check fails if DialHost would certainly refuse a host, without resolving it:
	// nobody is asked about such a host.
	Check(host hostname.Host, port int) error
}

// AgentPorts are the agent's own ports.
type AgentPorts interface {
	Owns(port int) bool
}

// A Proxy is the one forward proxy of a sandbox. It is safe for concurrent use.
type Proxy struct {
	// Static after construction.
	cfg      Config
	addr     netip.AddrPort
	counters *counters
	callers  callers // with its own lock
	readers  sync.Pool
	running  sync.WaitGroup // connections and open questions

	// Guarded by mu.
	mu      sync.Mutex
	clients map[*client]bool
	closed  bool
}

// New returns a proxy, to be started with Run. It fails if the listener is
// reachable from outside.
func New(cfg Config) (*Proxy, error) {
	addr, err := netip.ParseAddrPort(cfg.Listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("egress: %w", err)
	}
	if !addr.Addr().IsLoopback() {
		return nil, fmt.Errorf("egress: %s is no loopback address", addr)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.DialLocal == nil {
		cfg.DialLocal = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	p := &Proxy{cfg: cfg, addr: addr, counters: newCounters(), clients: map[*client]bool{}}
	p.callers.byDigest = map[[32]byte]caller{}
	p.readers.New = func() any { return bufio.NewReaderSize(nil, MaxHeadBytes) }
	return p, nil
}

// Addr returns the address that the proxy listens on.
func (p *Proxy) Addr() netip.AddrPort { return p.addr }

// Snapshot returns the counters.
func (p *Proxy) Snapshot() Snapshot { return p.counters.snapshot() }

// Run serves until ctx ends, which is no error, or the listener fails. Then it
// cuts all connections and waits for their end.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer p.running.Wait()
	defer p.cut()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { p.cfg.Listener.Close() })
	defer stop()
	for {
		conn, err := p.cfg.Listener.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case temporary(err):
			// File descriptors are exhausted. Ending connections free some.
			if pause.For(ctx, 50*time.Millisecond) != nil {
				return nil
			}
		case err != nil:
			p.cfg.Listener.Close()
			return fmt.Errorf("egress: %w", err)
		default:
			p.running.Go(func() { p.serve(ctx, conn) })
		}
	}
}

// temporary reports whether a listener may work again after err.
func temporary(err error) bool {
	var timeout interface{ Temporary() bool } // net's errors of accept(2) have it
	return errors.As(err, &timeout) && timeout.Temporary()
}

// enter reports whether a connection may be served.
func (p *Proxy) enter(c *client) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.clients) >= MaxConnections {
		return false
	}
	p.clients[c] = true
	p.counters.connections.Store(int64(len(p.clients)))
	return true
}

func (p *Proxy) leave(c *client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.clients, c)
	p.counters.connections.Store(int64(len(p.clients)))
}

// cut closes all connections.
func (p *Proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.clients {
		c.conn.Close()
	}
}

// dial connects to an allowed request's host.
func (p *Proxy) dial(ctx context.Context, host hostname.Host) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if !host.IsLoopback() {
		return p.cfg.Dialer.DialHost(ctx, host, 0)
	}
	if host.IsIP() {
		return p.cfg.DialLocal(ctx, host.String())
	}
	// localhost needs no resolver.
	conn, err := p.cfg.DialLocal(ctx, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(host.Port)).String())
	if err != nil {
		conn, err = p.cfg.DialLocal(ctx, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(host.Port)).String())
	}
	return conn, err
}

// note counts a verdict and reports it.
func (p *Proxy) note(e Event) {
	p.counters.reasons[e.Reason].Add(1)
	p.cfg.Log.Debug("egress", "session", e.Session, "pty", e.PTY, "host", e.Host, "reason", e.Reason, "waited", e.Waited)
	if p.cfg.OnEvent != nil {
		p.cfg.OnEvent(e)
	}
}

// An Approver asks people whether a connection may be made.
type Approver interface {
	// AskEgress returns the decision about a host and port, for which others may
	// wait already, within [protocol.EgressTTL]. It returns when ctx ends. An
	// error denies: KindExpired if nobody decided in time, KindTooMany if too much
	// is being asked, any other if nobody can be asked. Whoever takes a lasting
	// decision also makes the rule (see [Rules.Decide]), as nobody may be waiting
	// any more.
	AskEgress(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, host hostname.Host) (protocol.Decision, error)
}
