package quiclink

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

const (
	// secretBytes is the length of a link's secret.
	secretBytes = 32
	// joinALPN begins the protocol name of connections that join a link.
	joinALPN = protocol.ALPN + "/"
	// joinTimeout bounds the handshake of such a connection.
	joinTimeout = 3 * time.Second
	// joinKeepAlive keeps such a connection, which the tunnel's PINGs don't
	// cross, from being idle, and lets the relay know where its agent is after
	// a change of address.
	joinKeepAlive = 2 * time.Second
	// maxJoining bounds the connections whose streams are being identified.
	maxJoining = 256
)

var encoding = base64.RawURLEncoding

// A link is a QUIC connection as a carrier. A stream that is opened apart has a
// connection of its own, which a secret joins to the link: so it has a
// congestion window of its own, and a key doesn't wait until a download that
// has lost something may go on.
type link struct {
	// Static after construction.
	conn     *quic.Conn
	dialer   *dialer   // at the agent
	listener *Listener // at the relay
	quality  quality   // at the relay

	// Guarded by mu.
	mu      sync.Mutex
	secret  []byte       // nil: nothing joins
	streams chan *stream // at the relay, once something may join: those to accept
	joined  []*quic.Conn
	ended   []*quic.Conn // had joined, until the link was over
	closed  *protocol.Error
	// interrupt has Accept look for what has joined; nil: nobody accepts.
	interrupt context.CancelFunc
}

func newLink(conn *quic.Conn, d *dialer, l *Listener) *link {
	k := &link{conn: conn, dialer: d, listener: l}
	context.AfterFunc(conn.Context(), k.closeJoined)
	return k
}

// Secret implements carrier.Joiner.
func (l *link) Secret() []byte {
	secret := make([]byte, secretBytes)
	rand.Read(secret)
	l.mu.Lock()
	l.secret, l.streams = secret, make(chan *stream, maxStreams)
	l.mu.Unlock()
	l.listener.offer(l, secret)
	return secret
}

// Join implements carrier.Joiner.
func (l *link) Join(secret []byte) {
	if len(secret) != secretBytes {
		return // a relay that wants all streams in one connection
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secret = secret
}

// OpenApart implements carrier.Parting. Where the relay doesn't know the link,
// because something between spreads connections over several relays, or can't
// be reached by another one, the stream is opened in the link's own.
func (l *link) OpenApart(ctx context.Context) (carrier.Stream, error) {
	l.mu.Lock()
	secret := l.secret
	l.mu.Unlock()
	if l.dialer != nil && secret != nil {
		if s, err := l.openJoined(ctx, secret); err == nil {
			return s, nil
		}
	}
	return l.Open(ctx)
}

// Open opens a stream.
func (l *link) Open(ctx context.Context) (carrier.Stream, error) {
	s, err := l.conn.OpenStreamSync(ctx)
	if err != nil {
		return nil, translate(err)
	}
	return &stream{s}, nil
}

// openJoined opens a stream in a connection that joins the link.
func (l *link) openJoined(ctx context.Context, secret []byte) (carrier.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	conn, err := l.dialer.dial(ctx, joinName(secret), joinKeepAlive)
	if err != nil {
		return nil, err
	}
	s, err := conn.OpenStreamSync(ctx)
	if err == nil {
		_, err = s.Write(secret)
	}
	if err == nil && !l.hold(conn) {
		err = net.ErrClosed
	}
	if err != nil {
		conn.CloseWithError(quic.ApplicationErrorCode(protocol.KindUnavailable), "")
		return nil, translate(err)
	}
	return &stream{s}, nil
}

// hold ties a connection's life to the link's; it fails when that is over, or
// has too many.
func (l *link) hold(conn *quic.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil || l.conn.Context().Err() != nil || len(l.joined) >= maxStreams {
		return false
	}
	l.joined = append(l.joined, conn)
	return true
}

// adopt makes s, in a connection of its own, a stream of the link if it came
// with the link's secret.
func (l *link) adopt(secret []byte, conn *quic.Conn, s *quic.Stream) bool {
	l.mu.Lock()
	known := l.secret
	l.mu.Unlock()
	if subtle.ConstantTimeCompare(secret, known) != 1 || !l.hold(conn) {
		return false
	}
	return l.deliver(&stream{s})
}

// deliver hands a stream to Accept.
func (l *link) deliver(s *stream) bool {
	select {
	case l.streams <- s:
	default:
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.interrupt != nil {
		l.interrupt()
	}
	return true
}

// Accept returns the next stream that the peer opens, in the link's own
// connection or one that has joined. One goroutine at a time may call it.
func (l *link) Accept(ctx context.Context) (carrier.Stream, error) {
	for {
		waiting, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		streams := l.streams
		l.interrupt = cancel // from now on a delivery wakes us
		l.mu.Unlock()
		select {
		case s := <-streams:
			cancel()
			return s, nil
		default:
		}
		s, err := l.conn.AcceptStream(waiting)
		interrupted := err != nil && waiting.Err() != nil && ctx.Err() == nil && l.conn.Context().Err() == nil
		cancel()
		switch {
		case err == nil:
			return &stream{s}, nil
		case !interrupted:
			return nil, translate(err)
		}
	}
}

// Close tells the peer the kind as the application's error code and the
// message as its reason.
func (l *link) Close(e *protocol.Error) {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = e
	}
	l.mu.Unlock()
	closeConn(l.conn, e) // before those that joined, so that the peer hears why
	l.closeJoined()
}

// closeJoined ends the connections that have joined, once the first is over.
func (l *link) closeJoined() {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = protocol.AsError(l.Err())
	}
	e, joined := l.closed, l.joined
	l.ended, l.joined = append(l.ended, joined...), nil // what they carried still counts
	l.mu.Unlock()
	for _, conn := range joined {
		closeConn(conn, e)
	}
}

func closeConn(conn *quic.Conn, e *protocol.Error) {
	reason := e.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	conn.CloseWithError(quic.ApplicationErrorCode(e.Kind), reason)
}

// Done is closed when the first connection is over.
func (l *link) Done() <-chan struct{} { return l.conn.Context().Done() }

// Err says why.
func (l *link) Err() error { return translate(context.Cause(l.conn.Context())) }

// Exporter returns keying material of the TLS connection (RFC 5705).
func (l *link) Exporter() ([]byte, error) {
	state := l.conn.ConnectionState().TLS
	return state.ExportKeyingMaterial(exporterLabel, nil, exporterBytes)
}

// RemoteAddr returns the peer's address.
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

// Close ends a write that is under way as well, which quic-go would leave
// waiting for ever if the stream was done before its connection ended.
func (s *stream) Close() error {
	s.CancelRead(0)
	s.SetWriteDeadline(time.Unix(1, 0))
	return s.Stream.Close()
}

// CloseWrite ends the direction to the peer.
func (s *stream) CloseWrite() error { return s.Stream.Close() }

// translate turns an application error back into the protocol.Error that its
// connection was closed with, at whichever end.
func translate(err error) error {
	if err == nil || err == io.EOF { // the common cases, at no cost
		return err
	}
	var app *quic.ApplicationError
	switch {
	case !errors.As(err, &app):
		return err
	case app.Remote:
		return protocol.Errorf(protocol.Kind(app.ErrorCode), "peer: %s", app.ErrorMessage)
	}
	return protocol.Errorf(protocol.Kind(app.ErrorCode), "%s", app.ErrorMessage)
}
