package quiet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Conn is a TCP connection whose calls the scheduler isn't told of.
type Conn struct {
	*net.TCPConn
	raw syscall.RawConn

	reading sync.Mutex // held for each Read
	// Guarded by reading.
	in call

	writing sync.Mutex // held for each Write
	// Guarded by writing.
	out call
}

// A call is a Read or a Write under way.
type call struct {
	p   []byte
	n   int
	err error
}

// Wrap returns conn as a Conn, or as it is if it isn't one of TCP.
func Wrap(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn // it is closed
	}
	return &Conn{TCPConn: tcp, raw: raw}
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	c.in = call{p: p}
	err := c.raw.Read(c.tryRead)
	n, failed := c.in.n, c.in.err
	c.in = call{} // it mustn't keep p
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, c.fault("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Await waits until there is something to read, an end or an error included, or until
// the read deadline or Close. Who waits so rather than within what reads needs less of
// a stack meanwhile.
func (c *Conn) Await() error {
	c.reading.Lock()
	defer c.reading.Unlock()
	return c.raw.Read(readable)
}

// readable reports whether there is nothing to wait for.
func readable(fd uintptr) bool { return !errors.Is(Peek(fd), unix.EAGAIN) }

// tryRead reads, and reports whether there is nothing to wait for. The caller holds
// reading.
func (c *Conn) tryRead(fd uintptr) bool {
	c.in.n, c.in.err = Read(fd, c.in.p)
	return !errors.Is(c.in.err, unix.EAGAIN)
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = call{p: p}
	err := c.raw.Write(c.tryWrite)
	n, failed := c.out.n, c.out.err
	c.out = call{}
	switch {
	case err != nil:
		return n, err
	case failed != nil:
		return n, c.fault("write", failed)
	}
	return n, nil
}

// tryWrite writes until all is written, or until it has to wait. The caller holds
// writing.
func (c *Conn) tryWrite(fd uintptr) bool {
	for c.out.n < len(c.out.p) {
		var n int
		n, c.out.err = Write(fd, c.out.p[c.out.n:])
		c.out.n += n
		if c.out.err != nil {
			break
		}
	}
	if errors.Is(c.out.err, unix.EAGAIN) {
		c.out.err = nil
		return false
	}
	return true
}

// fault is an error as package net's connections have it.
func (c *Conn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
