// Package egress lets the terminals of a sandbox out to the hosts that rules
// or people allow: a forward proxy on loopback for HTTP and CONNECT, its rules,
// and the enforcement by which a program that ignores the proxy stays inside.
//
// A host has one verdict per port, in all its spellings. Loopback is reached
// without asking, but for ports of the agent; then what denies counts, then
// what allows, and for the rest somebody is asked while the connection is held.
// What is let out must be what was asked for: a tunnel to port 443 carries TLS
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
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

const (
	// MaxConnections is the most connections of clients at a time; more are
	// answered 503. It lies well above the number of those who may wait for
	// one decision.
	MaxConnections = 4096
	// MaxHeadBytes bounds the head of a request.
	MaxHeadBytes = 16 << 10

	headTimeout  = 30 * time.Second // for the head of a request
	idleTimeout  = 5 * time.Minute  // between two requests
	helloTimeout = 5 * time.Second  // for a ClientHello
	dialTimeout  = 10 * time.Second
)

// Config is what a proxy works with.
type Config struct {
	Listener net.Listener // on a loopback address; Run closes it
	Rules    *Rules
	Approver Approver // nil: nobody can be asked

	Dialer Dialer
	// DialLocal connects to a port of this machine. Nil: as usual.
	DialLocal func(ctx context.Context, address string) (net.Conn, error)
	Agent     AgentPorts // can't be reached through the proxy; nil: there are none
	// PeerUID returns whose socket is at the remote end of a connection, where
	// terminals have users of their own. Nil: not checked.
	PeerUID func(local, remote netip.AddrPort) (int, error)
	// OnEvent is told each verdict, beside the log, on the goroutine that waits for
	// it. Nil: nobody is.
	OnEvent func(Event)
	Log     *slog.Logger // nil: silent
}

// A Dialer connects to hosts. *outbound.Dialer is one.
type Dialer interface {
	// DialHost connects to a host at its port, for port 0. An error of
	// KindForbidden says that the host's address is not public.
	DialHost(ctx context.Context, host hostname.Host, port int) (net.Conn, error)
	// Check returns an error where DialHost would surely refuse a host, without
	// resolving it: nobody is asked about such a one.
	Check(host hostname.Host, port int) error
}

// AgentPorts are where the agent itself listens.
type AgentPorts interface {
	Owns(port int) bool
}

// A Proxy is the one forward proxy of a sandbox. It is safe for concurrent use.
type Proxy struct {
	// Static after construction.
	cfg      Config
	addr     netip.AddrPort
	counters *counters
	callers  callers // has a lock of its own
	readers  sync.Pool
	running  sync.WaitGroup // connections, and questions that are being asked

	// Guarded by mu.
	mu      sync.Mutex
	clients map[*client]bool
	closed  bool
}

// New returns a proxy that serves once it is run. It fails when the listener
// can be reached from outside.
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

// Snapshot returns how the counters stand.
func (p *Proxy) Snapshot() Snapshot { return p.counters.snapshot() }

// Run serves until ctx ends, which is no error, or the listener fails. Then it
// cuts all connections and returns when nothing of them is left.
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
			// No file descriptors are left. Connections that end give some back.
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
	var timeout interface{ Temporary() bool } // what net's errors of accept(2) tell
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

// dial connects to where a verdict lets a request go.
func (p *Proxy) dial(ctx context.Context, host hostname.Host) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if !host.IsLoopback() {
		return p.cfg.Dialer.DialHost(ctx, host, 0)
	}
	if host.IsIP() {
		return p.cfg.DialLocal(ctx, host.String())
	}
	// What localhost resolves to is no business of a resolver.
	conn, err := p.cfg.DialLocal(ctx, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(host.Port)).String())
	if err != nil {
		conn, err = p.cfg.DialLocal(ctx, netip.AddrPortFrom(netip.IPv6Loopback(), uint16(host.Port)).String())
	}
	return conn, err
}

// note counts a verdict and tells whoever wants to know.
func (p *Proxy) note(e Event) {
	p.counters.reasons[e.Reason].Add(1)
	p.cfg.Log.Debug("egress", "session", e.Session, "pty", e.PTY, "host", e.Host, "reason", e.Reason, "waited", e.Waited)
	if p.cfg.OnEvent != nil {
		p.cfg.OnEvent(e)
	}
}
