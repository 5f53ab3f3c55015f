package impair

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxChunk is the most that is read at once of a connection.
	maxChunk = 64 << 10
	// chunkTime is how much a line with a rate takes at once.
	chunkTime = 20 * time.Millisecond
	// maxUnderWay bounds the bytes of a connection that are under way in one
	// direction; whoever sends more waits.
	maxUnderWay = 4 << 20
	maxChunks   = 4096 // as many pieces at most
	// minBuffer is the least that the kernel is asked to hold of a limited
	// line.
	minBuffer = 4 << 10
)

// A streamWay is one direction of a TCP link.
type streamWay struct {
	schedule *schedule[chunk]
	passed   atomic.Int64 // bytes

	// Guarded by mu.
	mu      sync.Mutex
	line    *line
	stalled chan struct{} // not nil: nothing moves until it is closed
}

// A chunk is some bytes of a connection, none at its end.
type chunk struct {
	pipe *pipe
	data []byte
}

func newStreamWay(seed uint64, side Side, epoch time.Time) (*streamWay, error) {
	s, err := newSchedule[chunk](epoch)
	if err != nil {
		return nil, err
	}
	return &streamWay{schedule: s, line: newLine(seed, side)}, nil
}

func (w *streamWay) set(p Path) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line.path = p
}

func (w *streamWay) stall(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case on && w.stalled == nil:
		w.stalled = make(chan struct{})
	case !on && w.stalled != nil:
		close(w.stalled)
		w.stalled = nil
	}
}

// gate returns what to wait for while nothing moves, else nil.
func (w *streamWay) gate() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stalled
}

// portion returns how much to read at once.
func (w *streamWay) portion() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &w.line.path
	if p.Rate == 0 {
		return maxChunk
	}
	return int(max(64, min(maxChunk, w.line.bytes(chunkTime), w.line.queue())))
}

// admit returns when so many bytes that came at now are due, or how long they
// must wait before they may be asked about again.
func (w *streamWay) admit(now time.Duration, size int) (due, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.line.wait(now, size); wait > 0 {
		return 0, wait
	}
	left, _ := w.line.transmit(now, size)
	return w.line.arrival(left), 0
}

// A pipe is one direction of a connection.
type pipe struct {
	// Static after construction.
	way      *streamWay
	conn     *connection
	from, to *net.TCPConn

	// Owned by read.
	last time.Duration // when what was read last is due

	// Guarded by mu.
	mu       sync.Mutex
	changed  *sync.Cond
	ready    [][]byte // due, waiting to be written; nil: the end
	underWay int      // bytes read and not written
	chunks   int      // read and not written
	over     bool     // nothing is read or written any more
}

// newPipe makes a pipe whose first byte doesn't leave before a time.
func newPipe(w *streamWay, c *connection, from, to *net.TCPConn, earliest time.Duration) *pipe {
	p := &pipe{way: w, conn: c, from: from, to: to, last: earliest}
	p.changed = sync.NewCond(&p.mu)
	return p
}

// read takes what comes, until the end.
func (p *pipe) read() {
	buf := make([]byte, maxChunk)
	opened := p.last
	for p.moves() && p.room() {
		n, err := p.from.Read(buf[:p.way.portion()])
		if n > 0 && !p.take(max(p.way.schedule.now(), opened), buf[:n]) {
			return
		}
		if errors.Is(err, io.EOF) {
			due, _ := p.way.admit(max(p.way.schedule.now(), opened), 0)
			p.put(max(p.last, due), nil)
			return
		}
		if err != nil {
			p.conn.reset()
			return
		}
	}
}

// take has data written when it is due. It reports whether the connection is
// still there.
func (p *pipe) take(now time.Duration, data []byte) bool {
	if !p.moves() {
		return false
	}
	due, wait := p.way.admit(now, len(data))
	for wait > 0 {
		if !p.sleep(wait) {
			return false
		}
		now = max(now, p.way.schedule.now())
		due, wait = p.way.admit(now, len(data))
	}
	p.last = max(p.last, due) // a shorter delay overtakes nothing
	if p.last <= now && p.empty() {
		return p.emit(data)
	}
	p.put(p.last, append([]byte(nil), data...))
	return true
}

// moves waits while the way is stalled. It reports whether the connection is
// still there.
func (p *pipe) moves() bool {
	for {
		gate := p.way.gate()
		if gate == nil {
			return true
		}
		select {
		case <-gate:
		case <-p.conn.ctx.Done():
			return false
		}
	}
}

func (p *pipe) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.conn.ctx.Done():
		return false
	}
}

// room waits until more may be under way. It reports whether the connection is
// still there.
func (p *pipe) room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over && (p.underWay > maxUnderWay || p.chunks > maxChunks) {
		p.changed.Wait()
	}
	return !p.over
}

func (p *pipe) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chunks == 0
}

// put has data, or the end, handed over when it is due.
func (p *pipe) put(due time.Duration, data []byte) {
	p.mu.Lock()
	p.underWay += len(data)
	p.chunks++
	p.mu.Unlock()
	p.way.schedule.put(due, chunk{p, data})
}

// handOver gives the pipes what is due.
func handOver(batch []chunk) {
	for _, c := range batch {
		p := c.pipe
		p.mu.Lock()
		p.ready = append(p.ready, c.data)
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// write writes what is due, until the end.
func (p *pipe) write() {
	for {
		data, ok := p.next()
		if !ok {
			return
		}
		if data == nil {
			p.to.CloseWrite()
			return
		}
		if !p.emit(data) {
			return
		}
		p.mu.Lock()
		p.underWay -= len(data)
		p.chunks--
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

func (p *pipe) next() (data []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.over && len(p.ready) == 0 {
		p.changed.Wait()
	}
	if p.over {
		return nil, false
	}
	data = p.ready[0]
	p.ready[0] = nil
	p.ready = p.ready[1:]
	return data, true
}

// emit writes. It reports whether the connection is still there.
func (p *pipe) emit(data []byte) bool {
	if !p.moves() {
		return false
	}
	n, err := p.to.Write(data)
	p.way.passed.Add(int64(n))
	if err != nil {
		p.conn.reset()
		return false
	}
	return true
}

// stop ends what waits.
func (p *pipe) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.changed.Broadcast()
}

// limitBuffer has the kernel hold no more of what comes over a line with a
// rate than its queue, so that a sender soon feels it.
func limitBuffer(raw syscall.RawConn, path Path) error {
	if path.Rate == 0 {
		return nil
	}
	line := line{path: path}
	return setBuffer(raw, int(max(line.queue(), minBuffer)))
}

func setBuffer(raw syscall.RawConn, bytes int) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, bytes)
	})
	return errors.Join(err, failed)
}
