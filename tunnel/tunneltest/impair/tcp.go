package impair

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// dialTimeout bounds a connection to the target.
const dialTimeout = 5 * time.Second

// TCPConfig says what a TCP link is between.
type TCPConfig struct {
	Listen  string  // "host:port" for those who dial; empty: a free port of 127.0.0.1
	Target  string  // "host:port" that they mean
	Seed    uint64  // of the jitter
	Profile Profile // without what only datagrams have
}

// A TCP is a link between those who connect to its address and a target. All
// its connections share each direction's rate. It is safe for concurrent use.
type TCP struct {
	// Static after construction.
	target   string
	listener *net.TCPListener
	ways     [2]*streamWay // by Side
	serving  sync.WaitGroup

	// Guarded by mu.
	mu      sync.Mutex
	profile Profile
	conns   map[*connection]struct{}
	counts  TCPCounts
	refuse  bool
	closed  bool
}

// A TCPCounts says what has passed a TCP link.
type TCPCounts struct {
	UpBytes     int64 `json:"up_bytes"`
	DownBytes   int64 `json:"down_bytes"`
	Connections int   `json:"connections"` // now
	Accepted    int64 `json:"accepted"`
	Refused     int64 `json:"refused"` // by Refuse
	Failed      int64 `json:"failed"`  // the target wasn't there
	Cut         int64 `json:"cut"`     // by Cut
	UpLate      Late  `json:"up_late"` // by how much what passed was sent too late
	DownLate    Late  `json:"down_late"`
}

// ListenTCP opens a link, until Close.
func ListenTCP(cfg TCPConfig) (*TCP, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if _, err := net.ResolveTCPAddr("tcp", cfg.Target); err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener, err := net.ListenTCP("tcp", addr)
	if err != nil {
		return nil, err
	}
	t := &TCP{target: cfg.Target, listener: listener, conns: map[*connection]struct{}{}}
	epoch := time.Now()
	for side := range t.ways {
		if t.ways[side], err = newStreamWay(cfg.Seed, Side(side), epoch); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	if err := t.SetProfile(cfg.Profile); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	t.serving.Go(t.accept)
	for _, w := range t.ways {
		t.serving.Go(func() { w.schedule.run(handOver) })
	}
	return t, nil
}

// Addr is what to dial, "host:port".
func (t *TCP) Addr() string { return t.listener.Addr().String() }

// Dial dials the link, whatever the address.
func (t *TCP) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, t.Addr())
}

// SetProfile changes what the link does from now on, also to connections that
// there are. Only those made later let no more wait in the kernel than the
// queue holds.
func (t *TCP) SetProfile(p Profile) error {
	if err := p.ValidateTCP(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	raw, err := t.listener.SyscallConn()
	if err != nil {
		return err
	}
	if t.profile.Up.Rate > 0 && p.Up.Rate == 0 {
		err = setBuffer(raw, maxUnderWay) // what it was grows by itself, which can't be had again
	} else {
		err = limitBuffer(raw, p.Up)
	}
	t.profile = p
	t.ways[Up].set(p.Up)
	t.ways[Down].set(p.Down)
	return err
}

// Profile returns what the link does.
func (t *TCP) Profile() Profile {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.profile
}

// Stall has nothing move in a direction any more, or again, as when a path
// loses everything for a while: nothing breaks and nothing is lost. A new
// connection comes about, but is as still.
func (t *TCP) Stall(side Side, on bool) {
	for i, w := range t.ways {
		if side.covers(Side(i)) {
			w.stall(on)
		}
	}
}

// Refuse has new connections reset at once, or no longer.
func (t *TCP) Refuse(on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refuse = on
}

// Cut resets all connections and returns how many there were. What is under
// way is lost.
func (t *TCP) Cut() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.conns)
	for c := range t.conns {
		c.reset()
	}
	t.counts.Cut += int64(n)
	return n
}

// Counts returns what has passed so far.
func (t *TCP) Counts() TCPCounts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Connections = len(t.conns)
	c.UpBytes, c.DownBytes = t.ways[Up].passed.Load(), t.ways[Down].passed.Load()
	c.UpLate, c.DownLate = t.ways[Up].schedule.lateOf(), t.ways[Down].schedule.lateOf()
	return c
}

// Close ends the link and all connections.
func (t *TCP) Close() error {
	err := t.listener.Close()
	t.mu.Lock()
	t.closed = true
	for c := range t.conns {
		c.reset()
	}
	t.mu.Unlock()
	for _, w := range t.ways {
		if w != nil {
			w.stall(false)
			w.schedule.close()
		}
	}
	t.serving.Wait()
	return err
}

func (t *TCP) accept() {
	for {
		near, err := t.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // that one ended before
		}
		if !t.welcome() {
			_ = near.SetLinger(0)
			near.Close()
			continue
		}
		t.serving.Go(func() { t.serve(near) })
	}
}

// welcome counts a new connection and reports whether it may be.
func (t *TCP) welcome() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refuse || t.closed {
		t.counts.Refused++
		return false
	}
	t.counts.Accepted++
	return true
}

// serve serves one connection to its end.
func (t *TCP) serve(near *net.TCPConn) {
	accepted := t.ways[Up].schedule.now()
	profile := t.Profile()
	ctx, cancel := context.WithCancel(context.Background())
	c := &connection{near: near, ctx: ctx, cancel: cancel}
	if !t.hold(c) {
		c.end()
		return
	}
	defer t.drop(c)
	dialer := net.Dialer{Timeout: dialTimeout, Control: func(_, _ string, raw syscall.RawConn) error {
		return limitBuffer(raw, profile.Down) // before the handshake, which fixes the window
	}}
	far, err := dialer.DialContext(ctx, "tcp", t.target)
	if err != nil {
		t.fail()
		c.reset()
		return
	}
	if !c.join(far.(*net.TCPConn)) {
		return
	}
	// Whoever dials has its first word under way one round trip after its
	// first packet; here the kernel has shaken hands with it at once.
	up := newPipe(t.ways[Up], c, near, c.far, accepted+profile.Up.Delay+profile.Down.Delay)
	down := newPipe(t.ways[Down], c, c.far, near, 0)
	if !c.run(up, down) {
		return
	}
	var all sync.WaitGroup
	for _, p := range []*pipe{up, down} {
		all.Go(p.read)
		all.Go(p.write)
	}
	all.Wait()
}

func (t *TCP) fail() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.Failed++
}

func (t *TCP) hold(c *connection) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.conns[c] = struct{}{}
	return true
}

func (t *TCP) drop(c *connection) {
	c.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
}

// A connection is a pair of them: with who dialled, and with the target.
type connection struct {
	// Static after construction.
	near   *net.TCPConn
	ctx    context.Context // until the end
	cancel context.CancelFunc

	// Guarded by mu.
	mu    sync.Mutex
	far   *net.TCPConn
	pipes []*pipe
	ended bool
}

// join adds the connection with the target, unless all is over.
func (c *connection) join(far *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		far.Close()
		return false
	}
	c.far = far
	return true
}

// run adds what moves the bytes, unless all is over.
func (c *connection) run(pipes ...*pipe) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pipes = pipes
	return !c.ended
}

// reset ends both at once, and what is on its way is lost.
func (c *connection) reset() {
	c.mu.Lock()
	for _, conn := range []*net.TCPConn{c.near, c.far} {
		if conn != nil {
			_ = conn.SetLinger(0)
		}
	}
	c.mu.Unlock()
	c.end()
}

// end closes both.
func (c *connection) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.cancel()
	c.near.Close()
	if c.far != nil {
		c.far.Close()
	}
	for _, p := range c.pipes {
		p.stop()
	}
}
