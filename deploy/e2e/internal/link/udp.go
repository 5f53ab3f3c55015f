package link

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
)

// maxDatagram is more than a path takes.
const maxDatagram = 64 << 10

// A UDP forwards datagrams to one address and back, and loses some.
type UDP struct {
	// Static after construction.
	target  *net.UDPAddr
	conn    *net.UDPConn
	serving sync.WaitGroup

	passed, lost atomic.Int64

	mu sync.Mutex
	// Guarded by mu.
	rng   *rand.Rand
	loss  float64
	peers map[netip.AddrPort]*net.UDPConn
}

// ListenUDP forwards to target, from an address of its own, until Close. seed
// decides which datagrams are lost.
func ListenUDP(target string, seed uint64) (*UDP, error) {
	addr, err := net.ResolveUDPAddr("udp", target)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	l := &UDP{target: addr, conn: conn, rng: rand.New(rand.NewPCG(seed, 0)), peers: map[netip.AddrPort]*net.UDPConn{}}
	l.serving.Go(l.forward)
	return l, nil
}

// Addr is what to dial.
func (l *UDP) Addr() string { return l.conn.LocalAddr().String() }

// SetLoss has so much of all datagrams get lost, from 0 to 1, both ways.
func (l *UDP) SetLoss(part float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loss = part
}

// Counts returns how many datagrams arrived and how many were lost.
func (l *UDP) Counts() (passed, lost int64) { return l.passed.Load(), l.lost.Load() }

// Close ends the link.
func (l *UDP) Close() error {
	err := l.conn.Close()
	l.mu.Lock()
	for _, peer := range l.peers {
		peer.Close()
	}
	l.mu.Unlock()
	l.serving.Wait()
	return err
}

// passes decides a datagram's fate.
func (l *UDP) passes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.Float64() < l.loss {
		l.lost.Add(1)
		return false
	}
	l.passed.Add(1)
	return true
}

func (l *UDP) forward() {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := l.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		peer := l.peer(from)
		if peer != nil && l.passes() {
			_, _ = peer.Write(buf[:n]) // an unreachable target has lost it
		}
	}
}

// peer returns the socket that stands for a sender.
func (l *UDP) peer(from netip.AddrPort) *net.UDPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if peer := l.peers[from]; peer != nil {
		return peer
	}
	peer, err := net.DialUDP("udp", nil, l.target)
	if err != nil {
		return nil
	}
	l.peers[from] = peer
	l.serving.Go(func() { l.back(peer, from) })
	return peer
}

// back forwards what comes back, until the link is closed. That the target
// isn't there at the moment ends nothing.
func (l *UDP) back(peer *net.UDPConn, to netip.AddrPort) {
	buf := make([]byte, maxDatagram)
	for {
		n, err := peer.Read(buf)
		if err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil && l.passes() {
			_, _ = l.conn.WriteToUDPAddrPort(buf[:n], to)
		}
	}
}
