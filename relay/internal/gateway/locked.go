package gateway

import (
	"crypto/tls"
	"errors"
	"net"
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
type lockedConn struct {
	net.Conn
	in frameReader // owned by whoever reads

	// Static after tune.
	raw     syscall.RawConn // nil: no non-blocking writes, as under TLS
	attempt func(fd uintptr) bool

	mu sync.Mutex // held for each write
	// Guarded by mu.
	deadline time.Time
	rest     []byte // of a frame that an offer began; written before anything else
	pending  []byte // what attempt writes
	wrote    int    // how much of that it wrote
	failed   error  // or why it didn't

	owed atomic.Pointer[[]byte] // the pong to be written
}

// tune bounds the kernel's buffer and enables offers if possible.
func (c *lockedConn) tune() error {
	under := c.Conn
	secured, isTLS := under.(*tls.Conn)
	if isTLS {
		under = secured.NetConn()
	}
	tcp, ok := under.(interface {
		syscall.Conn
		SetWriteBuffer(bytes int) error
	})
	if !ok {
		return nil
	}
	if err := tcp.SetWriteBuffer(sendBuffer); err != nil || isTLS {
		return err
	}
	c.attempt = c.try
	raw, err := tcp.SyscallConn()
	c.raw = raw
	return err
}

// allow extends the write deadline to at least writeTimeout. It moves it only
// now and then, since that costs more than reading the clock. The caller holds
// mu.
func (c *lockedConn) allow() {
	if now := time.Now(); c.deadline.Sub(now) < writeTimeout {
		c.deadline = now.Add(2 * writeTimeout)
		c.SetWriteDeadline(c.deadline)
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
// An offer doesn't block, but a deadline that has passed would make it fail.
func (c *lockedConn) begin() bool {
	if c.raw == nil || !c.mu.TryLock() {
		return false
	}
	if len(c.rest) > 0 {
		c.mu.Unlock()
		return false
	}
	c.allow()
	return true
}

// offer writes what the kernel takes of frames without blocking, and keeps the
// rest of a frame that it began, for a caller that holds mu, which it gives up.
func (c *lockedConn) offer(frames net.Buffers) (drained bool, err error) {
	defer c.mu.Unlock()
	for i, frame := range frames {
		c.pending, c.wrote, c.failed = frame, 0, nil
		if err := c.raw.Write(c.attempt); err != nil {
			return false, err
		}
		if c.failed != nil {
			return false, c.failed
		}
		if c.wrote == len(frame) {
			continue
		}
		c.rest = append(c.rest[:0], frame[c.wrote:]...)
		for _, later := range frames[i+1:] {
			c.rest = append(c.rest, later...)
		}
		break
	}
	c.pending = nil
	return len(c.rest) == 0, nil
}

// try makes one attempt to write pending. It never asks to be called again. It
// is called with mu held.
func (c *lockedConn) try(fd uintptr) bool {
	n, err := quiet.Write(fd, c.pending)
	switch {
	case errors.Is(err, syscall.EAGAIN):
	case err != nil:
		c.failed = err
	default:
		c.wrote = n
	}
	return true
}
