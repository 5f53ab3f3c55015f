package impair

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// maxRead is the most that is read at once.
	maxRead = 64 << 10
	// socketBytes is what the kernel is asked to hold for a socket.
	socketBytes = 8 << 20
	// maxHeld bounds the bytes under way in one direction; what is more is
	// counted as full.
	maxHeld = 64 << 20
	// maxPeers bounds those who send. One that was silent for peerIdle goes, as
	// in the tables of a NAT; when there are too many, the one that has been
	// silent for longest does, if that is leastIdle.
	maxPeers  = 4096
	peerIdle  = 2 * time.Minute
	leastIdle = 10 * time.Second
)

// UDPConfig says what a UDP link is between.
type UDPConfig struct {
	Listen  string // "host:port" for those who dial; empty: a free port of 127.0.0.1
	Target  string // "host:port" that they mean
	Seed    uint64 // of all chance
	Profile Profile
}

// A UDP is a link between those who send to its address and a target. It is
// safe for concurrent use.
type UDP struct {
	// Static after construction.
	target  *net.UDPAddr
	conn    *net.UDPConn
	ways    [2]*way // by Side
	serving sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	profile Profile
	peers   map[netip.AddrPort]*peer
	closed  bool
	refused int64 // datagrams of more peers than there may be
}

// A peer is somebody who sends, and the socket that stands for them at the
// target.
type peer struct {
	addr netip.AddrPort

	// Guarded by mu.
	mu   sync.Mutex
	conn *net.UDPConn
	last time.Time // when it sent
}

// ListenUDP opens a link, until Close.
func ListenUDP(cfg UDPConfig) (*UDP, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	target, err := net.ResolveUDPAddr("udp", cfg.Target)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	addr, err := net.ResolveUDPAddr("udp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	conn, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	if err := prepare(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	u := &UDP{target: target, conn: conn, peers: map[netip.AddrPort]*peer{}}
	epoch := time.Now()
	for side := range u.ways {
		if u.ways[side], err = newWay(cfg.Seed, Side(side), epoch); err != nil {
			return nil, errors.Join(err, u.Close())
		}
	}
	if err := u.SetProfile(cfg.Profile); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	u.serving.Go(u.forward)
	u.serving.Go(func() { u.ways[Up].schedule.run(u.ways[Up].sendAll) })
	u.serving.Go(func() { u.ways[Down].schedule.run(u.ways[Down].sendAll) })
	return u, nil
}

// Addr is what to dial, "host:port".
func (u *UDP) Addr() string { return u.conn.LocalAddr().String() }

// SetProfile changes what the link does from now on. What is under way
// arrives as it was going to.
func (u *UDP) SetProfile(p Profile) error {
	if err := p.Validate(); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.profile = p
	u.ways[Up].set(p.Up)
	u.ways[Down].set(p.Down)
	return nil
}

// Profile returns what the link does.
func (u *UDP) Profile() Profile {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.profile
}

// Blackhole has everything that comes in a direction vanish, or no longer.
func (u *UDP) Blackhole(side Side, on bool) {
	for i, w := range u.ways {
		if side.covers(Side(i)) {
			w.blackhole(on)
		}
	}
}

// Rebind has the target see another source port of each peer from now on, as
// when a NAT has forgotten it: what the target still sends to the old one is
// lost. It returns how many peers there are.
func (u *UDP) Rebind() (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return 0, net.ErrClosed
	}
	for _, p := range u.peers {
		if err := u.connect(p); err != nil {
			return 0, err
		}
	}
	return len(u.peers), nil
}

// Counts returns what has become of all datagrams so far.
func (u *UDP) Counts() Counts {
	u.mu.Lock()
	defer u.mu.Unlock()
	return Counts{
		Up: u.ways[Up].read(), Down: u.ways[Down].read(),
		Peers: len(u.peers), Refused: u.refused,
	}
}

// Close ends the link. What is under way is lost.
func (u *UDP) Close() error {
	err := u.conn.Close()
	u.mu.Lock()
	u.closed = true
	for _, p := range u.peers {
		p.close()
	}
	u.mu.Unlock()
	for _, w := range u.ways {
		if w != nil {
			w.schedule.close()
		}
	}
	u.serving.Wait()
	return err
}

// forward takes what peers send.
func (u *UDP) forward() {
	buf, control := make([]byte, maxRead), make([]byte, 64)
	for {
		n, nc, _, from, err := u.conn.ReadMsgUDPAddrPort(buf, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if p := u.peer(from); p != nil {
			u.ways[Up].take(buf[:n], segmentOf(control[:nc], n), p.toTarget)
		}
	}
}

// peer returns who sends from an address, nil when there are too many.
func (u *UDP) peer(from netip.AddrPort) *peer {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if p := u.peers[from]; p != nil {
		p.mu.Lock()
		p.last = now
		p.mu.Unlock()
		return p
	}
	p := &peer{addr: from, last: now}
	if len(u.peers) >= maxPeers {
		u.evict(now)
	}
	if len(u.peers) >= maxPeers || u.closed || u.connect(p) != nil {
		u.refused++
		return nil
	}
	u.peers[from] = p
	return p
}

// evict forgets the peer that has been silent for longest. The caller holds mu.
func (u *UDP) evict(now time.Time) {
	var oldest *peer
	since := now.Add(-leastIdle)
	for _, p := range u.peers {
		p.mu.Lock()
		if p.last.Before(since) {
			oldest, since = p, p.last
		}
		p.mu.Unlock()
	}
	if oldest != nil {
		delete(u.peers, oldest.addr)
		oldest.close()
	}
}

// connect gives p a new socket. The caller holds mu.
func (u *UDP) connect(p *peer) error {
	conn, err := net.DialUDP("udp", nil, u.target)
	if err != nil {
		return err
	}
	if err := prepare(conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	p.mu.Lock()
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn = conn
	p.mu.Unlock()
	u.serving.Go(func() { u.back(p, conn) })
	return nil
}

// back takes what the target sends to a peer, until its socket is closed or it
// has been silent for long. That the target isn't there at the moment ends
// nothing.
func (u *UDP) back(p *peer, conn *net.UDPConn) {
	buf, control := make([]byte, maxRead), make([]byte, 64)
	toPeer := func(data []byte, segment int) { _ = write(u.conn, p.addr, data, segment) }
	conn.SetReadDeadline(time.Now().Add(peerIdle))
	for {
		n, nc, _, _, err := conn.ReadMsgUDPAddrPort(buf, control)
		switch {
		case err == nil:
			u.ways[Down].take(buf[:n], segmentOf(control[:nc], n), toPeer)
		case errors.Is(err, os.ErrDeadlineExceeded):
			left := u.drop(p)
			if left <= 0 {
				return
			}
			conn.SetReadDeadline(time.Now().Add(left))
		case errors.Is(err, net.ErrClosed):
			return
		}
	}
}

// drop forgets a peer that has been silent, or returns how long it may still
// be.
func (u *UDP) drop(p *peer) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	p.mu.Lock()
	left := time.Until(p.last.Add(peerIdle))
	p.mu.Unlock()
	if left <= 0 {
		delete(u.peers, p.addr)
		p.close()
	}
	return left
}

func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn.Close()
}

// toTarget sends from the peer's socket. A target that isn't there refuses,
// which the next write is told: that one counts, so it is tried again.
func (p *peer) toTarget(data []byte, segment int) {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if errors.Is(write(conn, netip.AddrPort{}, data, segment), syscall.ECONNREFUSED) {
		_ = write(conn, netip.AddrPort{}, data, segment)
	}
}
