package gateway

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
)

// Gated returns a listener whose connections can be written to without blocking once
// TLS is above them: give it to [tls.NewListener].
func Gated(l net.Listener) net.Listener { return gatedListener{l} }

type gatedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gate{Conn: conn}, nil
}

// A gate is the connection below TLS. It hands the records of an offer to who makes
// it, who sends them without blocking. What the socket didn't take of them goes
// before all later records: TLS may write some of its own, while it reads.
type gate struct {
	net.Conn

	mu sync.Mutex // held for each write
	// Guarded by mu.
	offering bool   // records are kept, not written
	records  []byte // that are kept
	rest     []byte // to be written before anything else
}

// Write implements net.Conn.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.offering {
		g.records = append(g.records, p...)
		return len(p), nil
	}
	if err := g.flushLocked(); err != nil {
		return 0, err
	}
	return g.Conn.Write(p)
}

// flush writes what an offer has left.
func (g *gate) flush() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flushLocked()
}

// flushLocked is flush without the lock. The caller holds mu.
func (g *gate) flushLocked() error {
	if len(g.rest) == 0 {
		return nil
	}
	n, err := g.Conn.Write(g.rest)
	g.rest = g.rest[:copy(g.rest, g.rest[n:])]
	return err
}

// begin begins an offer, unless something waits to be written.
func (g *gate) begin() bool {
	if !g.mu.TryLock() {
		return false
	}
	defer g.mu.Unlock()
	g.offering = len(g.rest) == 0
	return g.offering
}

// seal returns the records of frame, which it appends to arena.
func (g *gate) seal(secured *tls.Conn, frame, arena []byte) (wire, after []byte, err error) {
	g.collect(arena)
	_, err = secured.Write(frame)
	after = g.collect(nil)
	return after[len(arena):len(after):len(after)], after, err
}

// collect has records appended to into, and returns to what they were before.
func (g *gate) collect(into []byte) (records []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	records, g.records = g.records, into
	return records
}

// end ends an offer, of which rest was not sent. drained: nothing is to be written.
func (g *gate) end(rest []byte) (drained bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rest = slices.Concat(rest, g.records) // TLS has written these since
	g.offering, g.records = false, nil
	return len(g.rest) == 0
}
