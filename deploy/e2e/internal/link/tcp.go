// Package link is a bad network: a way to a TCP or UDP address that is slow,
// stands still, loses or breaks.
package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bufferBytes is what the kernel is asked to hold in each direction of a slow
// link: little, so that a sender soon feels it.
const bufferBytes = 4 << 10

// A TCP forwards connections to one address.
type TCP struct {
	// Static after construction.
	target   string
	listener net.Listener
	serving  sync.WaitGroup

	rate atomic.Int64 // bytes per second in each direction; 0: no limit

	mu sync.Mutex
	// Guarded by mu.
	conns  map[net.Conn]struct{}
	closed bool
	barred bool
	stall  chan struct{} // not nil: nothing moves until it is closed
}

// ListenTCP forwards to target, from an address of its own, until Close.
func ListenTCP(target string) (*TCP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &TCP{target: target, listener: listener, conns: map[net.Conn]struct{}{}}
	l.serving.Go(l.accept)
	return l, nil
}

// Dial dials the link, whatever the address.
func (l *TCP) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, l.listener.Addr().String())
}

// SetRate limits each direction of each connection to so many bytes per
// second; 0 is no limit.
func (l *TCP) SetRate(bytesPerSecond int) { l.rate.Store(int64(bytesPerSecond)) }

// Stall has nothing move any more, or again. The kernel takes what little it
// holds.
func (l *TCP) Stall(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case on && l.stall == nil:
		l.stall = make(chan struct{})
	case !on && l.stall != nil:
		close(l.stall)
		l.stall = nil
	}
}

// Bar breaks all connections and lets no other come about, or lets them again.
func (l *TCP) Bar(on bool) {
	l.mu.Lock()
	l.barred = on
	l.mu.Unlock()
	if on {
		l.Cut()
	}
}

// Cut breaks all connections, and returns how many there were.
func (l *TCP) Cut() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // what is on its way is lost, as when a radio ends
		}
		conn.Close()
	}
	return len(l.conns) / 2
}

// Close ends the link.
func (l *TCP) Close() error {
	err := l.listener.Close()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Stall(false)
	l.Cut()
	l.serving.Wait()
	return err
}

func (l *TCP) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.serving.Go(func() { l.forward(near) })
	}
}

func (l *TCP) forward(near net.Conn) {
	dialer := net.Dialer{Timeout: 5 * time.Second, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		if l.rate.Load() > 0 { // before the handshake, which fixes the window
			err = raw.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, bufferBytes)
			})
		}
		return err
	}}
	far, err := dialer.Dial("tcp", l.target)
	if err != nil {
		near.Close()
		return
	}
	defer l.drop(near, far)
	if !l.hold(near, far) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(far, near) })
	l.copy(near, far)
	both.Wait()
}

func (l *TCP) hold(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		l.conns[conn] = struct{}{}
	}
	return !l.closed && !l.barred
}

func (l *TCP) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
		conn.Close()
	}
}

// copy moves bytes from one connection to the other until either ends, which
// ends both.
func (l *TCP) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	due := time.Now()
	for {
		rate := l.rate.Load()
		part := buf
		if rate > 0 {
			part = buf[:max(64, min(len(buf), int(rate/50)))]
		}
		n, err := from.Read(part)
		if errors.Is(err, net.ErrClosed) || n == 0 && err != nil {
			return
		}
		l.mu.Lock()
		stall := l.stall
		l.mu.Unlock()
		if stall != nil {
			<-stall
		}
		if rate > 0 {
			due = later(due, time.Now()).Add(time.Duration(n) * time.Second / time.Duration(rate))
			time.Sleep(time.Until(due))
		}
		if _, err := to.Write(part[:n]); err != nil {
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
