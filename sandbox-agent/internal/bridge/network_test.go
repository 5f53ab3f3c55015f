package bridge

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// reserve returns an address on loopback that nobody else gets until the test
// ends, and at which the test can listen again and again.
func reserve(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: bound.(*unix.SockaddrInet4).Port}).String()
}

// A network is loopback in memory, for bubbles of time.
type network struct {
	mu      sync.Mutex
	current *memory // guarded by mu; nil: nobody listens
}

func (*network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081} }

func (n *network) listen() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.current = &memory{network: n, conns: make(chan net.Conn), done: make(chan struct{})}
	return n.current
}

// dial is a dialFunc.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	n.mu.Lock()
	m := n.current
	n.mu.Unlock()
	if m != nil {
		near, far := net.Pipe()
		select {
		case m.conns <- far:
			return near, nil
		case <-m.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: n.Addr(), Err: syscall.ECONNREFUSED}
}

// A memory is a network's listener.
type memory struct {
	network *network
	conns   chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() {
		m.network.mu.Lock()
		defer m.network.mu.Unlock()
		m.network.current = nil
		close(m.done)
	})
	return nil
}

func (m *memory) Addr() net.Addr { return m.network.Addr() }
