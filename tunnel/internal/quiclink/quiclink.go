// Package quiclink carries tunnels over QUIC.
package quiclink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

const (
	// idleTimeout ends a connection that is silent for so long. The tunnel
	// pings well within it.
	idleTimeout = 10 * time.Second
	// maxStreams bounds the streams a peer may have open: the control stream
	// and its lanes.
	maxStreams = 16
	// Handshakes beyond these rates must prove their address first (RFC 9000
	// §8.1), so that a flood with forged addresses costs us nothing.
	freeHandshakesPerSecond = 50
	freeHandshakeBurst      = 100

	// connectionIDBytes is the length of the relay's connection ids. quic-go
	// answers a packet with a stateless reset only if that is shorter, which a
	// lone PING under the default of 4 B (40 B in all) does not allow.
	connectionIDBytes = 12

	// maxReason bounds the reason of a close in bytes: it must fit one packet,
	// or quic-go sends no close at all.
	maxReason = 256

	exporterLabel = "EXPORTER-fairlead"
	exporterBytes = 32
)

func config() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:  protocol.HandshakeTimeout / 2, // quic-go gives the whole twice that
		MaxIdleTimeout:        idleTimeout,
		MaxIncomingStreams:    maxStreams,
		MaxIncomingUniStreams: -1,
	}
}

func withALPN(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.NextProtos = []string{protocol.ALPN}
	return config
}

// Dial connects to a relay at addr ("host:port").
func Dial(ctx context.Context, addr string, tlsConfig *tls.Config) (carrier.Conn, error) {
	remote, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("quiclink: %w", err)
	}
	socket, err := connectedSocket(remote)
	if err != nil {
		return nil, fmt.Errorf("quiclink: %w", err)
	}
	tlsConfig = withALPN(tlsConfig)
	if tlsConfig.ServerName == "" {
		tlsConfig.ServerName, _, _ = net.SplitHostPort(addr)
	}
	transport := &quic.Transport{Conn: socket}
	conn, err := transport.Dial(ctx, remote, tlsConfig, config())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("quiclink: %w", err), transport.Close(), socket.Close())
	}
	context.AfterFunc(conn.Context(), func() { // the socket serves this connection alone
		transport.Close()
		socket.Close()
	})
	return &link{conn}, nil
}

// A Listener accepts connections from agents.
type Listener struct {
	transport *quic.Transport
	listener  *quic.Listener
	socket    net.PacketConn
}

// Listen accepts connections on socket, which it owns from then on. The keys
// are 32 bytes each, or empty; with the same keys a restarted relay ends its
// predecessor's connections at once (RFC 9000 §10.3).
func Listen(socket net.PacketConn, tlsConfig *tls.Config, resetKey, tokenKey []byte) (*Listener, error) {
	free := rate.NewLimiter(freeHandshakesPerSecond, freeHandshakeBurst)
	transport := &quic.Transport{
		Conn:                socket,
		ConnectionIDLength:  connectionIDBytes,
		VerifySourceAddress: func(net.Addr) bool { return !free.Allow() },
	}
	if len(resetKey) == len(quic.StatelessResetKey{}) {
		transport.StatelessResetKey = (*quic.StatelessResetKey)(resetKey)
	}
	if len(tokenKey) == len(quic.TokenGeneratorKey{}) {
		transport.TokenGeneratorKey = (*quic.TokenGeneratorKey)(tokenKey)
	}
	listener, err := transport.Listen(withALPN(tlsConfig), config())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("quiclink: %w", err), transport.Close())
	}
	return &Listener{transport, listener, socket}, nil
}

// Accept returns the next connection whose TLS handshake is done.
func (l *Listener) Accept(ctx context.Context) (carrier.Conn, error) {
	conn, err := l.listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return &link{conn}, nil
}

// Addr returns the local address.
func (l *Listener) Addr() net.Addr { return l.socket.LocalAddr() }

// Close ends the listener and all its connections.
func (l *Listener) Close() error {
	return errors.Join(l.listener.Close(), l.transport.Close(), l.socket.Close())
}

// A link is a QUIC connection as a carrier.
type link struct{ conn *quic.Conn }

func (l *link) Open(ctx context.Context) (carrier.Stream, error) {
	s, err := l.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, translate(err)
	}
	return &stream{s}, nil
}

func (l *link) Accept(ctx context.Context) (carrier.Stream, error) {
	s, err := l.conn.AcceptStream(ctx)
	if err != nil {
		return nil, translate(err)
	}
	return &stream{s}, nil
}

// Close tells the peer the kind as the application's error code and the
// message as its reason.
func (l *link) Close(e *protocol.Error) {
	reason := e.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	l.conn.CloseWithError(quic.ApplicationErrorCode(e.Kind), reason)
}

func (l *link) Done() <-chan struct{} { return l.conn.Context().Done() }

func (l *link) Err() error { return translate(context.Cause(l.conn.Context())) }

// Exporter returns keying material of the TLS connection (RFC 5705).
func (l *link) Exporter() ([]byte, error) {
	state := l.conn.ConnectionState().TLS
	return state.ExportKeyingMaterial(exporterLabel, nil, exporterBytes)
}

func (l *link) RemoteAddr() net.Addr { return l.conn.RemoteAddr() }

// A stream is a QUIC stream whose Close ends both directions.
type stream struct{ *quic.Stream }

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	return n, translate(err)
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	return n, translate(err)
}

func (s *stream) Close() error {
	s.CancelRead(0)
	return s.Stream.Close()
}

// CloseWrite ends the direction to the peer.
func (s *stream) CloseWrite() error { return s.Stream.Close() }

// translate turns the peer's application error back into a protocol.Error.
func translate(err error) error {
	if err == nil || err == io.EOF { // the common cases, at no cost
		return err
	}
	var app *quic.ApplicationError
	if errors.As(err, &app) && app.Remote {
		return protocol.Errorf(protocol.Kind(app.ErrorCode), "peer: %s", app.ErrorMessage)
	}
	return err
}
