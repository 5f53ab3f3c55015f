// Package carrier says what a tunnel needs of the connection below it.
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

// A HalfCloser is a Stream that can say that nothing more will be written while
// reading goes on. Close does it for the others.
type HalfCloser interface {
	CloseWrite() error
}

// A Conn is a connection between an agent and a relay that carries streams,
// each with a flow of its own. Both ends may open streams; the other end sees
// one when its first byte arrives.
type Conn interface {
	Open(ctx context.Context) (Stream, error)
	Accept(ctx context.Context) (Stream, error)
	// Close ends the connection; the peer's error has e's kind and message.
	Close(e *protocol.Error)
	// Done is closed when the connection is over; Err then says why.
	Done() <-chan struct{}
	Err() error
	// Exporter returns bytes that only the two ends of this TLS connection
	// know, none where there is no TLS (RFC 8446 §7.5).
	Exporter() ([]byte, error)
	RemoteAddr() net.Addr
}

// Named is a Conn that says what it runs over. The others are in memory.
type Named interface {
	Carrier() string
}

// A Joiner is a Conn whose further streams are connections of their own, which a
// secret joins to it.
type Joiner interface {
	// Secret makes up the secret, at the relay; from then on it is accepted.
	Secret() []byte
	// Join makes Open use the secret that the relay gave the agent.
	Join(secret []byte)
}

// A Parting is a Conn that can open a stream apart from the others, so that
// what is lost on it holds none of them up. It is one stream like the others
// where that doesn't work.
type Parting interface {
	OpenApart(ctx context.Context) (Stream, error)
}
