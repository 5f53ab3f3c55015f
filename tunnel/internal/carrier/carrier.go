// Package carrier defines what a tunnel needs of its connection.
package carrier

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A Stream is one reliable byte stream of a Conn.
type Stream interface {
	io.ReadWriteCloser
	SetDeadline(t time.Time) error
	SetReadDeadline(t time.Time) error
	SetWriteDeadline(t time.Time) error
}

// A HalfCloser is a Stream that can end its output and still be read. For the
// others Close ends both directions.
type HalfCloser interface {
	CloseWrite() error
}

// A Conn is a connection between an agent and a relay that carries streams with
// separate flow control. Both ends may open streams; the other end gets one
// when its first byte arrives.
type Conn interface {
	Open(ctx context.Context) (Stream, error)
	Accept(ctx context.Context) (Stream, error)
	// Close ends the connection; the peer's error has e's kind and message.
	Close(e *protocol.Error)
	// Done is closed when the connection is over; Err then says why.
	Done() <-chan struct{}
	Err() error
	// Exporter returns keying material of this TLS connection (RFC 8446 §7.5),
	// none without TLS.
	Exporter() ([]byte, error)
	RemoteAddr() net.Addr
}

// Named is a Conn with a carrier name. Only those in memory have none.
type Named interface {
	Carrier() string
}

// A Joiner is a Conn whose further streams are connections of their own, which
// join it by a secret.
type Joiner interface {
	// Secret makes the secret, at the relay, and accepts it from then on.
	Secret() []byte
	// Join makes Open use the relay's secret, at the agent.
	Join(secret []byte)
}

// A Loose is a Stream with a connection of its own. When that is lost, the Conn to
// which it belongs goes on.
type Loose interface {
	Stream
	Loose()
}

// A Timed is a Conn that knows the shortest round trip of its path.
type Timed interface {
	Trip() time.Duration
}

// A Parting is a Conn that can open a stream with loss recovery of its own, so
// that losses on it delay no other. If that fails it opens an ordinary stream.
type Parting interface {
	OpenApart(ctx context.Context) (Stream, error)
}
