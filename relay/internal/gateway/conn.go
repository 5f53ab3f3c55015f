package gateway

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// writeTimeout is the least, and half the most, that one write to a viewer
	// may take: a socket that takes nothing for so long is dead.
	writeTimeout = 15 * time.Second
	// sendBuffer bounds what the kernel takes for one viewer, so that a slow
	// one is noticed here and not minutes of stale screen later.
	sendBuffer = 128 << 10
)

// pingFrame is an empty, unmasked WebSocket ping.
var pingFrame = []byte{0x89, 0x00}

// A conn is a WebSocket whose handshake, reading and control frames belong to
// coder/websocket, and whose data frames are written as they come, already
// framed. Both write whole frames, under one lock.
type conn struct {
	ws    *websocket.Conn
	raw   *lockedConn
	heard atomic.Int64 // Unix nanoseconds of the last pong
}

// accept upgrades r. The caller has checked everything that can be refused.
func accept(w http.ResponseWriter, r *http.Request, subprotocols []string) (*conn, error) {
	c := &conn{}
	c.heard.Store(time.Now().UnixNano())
	lw := &lockingWriter{ResponseWriter: w}
	ws, err := websocket.Accept(lw, r, &websocket.AcceptOptions{
		Subprotocols:       subprotocols,
		InsecureSkipVerify: true, // access.Origins has checked Host and Origin, more strictly
		CompressionMode:    websocket.CompressionDisabled,
		OnPongReceived: func(context.Context, []byte) {
			c.heard.Store(time.Now().UnixNano())
		},
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(protocol.MaxBrowserMessage)
	c.ws, c.raw = ws, lw.conn
	if tcp, ok := c.raw.Conn.(*net.TCPConn); ok {
		tcp.SetWriteBuffer(sendBuffer)
	}
	return c, nil
}

// WriteFrames implements hub.Sink.
func (c *conn) WriteFrames(frames net.Buffers) error {
	return c.raw.writeBuffers(frames)
}

// Ping implements hub.Sink.
func (c *conn) Ping() error {
	_, err := c.raw.Write(pingFrame)
	return err
}

// LastHeard implements hub.Sink.
func (c *conn) LastHeard() time.Time { return time.Unix(0, c.heard.Load()) }

// Close implements hub.Sink.
func (c *conn) Close(code int, reason string) {
	c.ws.Close(websocket.StatusCode(code), reason)
}

// A lockedConn makes each write atomic, so that frames of two writers don't mix,
// and gives each the same time.
type lockedConn struct {
	net.Conn

	// Guarded by mu, which is held for each write.
	mu       sync.Mutex
	deadline time.Time
}

// allow makes sure that a write has at least writeTimeout. The deadline is
// moved only now and then, since that costs more than reading the clock.
func (c *lockedConn) allow() {
	if now := time.Now(); c.deadline.Sub(now) < writeTimeout {
		c.deadline = now.Add(2 * writeTimeout)
		c.SetWriteDeadline(c.deadline)
	}
}

func (c *lockedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allow()
	return c.Conn.Write(p)
}

// writeBuffers writes all of frames, with one system call where the connection
// can.
func (c *lockedConn) writeBuffers(frames net.Buffers) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allow()
	if len(frames) == 1 {
		_, err := c.Conn.Write(frames[0])
		return err
	}
	_, err := frames.WriteTo(c.Conn)
	return err
}

// A lockingWriter is a ResponseWriter whose hijacked connection is a lockedConn.
type lockingWriter struct {
	http.ResponseWriter
	conn *lockedConn
}

// Unwrap lets http.ResponseController reach the original.
func (w *lockingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w *lockingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = &lockedConn{Conn: raw}
	rw.Writer = bufio.NewWriter(w.conn)
	return w.conn, rw, nil
}
