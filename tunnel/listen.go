package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
)

const (
	// maxHandshakes bounds the connections that have not said HELLO yet.
	maxHandshakes = 256
	// refusalTime is how long a refused agent gets to read why.
	refusalTime = time.Second
)

// A ListenConfig says how a relay takes tunnels.
type ListenConfig struct {
	Conn     net.PacketConn // the Listener owns it
	TLS      *tls.Config
	RelayID  protocol.RelayID
	Revision string
	// Origin is the relay's public origin and Alternates the other relays'
	// tunnel addresses ("host:port") at the moment, for WELCOME; either may be
	// empty.
	Origin     string
	Alternates func() []string
	// TrustOrigin says whether an agent's ROLE may name this origin as its
	// primary's; nil: it may name none.
	TrustOrigin func(origin string) bool
	// Admit decides about an agent; its error goes to the agent.
	Admit func(ctx context.Context, r *Registration) error
	// Connect reaches the control plane for an agent at from that isn't
	// registered; its error goes to the agent. The Listener bounds how often it
	// is asked, and pipes. nil: there is no such way.
	Connect func(ctx context.Context, from net.Addr) (net.Conn, error)
	// Connected hears what became of each such connection; it may be nil.
	Connected func(ConnectOutcome)
	// StatelessResetKey and TokenKey, 32 bytes each or empty, let a restarted
	// relay be known to its predecessor's agents.
	StatelessResetKey, TokenKey []byte
	Logger                      *slog.Logger
}

// A Listener takes tunnels from agents.
type Listener struct {
	cfg       ListenConfig
	quic      *quiclink.Listener
	connector *connector
	sessions  chan *Session
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// Listen takes tunnels on cfg.Conn.
func Listen(cfg ListenConfig) (*Listener, error) {
	q, err := quiclink.Listen(cfg.Conn, cfg.TLS, cfg.StatelessResetKey, cfg.TokenKey)
	if err != nil {
		return nil, err
	}
	l := newListener(cfg)
	l.quic = q
	l.running.Go(l.accept)
	return l, nil
}

func newListener(cfg ListenConfig) *Listener {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Listener{cfg: cfg, connector: newConnector(cfg.Connect, cfg.Connected), sessions: make(chan *Session)}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Addr returns the address that agents dial.
func (l *Listener) Addr() net.Addr { return l.quic.Addr() }

// accept takes connections and runs their handshakes, a bounded number at a
// time.
func (l *Listener) accept() {
	room := make(chan struct{}, maxHandshakes)
	for {
		conn, err := l.quic.Accept(l.ctx)
		if err != nil {
			return
		}
		select {
		case room <- struct{}{}:
		default:
			conn.Close(protocol.Errorf(protocol.KindTooMany, "too many handshakes"))
			continue
		}
		l.running.Go(func() {
			next := l.handshake(conn)
			<-room // whatever comes next has bounds of its own
			next()
		})
	}
}

// handshake admits the agent on conn, or closes conn. It returns what is left
// to do with it.
func (l *Listener) handshake(conn carrier.Conn) (next func()) {
	ctx, cancel := context.WithTimeout(l.ctx, protocol.HandshakeTimeout)
	defer cancel()
	stream, name, err := greet(ctx, conn)
	if err == nil && name == protocol.ConnectStream {
		return func() { l.connector.serve(l.ctx, conn, stream) }
	}
	s, err := admit(ctx, conn, &l.cfg, stream, err)
	if err != nil {
		l.cfg.Logger.Info("tunnel refused", "addr", conn.RemoteAddr(), "sandbox", s.hello.SandboxID, "err", err)
		return func() {}
	}
	return func() { l.serve(s) }
}

// greet takes the first stream that the agent opens, and returns what it is
// named.
func greet(ctx context.Context, conn carrier.Conn) (stream carrier.Stream, name protocol.Lane, err error) {
	abort := context.AfterFunc(ctx, func() { conn.Close(protocol.Errorf(protocol.KindUnavailable, "no HELLO in time")) })
	defer abort()
	if stream, err = conn.Accept(ctx); err != nil {
		return nil, "", err
	}
	stream.SetDeadline(time.Now().Add(protocol.HandshakeTimeout))
	preface, err := protocol.ReadPreface(stream)
	if err == nil && preface.Lane != protocol.ControlStream && preface.Lane != protocol.ConnectStream {
		err = protocol.Errorf(protocol.KindInvalid, "tunnel: the first stream is no control stream")
	}
	return stream, preface.Lane, err
}

// Admit makes a Session of a carrier at the relay's end. If that fails it
// closes the carrier, after the agent could read why, and returns the Session
// only to tell who it was.
func Admit(ctx context.Context, conn carrier.Conn, cfg *ListenConfig) (*Session, error) {
	stream, name, err := greet(ctx, conn)
	if err == nil && name != protocol.ControlStream {
		err = protocol.Errorf(protocol.KindUnsupported, "tunnel: only registered agents here")
	}
	return admit(ctx, conn, cfg, stream, err)
}

// admit is Admit once the control stream is there, or why it isn't.
func admit(ctx context.Context, conn carrier.Conn, cfg *ListenConfig, control carrier.Stream, err error) (*Session, error) {
	s := newSession(conn, false, cfg.Logger)
	s.control, s.role.trust = control, cfg.TrustOrigin
	if err != nil {
		s.end(err)
		return s, err
	}
	abort := context.AfterFunc(ctx, func() { conn.Close(protocol.Errorf(protocol.KindUnavailable, "no HELLO in time")) })
	err = s.admit(ctx, cfg)
	if !abort() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if s.hello.SandboxID != "" { // REFUSED is on its way
			select {
			case <-conn.Done():
			case <-ctx.Done():
			case <-time.After(refusalTime):
			}
		}
		s.end(err)
		return s, err
	}
	s.start()
	return s, nil
}

// serve hands a session to Accept and waits for its end.
func (l *Listener) serve(s *Session) {
	select {
	case l.sessions <- s:
		select {
		case <-s.Done():
		case <-l.ctx.Done():
		}
	case <-l.ctx.Done():
	}
	s.CloseWith(protocol.Errorf(protocol.KindRestarting, "the relay is going away")) // unless it is over
	s.Close()
}

// Accept returns the next tunnel of an admitted agent.
func (l *Listener) Accept(ctx context.Context) (*Session, error) {
	select {
	case s := <-l.sessions:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the listener and all its tunnels, and waits for them.
func (l *Listener) Close() error {
	l.cancel()
	l.running.Wait() // while the socket still works, so that agents hear why
	var err error
	if l.quic != nil {
		err = l.quic.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
