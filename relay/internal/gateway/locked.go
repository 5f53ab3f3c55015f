package gateway

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/tunnel/quiet"
)

const (
	// writeTimeout is the least, and half the most, that a write to a viewer may
	// take: a socket that takes nothing for so long is dead.
	writeTimeout = 15 * time.Second
	// sendBuffer bounds the kernel's buffer for one viewer, so that a slow one is
	// noticed here rather than after minutes of stale output.
	sendBuffer = 128 << 10
	// oneWrite bounds a single write. A longer one, such as a keyframe, is split:
	// a slow line must take each longWrite within writeTimeout.
	oneWrite  = 192 << 10
	longWrite = 64 << 10
)

// A lockedConn makes each write atomic, so that the frames of two writers don't
// mix, bounds each write's time, and can write without blocking. It reads up to
// the first faulty frame.
//
// Whoever holds mu may use the descriptor: Close waits for mu, so nobody else's
// socket can have the same number meanwhile.
type lockedConn struct {
	net.Conn
	in frameReader // owned by whoever reads

	// Static after the handshake. awaited is Conn where it can be waited for: not if
	// something may have been read of it already, by TLS or with the request.
	awaited *quiet.Conn

	// Static after tune.
	fd      int       // of the socket; −1: no non-blocking writes
	secured *tls.Conn // Conn, if it is TLS
	gate    *gate     // below secured

	closing atomic.Bool // Close was called: no deadline is moved any more

	mu sync.Mutex // held for each write
	// Guarded by mu.
	deadline time.Time
	rest     []byte // of a frame that an offer began, without TLS; written before anything else
	closed   bool   // the descriptor may be somebody else's

	owed atomic.Pointer[[]byte] // the pong to be written
}

func newLockedConn(conn net.Conn, most int) *lockedConn {
	awaited, _ := conn.(*quiet.Conn)
	c := &lockedConn{Conn: conn, fd: -1, awaited: awaited, in: frameReader{source: conn, frames: frames{most: uint64(most)}}}
	c.in.alone.Store(true)
	return c
}

// tune bounds the kernel's buffer and enables offers if possible.
func (c *lockedConn) tune() error {
	under := c.Conn
	c.secured, _ = under.(*tls.Conn)
	if c.secured != nil {
		under = c.secured.NetConn()
		if c.gate, _ = under.(*gate); c.gate != nil {
			under = c.gate.Conn
		}
	}
	tcp, ok := under.(interface {
		syscall.Conn
		SetWriteBuffer(bytes int) error
	})
	if !ok {
		return nil
	}
	if err := tcp.SetWriteBuffer(sendBuffer); err != nil || c.secured != nil && c.gate == nil {
		return err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { c.fd = int(fd) })
}

// Close implements net.Conn. It ends a write that waits.
func (c *lockedConn) Close() error {
	c.closing.Store(true)
	c.SetDeadline(past)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.Conn.Close()
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// allow extends the write deadline to at least writeTimeout. It moves it only
// now and then, since that costs more than reading the clock. The caller holds
// mu.
func (c *lockedConn) allow() {
	if now := time.Now(); c.deadline.Sub(now) < writeTimeout {
		c.deadline = now.Add(2 * writeTimeout)
		c.SetWriteDeadline(c.deadline)
		if c.closing.Load() {
			c.SetWriteDeadline(past)
		}
	}
}

// await waits until there is something to read, unless some of it was read already. An
// error is for Read to find.
func (c *lockedConn) await() {
	if c.awaited != nil && c.in.alone.Load() {
		_ = c.awaited.Await()
	}
}

// Read implements net.Conn.
func (c *lockedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write implements net.Conn.
func (c *lockedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.finish(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// writeBuffers writes all of frames, with one system call if the connection
// can.
func (c *lockedConn) writeBuffers(frames net.Buffers) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.finish(); err != nil || len(frames) == 0 {
		return err
	}
	if len(frames) == 1 {
		return c.writeLong(frames[0])
	}
	n := 0
	for _, b := range frames {
		n += len(b)
	}
	if n <= oneWrite {
		_, err := frames.WriteTo(c.Conn)
		return err
	}
	for _, b := range frames {
		if err := c.writeLong(b); err != nil {
			return err
		}
		c.allow()
	}
	return nil
}

// writeLong writes p in parts, each with a deadline of its own. The caller
// holds mu.
func (c *lockedConn) writeLong(p []byte) error {
	for len(p) > oneWrite {
		if _, err := c.Conn.Write(p[:longWrite]); err != nil {
			return err
		}
		p = p[longWrite:]
		c.allow()
	}
	_, err := c.Conn.Write(p)
	return err
}

// finish writes what is left of an offer. The caller holds mu.
func (c *lockedConn) finish() error {
	c.allow()
	if c.gate != nil {
		return c.gate.flush()
	}
	if len(c.rest) == 0 {
		return nil
	}
	err := c.writeLong(c.rest)
	c.rest = c.rest[:0]
	c.allow()
	return err
}

// pong answers a ping without blocking. Of several waiting pings only the last
// is answered (RFC 6455 §5.5.3).
func (c *lockedConn) pong(payload []byte) {
	frame := append([]byte{0x8a, byte(len(payload))}, payload...)
	if c.owed.Swap(&frame) == nil {
		go c.pay() // ends with the current write, or with the socket
	}
}

func (c *lockedConn) pay() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if frame := c.owed.Swap(nil); frame != nil && c.finish() == nil {
		c.Conn.Write(*frame) // the next writer sees the error, too
	}
}

// begin takes mu for an offer, if nobody writes and no frame is half written.
func (c *lockedConn) begin() bool {
	if c.fd < 0 || !c.mu.TryLock() {
		return false
	}
	if c.closed || len(c.rest) > 0 || c.gate != nil && !c.gate.begin() {
		c.mu.Unlock()
		return false
	}
	return true
}

// seal returns what has to be sent for frame: itself, or TLS records, which are
// appended to arena. It is called once with mu held, after begin.
func (c *lockedConn) seal(frame, arena []byte) (wire, after []byte, err error) {
	if c.gate == nil {
		return frame, arena, nil
	}
	return c.gate.seal(c.secured, frame, arena)
}

// sent notes that of wire, which seal returned, n bytes were sent, and keeps the
// rest, for a caller that holds mu, which it gives up.
func (c *lockedConn) sent(wire []byte, n int) (drained bool) {
	defer c.mu.Unlock()
	if c.gate != nil {
		return c.gate.end(wire[n:])
	}
	c.rest = append(c.rest[:0], wire[n:]...)
	return len(c.rest) == 0
}

// offer writes what the kernel takes of frames without blocking, and keeps the
// rest of a frame that it began, for a caller that holds mu, which it gives up.
func (c *lockedConn) offer(frames net.Buffers) (drained bool, err error) {
	if len(frames) == 0 {
		return c.sent(nil, 0), nil
	}
	frame := frames[0]
	if len(frames) > 1 {
		frame = slices.Concat(frames...)
	}
	wire, _, err := c.seal(frame, nil)
	if err != nil {
		c.sent(nil, 0)
		return false, err
	}
	n, err := quiet.Write(uintptr(c.fd), wire)
	if errors.Is(err, syscall.EAGAIN) {
		n, err = 0, nil
	}
	return c.sent(wire, max(n, 0)) && err == nil, err
}
