package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

const (
	// maxHandshakes bounds the connections that have not sent HELLO yet,
	// maxAdmitting those that have and wait for the answer.
	maxHandshakes = 256
	maxAdmitting  = 1024
	// refusalTime is how long a refused agent has to read the reason.
	refusalTime = time.Second
)

// errHello ends a handshake that began with another message.
var errHello = protocol.Errorf(protocol.KindInvalid, "tunnel: not a registration")

// A ListenConfig says how a relay accepts tunnels.
type ListenConfig struct {
	Conn net.PacketConn // for QUIC; the Listener owns it
	// WebSocket accepts agents that QUIC doesn't reach; the Listener owns it. nil:
	// only a mounted WebSocketHandler does.
	WebSocket net.Listener
	TLS       *tls.Config // for both
	RelayID   protocol.RelayID
	// Named returns the relay's id if it isn't known from the start; nil: RelayID.
	Named    func() protocol.RelayID
	Revision string
	// Origin is the relay's public origin and Alternates the other relays' current
	// tunnel addresses ("host:port"), for WELCOME; either may be empty.
	Origin     string
	Alternates func() []string
	// TrustOrigin reports whether an agent's ROLE may name this origin as its
	// primary's; nil: none.
	TrustOrigin func(origin string) bool
	// Admit decides about an agent, which gets its error.
	Admit func(ctx context.Context, r *Registration) error
	// Connect reaches the control plane for an unregistered agent at from, which
	// gets its error. The Listener limits the calls, and pipes. nil: there is no
	// way to the control plane.
	Connect func(ctx context.Context, from net.Addr) (net.Conn, error)
	// Connected is called with each such connection's outcome; it may be nil.
	Connected func(ConnectOutcome)
	// StatelessResetKey and TokenKey, 32 bytes each or empty, let the agents of a
	// relay's last process recognize it after a restart.
	StatelessResetKey, TokenKey []byte
	// Registrations is how many agents may register per second, a tenth of that
	// at once; 0: any number. Admit awaits their turns, see
	// [Registration.AwaitTurn].
	Registrations float64
	Events        *Events // nil: nothing is counted
	Logger        *slog.Logger

	turns     *turns        // of Registrations
	admitting chan struct{} // one for each agent that waits for an answer; nil: unbounded
}

// A Listener accepts tunnels from agents.
type Listener struct {
	cfg       ListenConfig
	quic      *quiclink.Listener
	sockets   *wsslink.Listener
	waiting   *waitlist
	connector *connector
	sessions  chan *Session
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// Listen accepts tunnels on cfg.Conn and cfg.WebSocket.
func Listen(cfg ListenConfig) (*Listener, error) {
	q, err := quiclink.Listen(cfg.Conn, cfg.TLS, cfg.StatelessResetKey, cfg.TokenKey)
	if err != nil {
		return nil, err
	}
	l := newListener(cfg)
	l.quic = q
	l.sockets.Lend(q)
	l.running.Go(func() { l.accept(q) })
	l.running.Go(func() { l.accept(l.sockets) })
	if cfg.WebSocket != nil {
		l.sockets.Serve(cfg.WebSocket, cfg.TLS)
	}
	return l, nil
}

// WebSocketPath is the path at which agents expect WebSocketHandler.
const WebSocketPath = wsslink.Path

// WebSocketHandler accepts tunnels over WebSocket from an HTTP server at
// WebSocketPath. It must precede any check of names: it refuses browsers.
// ownTLS says that TLS ends at that server. Otherwise TLS ends at a proxy, and
// registrations aren't bound to it.
func (l *Listener) WebSocketHandler(ownTLS bool) http.Handler { return l.sockets.Handler(ownTLS) }

// ration makes the limits of registrations.
func (cfg *ListenConfig) ration() {
	cfg.turns, cfg.admitting = newTurns(cfg.Registrations), make(chan struct{}, maxAdmitting)
}

// relayID returns the relay's current id.
func (cfg *ListenConfig) relayID() protocol.RelayID {
	if cfg.Named != nil {
		return cfg.Named()
	}
	return cfg.RelayID
}

func newListener(cfg ListenConfig) *Listener {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Events == nil {
		cfg.Events = &Events{}
	}
	cfg.ration()
	l := &Listener{
		cfg: cfg, connector: newConnector(cfg.Connect, cfg.Connected), sessions: make(chan *Session),
		sockets: wsslink.NewListener(cfg.Events.socket, upgrades(), cfg.Logger), waiting: newWaitlist(maxHandshakes),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Addr returns the address that agents dial.
func (l *Listener) Addr() net.Addr { return l.quic.Addr() }

// An acceptor yields the connections of one carrier.
type acceptor interface {
	Accept(ctx context.Context) (carrier.Conn, error)
}

// accept accepts connections and runs their handshakes, a bounded number at a
// time.
func (l *Listener) accept(from acceptor) {
	for {
		conn, err := from.Accept(l.ctx)
		if err != nil {
			return
		}
		newcomer := &newcomer{Conn: conn}
		if newcomer.slot = l.waiting.enter(conn.RemoteAddr(), newcomer.evict); newcomer.slot == nil {
			l.cfg.Events.handshake(carrierOf(conn), HandshakeBusy, 0)
			l.running.Go(func() { conn.Close(errBusy) }) // a peer that doesn't read must not delay others
			continue
		}
		l.running.Go(func() {
			next := l.handshake(newcomer)
			newcomer.slot.leave()
			next()
		})
	}
}

// A newcomer is a connection without a HELLO yet.
type newcomer struct {
	carrier.Conn
	slot    *slot
	evicted atomic.Bool // another connection got its slot
}

func (n *newcomer) evict(e *protocol.Error) {
	n.evicted.Store(true)
	n.Close(e)
}

// handshake admits the agent or closes its connection, and returns what remains
// to be done.
func (l *Listener) handshake(n *newcomer) (next func()) {
	conn := n.Conn
	began := time.Now()
	ctx, cancel := context.WithTimeout(l.ctx, protocol.HandshakeTimeout)
	defer cancel()
	stream, name, err := greet(ctx, conn)
	if err == nil && name == protocol.ConnectStream {
		return func() { l.connector.serve(l.ctx, conn, stream) }
	}
	s, err := admit(ctx, conn, &l.cfg, stream, n.slot.leave, err)
	outcome := outcomeOf(ctx, s, err)
	if err != nil && n.evicted.Load() {
		outcome = HandshakeBusy
	}
	l.cfg.Events.handshake(s.Carrier(), outcome, time.Since(began))
	if err != nil {
		level := slog.LevelInfo
		if outcome == HandshakeAbandoned {
			level = slog.LevelDebug
		}
		l.cfg.Logger.Log(ctx, level, "tunnel refused", "addr", conn.RemoteAddr(), "carrier", s.Carrier(),
			"sandbox", s.hello.SandboxID, "outcome", outcome, "err", err)
		return func() {}
	}
	return func() { l.serve(s) }
}

// outcomeOf says how the handshake of s ended.
func outcomeOf(ctx context.Context, s *Session, err error) HandshakeOutcome {
	switch {
	case err == nil:
		return HandshakeRegistered
	case errors.Is(err, errRate):
		return HandshakeRate
	case errors.Is(err, errBusy):
		return HandshakeBusy
	case s.hello.SandboxID != "":
		return HandshakeOutcome(protocol.KindOf(err).String())
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return HandshakeTimeout
	case errors.Is(err, errHello):
		return HandshakeOutcome(protocol.KindInvalid.String())
	}
	return HandshakeAbandoned
}

// greet accepts the agent's first stream, and returns its name.
func greet(ctx context.Context, conn carrier.Conn) (stream carrier.Stream, name protocol.Lane, err error) {
	abort := context.AfterFunc(ctx, func() { conn.Close(protocol.Errorf(protocol.KindUnavailable, "no HELLO in time")) })
	defer abort()
	if stream, err = conn.Accept(ctx); err != nil {
		return nil, "", err
	}
	stream.SetDeadline(time.Now().Add(protocol.HandshakeTimeout))
	preface, err := protocol.ReadPreface(stream)
	if err == nil && preface.Lane != protocol.ControlStream && preface.Lane != protocol.ConnectStream {
		err = fmt.Errorf("%w: the first stream is no control stream", errHello)
	}
	return stream, preface.Lane, err
}

// Admit makes a Session of a carrier at the relay's end. If that fails it
// closes the carrier once the agent could read why. It then returns the Session
// only to name the agent.
func Admit(ctx context.Context, conn carrier.Conn, cfg *ListenConfig) (*Session, error) {
	stream, name, err := greet(ctx, conn)
	if err == nil && name != protocol.ControlStream {
		err = protocol.Errorf(protocol.KindUnsupported, "tunnel: only registered agents here")
	}
	return admit(ctx, conn, cfg, stream, func() {}, err)
}

// admit is Admit with the control stream, or with the error that prevented it.
// It calls hello when HELLO has arrived.
func admit(
	ctx context.Context, conn carrier.Conn, cfg *ListenConfig, control carrier.Stream, hello func(), err error,
) (*Session, error) {
	s := newSession(conn, false, cfg.Events, cfg.Logger)
	s.control, s.role.trust = control, cfg.TrustOrigin
	if err != nil {
		s.end(err)
		return s, err
	}
	abort := context.AfterFunc(ctx, func() { conn.Close(protocol.Errorf(protocol.KindUnavailable, "no HELLO in time")) })
	err = s.admit(ctx, cfg, hello)
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

// serve passes a session to Accept and waits for its end.
func (l *Listener) serve(s *Session) {
	began := time.Now()
	l.cfg.Events.opened(s.Carrier())
	defer func() { l.cfg.Events.closed(s.Carrier(), protocol.KindOf(s.Err()), time.Since(began)) }()
	select {
	case l.sessions <- s:
		select {
		case <-s.Done():
		case <-l.ctx.Done():
		}
	case <-l.ctx.Done():
	}
	s.CloseWith(protocol.Errorf(protocol.KindRestarting, "the relay is going away")) // unless it has ended
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
	l.running.Wait() // while the socket still works, so that agents learn the reason
	l.sockets.Close()
	var err error
	if l.quic != nil {
		err = l.quic.Close()
	}
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
