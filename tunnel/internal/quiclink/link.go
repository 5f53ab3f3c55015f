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
	// joinKeepAlive keeps such a connection from being idle, as the tunnel's PINGs
	// don't use it, and tells the relay of a changed address.
	joinKeepAlive = 2 * time.Second
	// maxJoining bounds the connections that are being identified.
	maxJoining = 256
)

var encoding = base64.RawURLEncoding

// A link is a QUIC connection as a carrier. A stream that is opened apart has a
// connection of its own, which joins the link by a secret. So it has its own
// congestion window, and a key doesn't wait for a download's lost packets.
type link struct {
	// Static after construction.
	conn     *quic.Conn
	dialer   *dialer   // at the agent
	listener *Listener // at the relay
	quality  quality   // at the relay

	mu sync.Mutex
	// Guarded by mu.
	secret  []byte              // nil: no joining
	streams chan carrier.Stream // at the relay, once joining is possible: to be accepted
	joined  []*quic.Conn
	ended   []*quic.Conn // had joined, when the link ended
	closed  *protocol.Error
	// interrupt makes Accept check streams; nil: nobody accepts.
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
	l.secret, l.streams = secret, make(chan carrier.Stream, maxStreams)
	l.mu.Unlock()
	l.listener.offer(l, secret)
	return secret
}

// Join implements carrier.Joiner.
func (l *link) Join(secret []byte) {
	if len(secret) != secretBytes {
		return // the relay wants all streams in one connection
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secret = secret
}

// OpenApart implements carrier.Parting. If the relay doesn't know the link, as
// when a balancer spreads connections over several relays, or another
// connection fails, it opens the stream in the link's own.
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

// openJoined opens a stream in a new connection that joins the link.
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

// hold ties a connection's life to the link's. It fails if the link is over or
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

// adopt makes s, in a connection of its own, a stream of the link if secret is
// right.
func (l *link) adopt(secret []byte, conn *quic.Conn, s *quic.Stream) bool {
	return l.has(secret) && l.hold(conn) && l.deliver(&stream{s})
}

// has reports whether secret is the link's.
func (l *link) has(secret []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return subtle.ConstantTimeCompare(secret, l.secret) == 1
}

// deliver passes a stream to Accept. It fails if the link is over, or has many that
// nobody has accepted.
func (l *link) deliver(s carrier.Stream) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil || l.conn.Context().Err() != nil {
		return false
	}
	select {
	case l.streams <- s:
	default:
		return false
	}
	if l.interrupt != nil {
		l.interrupt()
	}
	return true
}

// Accept returns the next stream from the peer, in the link's own connection or
// a joined one. Only one goroutine may call it.
func (l *link) Accept(ctx context.Context) (carrier.Stream, error) {
	for {
		waiting, cancel := context.WithCancel(ctx)
		l.mu.Lock()
		streams := l.streams
		l.interrupt = cancel // from now on deliver interrupts the wait
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

// Close sends the kind as the application error code and the message as the
// reason.
func (l *link) Close(e *protocol.Error) {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = e
	}
	l.mu.Unlock()
	closeConn(l.conn, e) // before the joined ones, so that the peer gets the reason
	l.closeJoined()
}

// closeJoined ends the joined connections after the first one's end.
func (l *link) closeJoined() {
	l.mu.Lock()
	if l.closed == nil {
		l.closed = protocol.AsError(l.Err())
	}
	e, joined, streams := l.closed, l.joined, l.streams
	l.ended, l.joined = append(l.ended, joined...), nil // their traffic still counts
	l.mu.Unlock()
	for _, conn := range joined {
		closeConn(conn, e)
	}
	for { // nothing is delivered any more
		select {
		case s := <-streams:
			s.Close()
		default:
			return
		}
	}
}

func closeConn(conn *quic.Conn, e *protocol.Error) {
	reason := e.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	conn.CloseWithError(quic.ApplicationErrorCode(e.Kind), reason)
}

// Done is closed when the first connection ends.
func (l *link) Done() <-chan struct{} { return l.conn.Context().Done() }

// Err returns why it ended.
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

// Close also interrupts a write, which quic-go would leave waiting for ever if
// the stream was done before its connection ended.
func (s *stream) Close() error {
	s.CancelRead(0)
	s.SetWriteDeadline(time.Unix(1, 0))
	return s.Stream.Close()
}

// CloseWrite ends the output.
func (s *stream) CloseWrite() error { return s.Stream.Close() }

// translate turns an application error back into the protocol.Error with which
// either end closed the connection.
func translate(err error) error {
	if err == nil || err == io.EOF { // the common cases, cheaply
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
