package tunnel

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// A DialConfig says how an agent reaches and registers at a relay.
type DialConfig struct {
	Addr string      // "host:port"
	TLS  *tls.Config // RootCAs; the server's name defaults to Addr's host
	// Hello signs a registration. exporter is empty on carriers without TLS.
	Hello func(c protocol.Challenge, exporter []byte) (protocol.Hello, error)
	// Carriers are the allowed ones; empty: QUIC and WebSocket. Where both are, bulk
	// goes over a WebSocket beside a tunnel over QUIC.
	Carriers []Carrier
	// Ladder remembers the results of dials; nil: each starts afresh.
	Ladder *Ladder
	Events *Events // may be nil
	Logger *slog.Logger
}

// Dial connects to a relay by whichever carrier is first, and registers. If the
// relay refuses, the error is a *protocol.Error of its kind.
func Dial(ctx context.Context, cfg DialConfig) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.HandshakeTimeout)
	defer cancel()
	conn, err := race(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s, err := Register(ctx, conn, cfg)
	if err != nil && ctx.Err() != nil {
		cfg.Ladder.stalled(carrierOf(conn))
	}
	return s, err
}

// Register makes a Session over a given carrier at the agent's end. It closes
// the carrier if it fails.
func Register(ctx context.Context, conn carrier.Conn, cfg DialConfig) (*Session, error) {
	s := newSession(conn, true, cfg.Events, cfg.Logger)
	abort := context.AfterFunc(ctx, func() {
		conn.Close(protocol.Errorf(protocol.KindUnavailable, "the handshake took too long"))
	})
	err := s.register(ctx, cfg)
	if !abort() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		e := protocol.AsError(err)
		conn.Close(e)
		return nil, err
	}
	s.start()
	return s, nil
}

// register is the agent's half of the handshake.
func (s *Session) register(ctx context.Context, cfg DialConfig) error {
	var err error
	if s.control, err = s.conn.Open(ctx); err != nil {
		return err
	}
	preface := protocol.Preface{Version: protocol.MaxVersion, Lane: protocol.ControlStream}
	if _, err := s.control.Write(protocol.AppendPreface(nil, preface)); err != nil {
		return s.reason(err)
	}
	m, err := readOne(s.control)
	if err != nil {
		return s.reason(err)
	}
	challenge, ok := m.(protocol.Challenge)
	if !ok {
		return fmt.Errorf("tunnel: %s for a CHALLENGE", m.FrameType())
	}
	exporter, err := s.conn.Exporter()
	if err != nil {
		return err
	}
	if s.hello, err = cfg.Hello(challenge, exporter); err != nil {
		return err
	}
	if err := protocol.Write(s.control, s.hello); err != nil {
		return s.reason(err)
	}
	if m, err = readOne(s.control); err != nil {
		return s.reason(err)
	}
	switch m := m.(type) {
	case protocol.Welcome:
		if joiner, ok := s.conn.(carrier.Joiner); ok {
			joiner.Join(m.LaneSecret)
		}
		if carrierOf(s.conn) == CarrierQUIC && len(m.LaneSecret) > 0 && cfg.allows(CarrierWebSocket) {
			s.beside = &beside{addr: cfg.Addr, at: s.conn.RemoteAddr(), tls: cfg.TLS, secret: m.LaneSecret}
		}
		m.LaneSecret = nil // only this session needs it
		s.welcome = m
		return nil
	case protocol.Refused:
		return m.Err()
	}
	return fmt.Errorf("tunnel: %s answers HELLO", m.FrameType())
}

// reason prefers the connection's error over a stream's, once it is over.
func (s *Session) reason(err error) error {
	select {
	case <-s.conn.Done():
		return errors.Join(s.conn.Err(), err)
	default:
		return err
	}
}

// A Registration is a HELLO that waits for its answer.
type Registration struct {
	Hello      protocol.Hello
	Challenge  protocol.Challenge
	Exporter   []byte // covered by the HELLO's signature besides the challenge
	RemoteAddr net.Addr
	// Session is the future tunnel. It may be used once the agent has got WELCOME.
	Session *Session

	turns *turns
}

// AwaitTurn waits until an otherwise valid registration may be accepted, for at
// most 2 s: [ListenConfig.Registrations] limits the rate. Its error is for the
// agent. Call it last, so that agents without the right to register don't use
// up the turns of others.
func (r *Registration) AwaitTurn(ctx context.Context) error {
	waited, err := r.turns.await(ctx)
	if err == nil {
		r.Session.events.waited(waited)
	}
	return err
}

// admit is the relay's half of the handshake, on the control stream.
func (s *Session) admit(ctx context.Context, cfg *ListenConfig, heard func()) error {
	challenge := protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: cfg.relayID()}
	rand.Read(challenge.Nonce)
	if err := protocol.Write(s.control, challenge); err != nil {
		return err
	}
	m, err := readOne(s.control)
	if err != nil {
		return err
	}
	hello, ok := m.(protocol.Hello)
	if !ok {
		return fmt.Errorf("%w: %s for a HELLO", errHello, m.FrameType())
	}
	s.hello = hello
	heard()
	exporter, err := s.conn.Exporter()
	if err != nil {
		return err
	}
	if err := s.decide(ctx, cfg, &Registration{
		Hello: hello, Challenge: challenge, Exporter: exporter, RemoteAddr: s.conn.RemoteAddr(), Session: s,
	}); err != nil {
		e := protocol.AsError(err)
		return errors.Join(err, protocol.Write(s.control, protocol.Refused{Kind: e.Kind, Message: e.Error()}))
	}
	welcome := s.welcome
	if joiner, ok := s.conn.(carrier.Joiner); ok {
		welcome.LaneSecret = joiner.Secret()
	}
	return protocol.Write(s.control, welcome)
}

// decide checks the version and calls cfg.Admit.
func (s *Session) decide(ctx context.Context, cfg *ListenConfig, r *Registration) error {
	version := min(r.Hello.MaxVersion, protocol.MaxVersion)
	if version < max(r.Hello.MinVersion, protocol.MinVersion) {
		return protocol.Errorf(protocol.KindUnsupported, "versions %d to %d are not spoken here, %d to %d are",
			r.Hello.MinVersion, r.Hello.MaxVersion, protocol.MinVersion, protocol.MaxVersion)
	}
	s.welcome = protocol.Welcome{Version: version, RelayID: r.Challenge.RelayID, Revision: cfg.Revision, Origin: cfg.Origin}
	if cfg.Alternates != nil {
		s.welcome.Alternates = cfg.Alternates()
	}
	if cfg.admitting != nil {
		select {
		case cfg.admitting <- struct{}{}:
			defer func() { <-cfg.admitting }()
		default:
			return errBusy
		}
	}
	r.turns = cfg.turns
	return cfg.Admit(ctx, r)
}
