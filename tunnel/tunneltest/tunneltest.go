// Package tunneltest makes tunnels in memory, for tests of what runs over
// them: the real handshake, lanes and yamux, without a network. It works
// inside testing/synctest bubbles.
package tunneltest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// maxStreams bounds the streams of a connection that wait to be accepted.
const maxStreams = 16

// RelayID is the relay's id in a Pair.
const RelayID protocol.RelayID = "rl_test"

// Hello returns a registration that a Pair's relay end admits.
func Hello() protocol.Hello {
	return protocol.Hello{
		MinVersion: protocol.MinVersion, MaxVersion: protocol.MaxVersion,
		SandboxID: "sb_test", Certificate: "none", Generation: 1, InstanceID: "instance1", Isolation: "none",
	}
}

// Pair returns the two ends of a registered tunnel. Both are closed when the
// test ends.
func Pair(tb testing.TB) (agent, relay *tunnel.Session) {
	tb.Helper()
	return PairWith(tb, Hello(), nil)
}

// PairWith is Pair with a registration of the caller's, and a relay that asks
// admit (nil: everybody is welcome).
func PairWith(tb testing.TB, hello protocol.Hello, admit func(context.Context, *tunnel.Registration) error) (agent, relay *tunnel.Session) {
	tb.Helper()
	agent, relay, err := Connect(hello, admit)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		agent.Close()
		relay.Close()
	})
	return agent, relay
}

// Connect is PairWith for a registration that may fail: err is then what the
// agent gets.
func Connect(hello protocol.Hello, admit func(context.Context, *tunnel.Registration) error) (agent, relay *tunnel.Session, err error) {
	if admit == nil {
		admit = func(context.Context, *tunnel.Registration) error { return nil }
	}
	near, far := Conns()
	admitted := make(chan *tunnel.Session, 1)
	go func() { // Connect waits for it below
		s, err := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
			RelayID: RelayID, Admit: admit, TrustOrigin: func(string) bool { return true },
		})
		if err != nil {
			s = nil
		}
		admitted <- s
	}()
	agent, err = tunnel.Register(context.Background(), near, tunnel.DialConfig{
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return hello, nil },
	})
	return agent, <-admitted, err
}

// A Conn is one end of a connection in memory.
type Conn struct {
	incoming chan net.Conn
	peer     *Conn
	shared   *shared
}

// shared is the state of both ends.
type shared struct {
	done chan struct{}

	// Guarded by mu.
	mu      sync.Mutex
	err     error
	streams []net.Conn
}

// Conns returns the two ends of a connection.
func Conns() (near, far *Conn) {
	s := &shared{done: make(chan struct{})}
	near = &Conn{incoming: make(chan net.Conn, maxStreams), shared: s}
	far = &Conn{incoming: make(chan net.Conn, maxStreams), shared: s, peer: near}
	near.peer = far
	return near, far
}

// Open implements carrier.Conn.
func (c *Conn) Open(ctx context.Context) (carrier.Stream, error) {
	near, far := net.Pipe()
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	if c.shared.err != nil {
		return nil, c.shared.err
	}
	select {
	case c.peer.incoming <- far:
		c.shared.streams = append(c.shared.streams, near, far)
		return near, nil
	default:
		return nil, errors.New("tunneltest: too many streams")
	}
}

// Streams returns how many streams either end has opened so far.
func (c *Conn) Streams() int {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return len(c.shared.streams) / 2
}

// Accept implements carrier.Conn.
func (c *Conn) Accept(ctx context.Context) (carrier.Stream, error) {
	select {
	case s := <-c.incoming:
		return s, nil
	case <-c.shared.done:
		return nil, c.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements carrier.Conn.
func (c *Conn) Close(e *protocol.Error) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	if c.shared.err != nil {
		return
	}
	c.shared.err = e
	close(c.shared.done)
	for _, s := range c.shared.streams {
		s.Close()
	}
}

// Done implements carrier.Conn.
func (c *Conn) Done() <-chan struct{} { return c.shared.done }

// Err implements carrier.Conn.
func (c *Conn) Err() error {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	return c.shared.err
}

// Exporter implements carrier.Conn: there is no TLS.
func (c *Conn) Exporter() ([]byte, error) { return nil, nil }

// RemoteAddr implements carrier.Conn.
func (c *Conn) RemoteAddr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }
