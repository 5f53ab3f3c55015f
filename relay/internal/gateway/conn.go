package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

// lingerBytes bounds what is read of a message that is too large after it was
// refused.
const lingerBytes = 4 << 20

// lingerTime bounds the time for that. A test raises it.
var lingerTime = time.Second

// The library's buffers. It only writes control frames, each of which must be
// one write; what it reads is mostly keys.
const (
	libraryWrites = 256
	libraryReads  = 256
)

// pingFrame is an empty, unmasked WebSocket ping.
var pingFrame = []byte{0x89, 0x00}

// A Conn is a WebSocket. coder/websocket does its handshake, reads, and writes
// control frames; data frames are written directly, as they come already
// framed. Both write whole frames under one lock.
type Conn struct {
	ws      *websocket.Conn
	raw     *lockedConn
	patient bool          // owned by who reads: see Until
	heard   atomic.Int64  // Unix nanoseconds of the last message or pong
	pongs   atomic.Uint64 // the highest number of one
}

// Upgrade upgrades r, with the subprotocol that the offer asks for. A message of
// more than most bytes ends the socket with 1009. The caller has made all checks;
// after an error the request is answered.
func (o Offer) Upgrade(w http.ResponseWriter, r *http.Request, most int) (*Conn, error) {
	return accept(w, r, o.selectable, most)
}

// Upgrade upgrades r, with the first of these subprotocols that it offers, if any.
// Otherwise it is [Offer.Upgrade].
func Upgrade(w http.ResponseWriter, r *http.Request, subprotocols []string, most int) (*Conn, error) {
	return accept(w, r, subprotocols, most)
}

// accept upgrades r. The caller has made all checks.
func accept(w http.ResponseWriter, r *http.Request, subprotocols []string, most int) (*Conn, error) {
	c := &Conn{}
	c.hear()
	lw := &lockingWriter{ResponseWriter: w, most: most}
	ws, err := websocket.Accept(lw, r, &websocket.AcceptOptions{
		Subprotocols:       subprotocols,
		InsecureSkipVerify: true, // access.Origins has checked Host and Origin, more strictly
		CompressionMode:    websocket.CompressionDisabled,
		OnPongReceived:     func(_ context.Context, payload []byte) { c.answer(payload) },
		OnPingReceived: func(_ context.Context, payload []byte) bool {
			c.raw.pong(payload) // the library would close the socket if a write takes 5 s
			return false
		},
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(int64(most))
	c.ws, c.raw = ws, lw.conn
	if err := c.raw.tune(); err != nil {
		ws.CloseNow()
		return nil, err
	}
	return c, nil
}

// Read returns the next message.
func (c *Conn) Read(ctx context.Context) (websocket.MessageType, []byte, error) {
	reading := ctx
	if c.patient {
		c.raw.await()
		reading = context.Background() // the library would arm and disarm something for each message
	}
	kind, data, err := c.ws.Read(reading)
	hops.Pass(hops.SocketIn)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil {
		c.hear()
	}
	return kind, data, err
}

// Until closes the socket when ctx ends, unless stop was called. From then on Read
// waits where it needs little of a stack, and where it isn't told of ctx: a socket is
// idle for most of its life.
func (c *Conn) Until(ctx context.Context) (stop func() bool) {
	c.patient = true
	return context.AfterFunc(ctx, func() { c.raw.Close() })
}

// WriteFrames implements hub.Sink.
func (c *Conn) WriteFrames(frames net.Buffers) error {
	return c.raw.writeBuffers(frames)
}

// Begin implements hub.Offerer. It takes raw.mu when it returns true.
func (c *Conn) Begin() bool { return c.raw.begin() }

// FD implements hub.Batcher.
func (c *Conn) FD() int { return c.raw.fd }

// Seal implements hub.Batcher, for a caller that holds raw.mu.
func (c *Conn) Seal(frame, arena []byte) (wire, after []byte, err error) {
	return c.raw.seal(frame, arena)
}

// Sent implements hub.Batcher, for a caller that holds raw.mu, which it gives up.
func (c *Conn) Sent(wire []byte, n int) (drained bool) { return c.raw.sent(wire, n) }

// Offer implements hub.Offerer, for a caller that holds raw.mu, which it gives
// up.
func (c *Conn) Offer(frames net.Buffers) (drained bool, err error) { return c.raw.offer(frames) }

// Ping implements hub.Sink.
func (c *Conn) Ping() error {
	_, err := c.raw.Write(pingFrame)
	return err
}

// answer notes a pong.
func (c *Conn) answer(payload []byte) {
	c.hear()
	number, ok := replay.PingNumber(payload)
	if !ok {
		return
	}
	for last := c.pongs.Load(); number > last && !c.pongs.CompareAndSwap(last, number); last = c.pongs.Load() {
	}
}

// Answered implements chathub.Conn.
func (c *Conn) Answered() uint64 { return c.pongs.Load() }

// hear notes that something was received.
func (c *Conn) hear() { c.heard.Store(time.Now().UnixNano()) }

// LastHeard implements hub.Sink.
func (c *Conn) LastHeard() time.Time { return time.Unix(0, c.heard.Load()) }

// linger keeps reading for a moment after a refused message. Closing a
// connection with unread data resets it, and the client may then lose the close
// frame that gives the reason.
func (c *Conn) linger() {
	c.raw.SetReadDeadline(time.Now().Add(lingerTime))
	io.CopyN(io.Discard, c.raw.Conn, lingerBytes)
}

// End ends the socket after err, which Read has returned. It counts a fault in the
// client's frames, and lets the client read why it is out.
func (c *Conn) End(err error, counted *rejects.Rejects) {
	if fault, ok := errors.AsType[*frameFault](err); ok {
		counted.Count(rejects.Frame, protocol.Fault(fault.kind(), fault))
		c.linger()
	}
	c.ws.CloseNow()
}

// Close implements hub.Sink.
func (c *Conn) Close(code int, reason string) {
	c.ws.Close(websocket.StatusCode(code), reason)
}

// A lockingWriter is a ResponseWriter whose hijacked connection is a lockedConn.
type lockingWriter struct {
	http.ResponseWriter
	most int // bytes of a message
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
	raw = quiet.Wrap(intake.Raw(raw)) // writes go straight to the socket
	conn := newLockedConn(raw, w.most)
	w.conn = conn
	// It must not keep w, which has the request and its buffers.
	conn.in.found = func(f *frameFault) { conn.Write(f.closeFrame()) }
	if early, _ := rw.Reader.Peek(rw.Reader.Buffered()); len(early) > 0 { // Peek can't fail here
		w.conn.in.source = io.MultiReader(bytes.NewReader(bytes.Clone(early)), raw)
		w.conn.awaited = nil
	}
	// The library reads with a small buffer: the one made for requests is as large
	// as everything else about a viewer.
	return w.conn, bufio.NewReadWriter(bufio.NewReaderSize(w.conn, libraryReads), bufio.NewWriterSize(w.conn, libraryWrites)), nil
}
