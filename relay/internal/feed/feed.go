// Package feed keeps the recent output of one terminal, once for all its
// viewers, and each viewer's position in it.
//
// A [Feed] is written by the reader of the terminal's stream and read by one
// [Reader] for each viewer. It does no I/O and has no goroutine: the hub hands it
// output, and writes to sockets what [Reader.Next] returns.
//
// Locks: Feed.mu guards the ring and everything about its readers. Memory.mu, of
// the memory that all feeds share, is taken last. Nothing is called with Feed.mu
// held but the ring, the memory, and [Consumer.Wake].
package feed

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// MaxAtOnce bounds the readers that Deliver offers output together.
const MaxAtOnce = 64

// MaxBatch bounds the output that [Reader.Next] returns at a time, and so how
// long a text frame waits behind output.
const MaxBatch = 128 << 10

// Options are what a Feed is made of.
type Options struct {
	Opened  protocol.TerminalOpened // the beginning of the stream
	Window  int                     // the ring's size limit, in bytes
	Memory  *Memory                 // for keyframes; nil: unlimited
	Sandbox protocol.SandboxID
	Metrics *Metrics
	Ended   *atomic.Bool // set before a reader can see the end of the process; may be nil
}

// A Feed is the output of one terminal. Appending costs the same however slow
// its readers are.
type Feed struct {
	// Static after construction.
	metrics *Metrics
	memory  *Memory
	sandbox protocol.SandboxID
	over    *atomic.Bool // set with ended, for readers without mu; may be nil

	// Owned by the reader of the stream.
	arrived time.Time // of the oldest output that Deliver has not offered; zero: none
	offered []*Reader // reused by Deliver

	// Guarded by mu.
	mu         sync.Mutex
	ring       *replay.Ring
	begin      uint64           // the ring's first offset, at the start of a line
	generation uint64           // of the ring: each new ring raises it, which invalidates older cursors
	ended      bool             // the process is over and its last frame is in the ring
	readers    []*Reader        // Deliver walks it without mu: appended to, else copied; some have left
	gone       int              // how many of readers have left
	window     int              // the ring's, in bytes
	newest     [2]*Keyframe     // by Sort
	owed       [2]bool          // requested from the agent, by Sort
	cached     [2]*list.Element // entries of newest in memory
}

// New returns a feed that begins at the stream's first offset.
func New(o Options) *Feed {
	return &Feed{
		metrics: o.Metrics, memory: o.Memory, sandbox: o.Sandbox, over: o.Ended,
		ring:   replay.New(o.Opened.Epoch, o.Opened.Offset, o.Opened.Cols, o.Opened.Rows, o.Window),
		begin:  o.Opened.Offset,
		window: o.Window,
	}
}

// SetWindow bounds the ring's memory, in bytes.
func (f *Feed) SetWindow(window int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if window != f.window {
		f.window = window
		f.ring.SetWindow(window)
	}
}

// Window returns the ring's memory limit, in bytes.
func (f *Feed) Window() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.window
}

// Held returns how much memory the ring takes, in bytes.
func (f *Feed) Held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.Held()
}

// Size returns the terminal's size at the head.
func (f *Feed) Size() (cols, rows int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.SizeAt(f.ring.Head())
}

// Head returns where the feed ends.
func (f *Feed) Head() protocol.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return protocol.Position{Epoch: f.ring.Epoch(), Offset: f.ring.Head()}
}

// Append appends output. Deliver must follow.
func (f *Feed) Append(m protocol.Data) error {
	if f.arrived.IsZero() {
		f.arrived = time.Now()
	}
	f.metrics.TerminalBytes.Add(float64(len(m.Bytes)))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.Data(m.Offset, m.Bytes)
}

// Deliver offers the appended output to every reader that is not blocked: it calls
// offer with up to MaxAtOnce of them at a time, in a slice that it uses again.
func (f *Feed) Deliver(offer func([]*Reader)) {
	f.mu.Lock()
	readers := f.readers
	f.mu.Unlock()
	batch := f.offered[:0]
	for _, r := range readers {
		if r.blocked.Load() || r.gone.Load() {
			continue
		}
		if batch = append(batch, r); len(batch) == MaxAtOnce {
			offer(batch)
			batch = batch[:0]
		}
	}
	if len(batch) > 0 {
		offer(batch)
	}
	clear(batch[:cap(batch)])
	f.offered = batch[:0]
	if len(readers) > 0 {
		f.metrics.Delivery.Observe(time.Since(f.arrived).Seconds())
	}
	f.arrived = time.Time{}
}

// Resize appends a change of size, unless the size is the same.
func (f *Feed) Resize(m protocol.Resized) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cols, rows := f.ring.SizeAt(f.ring.Head()); cols == m.Cols && rows == m.Rows {
		return nil
	}
	err := f.ring.Resize(m.Offset, m.Cols, m.Rows, protocol.EncodeServerMessage(protocol.SizeChanged(m)))
	f.wakeAll()
	return err
}

// Exit appends the end of the process. It ignores repetitions: the agent
// repeats it on each new stream.
func (f *Feed) Exit(m protocol.Exited) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.ring.Text(protocol.EncodeServerMessage(
		protocol.PTYClosed{ExitCode: m.Code, Signal: m.Signal, Offset: m.Offset}))
	f.ended = true
	if f.over != nil {
		f.over.Store(true)
	}
	f.wakeAll()
}

// Ended reports whether the terminal's process has ended.
func (f *Feed) Ended() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// Replace begins a new ring at pos. What the old one held is gone.
func (f *Feed) Replace(pos protocol.Position, cols, rows int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring = replay.New(pos.Epoch, pos.Offset, cols, rows, f.window)
	f.begin = pos.Offset
	f.generation++
	for sort := range f.newest {
		f.cache(Sort(sort), nil)
	}
	f.wakeAll()
}

// wakeAll wakes every consumer. The caller holds mu.
func (f *Feed) wakeAll() {
	for _, r := range f.readers {
		if !r.gone.Load() {
			r.consumer.Wake()
		}
	}
}

// add adds r to the readers, behind what a Deliver may be walking now. The caller
// holds mu.
func (f *Feed) add(r *Reader) {
	r.listed = true
	f.readers = append(f.readers, r)
}

// remove notes that r has left. The readers are copied without those who have once
// they are half of them: each who leaves pays for one. The caller holds mu.
func (f *Feed) remove(r *Reader) {
	if !r.listed {
		return
	}
	r.listed = false
	r.gone.Store(true)
	if f.gone++; 2*f.gone < len(f.readers) {
		return
	}
	here := make([]*Reader, 0, len(f.readers)-f.gone)
	for _, r := range f.readers {
		if r.listed {
			here = append(here, r)
		}
	}
	f.readers, f.gone = here, 0
}

// firstLine returns the offset of the oldest line for a new viewer. The caller
// holds mu.
func (f *Feed) firstLine() uint64 {
	if f.ring.Oldest() == f.begin && f.ring.Head()-f.begin <= protocol.MaxReplayBytes {
		return f.begin
	}
	return f.ring.LineStart(protocol.MaxReplayBytes)
}

// Close drops the cached keyframes: no new viewer gets one any more.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sort := range f.newest {
		f.cache(Sort(sort), nil)
	}
	for _, r := range f.readers {
		r.pos.dropPrefix()
	}
}
