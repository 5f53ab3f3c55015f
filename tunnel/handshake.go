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
	"github.com/fairlead/fairlead/tunnel/internal/quiclink"
)

// A DialConfig says how an agent reaches and registers at a relay.
type DialConfig struct {
	Addr string      // "host:port"
	TLS  *tls.Config // RootCAs; the server's name defaults to Addr's host
	// Hello signs a registration. exporter is empty on carriers without TLS.
	Hello  func(c protocol.Challenge, exporter []byte) (protocol.Hello, error)
	Logger *slog.Logger
}

// Dial connects to a relay and registers. A relay that refuses is a
// *protocol.Error of its kind.
func Dial(ctx context.Context, cfg DialConfig) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.HandshakeTimeout)
	defer cancel()
	conn, err := quiclink.Dial(ctx, cfg.Addr, cfg.TLS)
	if err != nil {
		return nil, err
	}
	return Register(ctx, conn, cfg)
}

// Register makes a Session of a carrier at the agent's end, and closes the
// carrier if that fails. It is Dial for other carriers than QUIC.
func Register(ctx context.Context, conn carrier.Conn, cfg DialConfig) (*Session, error) {
	s := newSession(conn, true, cfg.Logger)
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
	s.frames = protocol.NewFrameReader(s.control)
	m, err := readMessage(s.frames)
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
	if m, err = readMessage(s.frames); err != nil {
		return s.reason(err)
	}
	switch m := m.(type) {
	case protocol.Welcome:
		s.welcome = m
		return nil
	case protocol.Refused:
		return m.Err()
	}
	return fmt.Errorf("tunnel: %s answers HELLO", m.FrameType())
}

// reason prefers the connection's word over a stream's, once it is over.
func (s *Session) reason(err error) error {
	select {
	case <-s.conn.Done():
		return errors.Join(s.conn.Err(), err)
	default:
		return err
	}
}

// A Registration is an agent that has said HELLO and waits for the answer.
type Registration struct {
	Hello      protocol.Hello
	Challenge  protocol.Challenge
	Exporter   []byte // what the HELLO's signature covers beside the challenge
	RemoteAddr net.Addr
	// Session is the tunnel as it will be. Its use waits until the agent is
	// welcome.
	Session *Session
}

// admit is the relay's half of the handshake, on the control stream.
func (s *Session) admit(ctx context.Context, cfg *ListenConfig) error {
	challenge := protocol.Challenge{Nonce: make([]byte, protocol.NonceBytes), RelayID: cfg.RelayID}
	rand.Read(challenge.Nonce)
	if err := protocol.Write(s.control, challenge); err != nil {
		return err
	}
	s.frames = protocol.NewFrameReader(s.control)
	m, err := readMessage(s.frames)
	if err != nil {
		return err
	}
	hello, ok := m.(protocol.Hello)
	if !ok {
		return protocol.Errorf(protocol.KindInvalid, "tunnel: %s for a HELLO", m.FrameType())
	}
	s.hello = hello
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
	return protocol.Write(s.control, s.welcome)
}

// decide checks the version and asks who owns the fleet.
func (s *Session) decide(ctx context.Context, cfg *ListenConfig, r *Registration) error {
	version := min(r.Hello.MaxVersion, protocol.MaxVersion)
	if version < max(r.Hello.MinVersion, protocol.MinVersion) {
		return protocol.Errorf(protocol.KindUnsupported, "versions %d to %d are not spoken here, %d to %d are",
			r.Hello.MinVersion, r.Hello.MaxVersion, protocol.MinVersion, protocol.MaxVersion)
	}
	s.welcome = protocol.Welcome{Version: version, RelayID: cfg.RelayID, Revision: cfg.Revision, Origin: cfg.Origin}
	if cfg.Alternates != nil {
		s.welcome.Alternates = cfg.Alternates()
	}
	return cfg.Admit(ctx, r)
}
