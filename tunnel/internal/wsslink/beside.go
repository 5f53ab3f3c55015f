package wsslink

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/tunnel/internal/carrier"
)

// How soon a lost connection beside another is noticed: the other carries the PINGs.
const (
	besideIdle = 5 * time.Second // until the kernel asks for the peer
	besideAsks = 3               // how often it does, once a second
	// besideUnheard is how long what was sent may be unacknowledged.
	besideUnheard = 8 * time.Second
)

// A Host has links of another carrier, which sockets may join.
type Host interface {
	// Joins reports whether a link has that secret.
	Joins(secret []byte) bool
	// Adopt makes s a stream of the link that has the secret. It fails if that is over,
	// or has enough.
	Adopt(secret []byte, s carrier.Stream) bool
}

// A loose socket has a link of its own.
type loose struct{ *socket }

// Loose implements carrier.Loose.
func (loose) Loose() {}

// Stats implements carrier.Counting.
func (s loose) Stats() carrier.Stats { return s.link.Stats() }

// DialBeside opens a socket that joins a link of another carrier at a relay: that of the
// name addr ("host:port"), which is reached at the address at. The stream is a
// [carrier.Loose]. If the relay refuses, the error is a *protocol.Error.
func DialBeside(ctx context.Context, addr string, at net.Addr, tlsConfig *tls.Config, secret []byte) (carrier.Stream, error) {
	d := newDialer(addr, tlsConfig)
	d.at = at.String()
	s, _, err := d.dial(ctx, secret)
	if err != nil {
		return nil, err
	}
	l := newLink(nil, s.raw.RemoteAddr())
	l.opener = s
	watch(s.raw)
	return loose{s}, l.add(s) // can't fail: it is new
}

// watch has the kernel notice when the peer is gone.
func watch(raw *rawConn) {
	conn := raw.tcp
	for {
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = over.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	// Without it the loss is noticed later.
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: besideIdle, Interval: time.Second, Count: besideAsks})
	if control, err := tcp.SyscallConn(); err == nil {
		_ = control.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(besideUnheard.Milliseconds()))
		})
	}
}
