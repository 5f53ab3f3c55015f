package quiclink

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/time/rate"
)

const (
	// repeatBytes is the largest repeated packet: a keystroke, its echo, an
	// acknowledgement.
	repeatBytes = 256
	// repeatAfter is the delay of a copy: losses come in bursts, and a delay of
	// less than half a frame isn't noticed.
	repeatAfter = 5 * time.Millisecond
	// repeatFor is how long after a lost packet small ones are repeated. It is
	// long because copies hide further losses.
	repeatFor = time.Minute
	// repeatsPerSecond and repeatBurst bound a path's copies: above typing speed,
	// and below a thin line's capacity.
	repeatsPerSecond = 50
	repeatBurst      = 20
	// repeatLook is the interval of checking a path's losses.
	repeatLook = 100 * time.Millisecond
)

// A repeater is a socket that sends small packets twice on lossy paths. The
// loss of a lone packet is noticed late, since no later packet reveals it, and
// the typist waits for two or three round trips. The receiver drops the copy by
// its packet number (RFC 9000 §12.3).
type repeater struct {
	*datagrams

	paths sync.Map // of *path, by netip.AddrPort
}

func newRepeater(socket *net.UDPConn) (*repeater, error) {
	d, err := newDatagrams(socket)
	if err != nil {
		return nil, err
	}
	return &repeater{datagrams: d}, nil
}

// watch repeats packets to conn's peer from now on, while some are lost on any
// connection that shares quality.
func (r *repeater) watch(conn *quic.Conn, shared *quality) {
	addr, ok := conn.RemoteAddr().(*net.UDPAddr)
	if !ok {
		return
	}
	key := peerOf(addr)
	p := &path{stats: conn.ConnectionStats, quality: shared, copies: rate.NewLimiter(repeatsPerSecond, repeatBurst)}
	r.paths.Store(key, p)
	context.AfterFunc(conn.Context(), func() { r.paths.CompareAndDelete(key, p) })
}

func peerOf(addr *net.UDPAddr) netip.AddrPort {
	a := addr.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// WriteMsgUDP implements quic.OOBCapablePacketConn.
func (r *repeater) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (int, int, error) {
	if len(b) <= repeatBytes && addr != nil {
		if p, ok := r.paths.Load(peerOf(addr)); ok && p.(*path).repeats(time.Now()) {
			b, oob := append([]byte(nil), b...), append([]byte(nil), oob...)
			time.AfterFunc(repeatAfter, func() { _, _, _ = r.datagrams.WriteMsgUDP(b, oob, addr) })
		}
	}
	return r.datagrams.WriteMsgUDP(b, oob, addr)
}

// A path is one connection's path to its peer.
type path struct {
	// Static after construction.
	stats   func() quic.ConnectionStats
	quality *quality
	copies  *rate.Limiter

	// Guarded by mu.
	mu   sync.Mutex
	look time.Time // time of the next check
	lost uint64    // at the last check
}

// quality is what the connections between two ends know of their network.
type quality struct {
	lossy atomic.Int64 // until when, in Unix nanoseconds
}

// repeats reports whether a small packet sent now is to be repeated.
func (p *path) repeats(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now.Before(p.look) {
		p.look = now.Add(repeatLook)
		if lost := p.stats().PacketsLost; lost > p.lost {
			p.lost = lost
			p.quality.lossy.Store(now.Add(repeatFor).UnixNano())
		}
	}
	return now.UnixNano() < p.quality.lossy.Load() && p.copies.AllowN(now, 1)
}
