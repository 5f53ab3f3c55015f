package hub

import (
	"container/list"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// A feed is the output of one terminal: the ring, and who reads it. The
// stream's reader appends, and offers what is new to every viewer's socket;
// what a socket doesn't take at once its writer delivers, from its own cursor.
// Appending costs the same however slow any viewer is.
type feed struct {
	// Static after construction.
	finished *atomic.Bool // the hub's: set before a viewer can see the end
	metrics  *Metrics
	memory   *memory // for keyframes; nil: there is enough
	sandbox  protocol.SandboxID

	// Owned by the stream's reader.
	arrived time.Time // the oldest output that deliver has not handed out; zero: there is none

	// Guarded by mu.
	mu      sync.Mutex
	ring    *replay.Ring
	begin   uint64           // where the ring began: a place to start reading, by the agent's word
	run     uint64           // raised when the ring is replaced, which makes older cursors void
	ended   bool             // the terminal's process is over and its last frame is in the ring
	viewers []*Viewer        // replaced, never changed: data walks it without mu
	window  int              // the ring's, in bytes
	newest  [2]*keyframe     // of each sort
	owed    [2]bool          // asked for, of each sort
	cached  [2]*list.Element // of newest, in memory
}

func newFeed(opened protocol.TerminalOpened, finished *atomic.Bool, window int, metrics *Metrics) *feed {
	return &feed{
		finished: finished, metrics: metrics,
		ring:   replay.New(opened.Epoch, opened.Offset, opened.Cols, opened.Rows, window),
		begin:  opened.Offset,
		window: window,
	}
}

// setWindow bounds the ring's memory, in bytes.
func (f *feed) setWindow(window int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if window != f.window {
		f.window = window
		f.ring.SetWindow(window)
	}
}

// held returns how much memory the ring takes, in bytes.
func (f *feed) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.Held()
}

// size returns the terminal's size, as far as is known here.
func (f *feed) size() size {
	f.mu.Lock()
	defer f.mu.Unlock()
	cols, rows := f.ring.SizeAt(f.ring.Head())
	return size{cols, rows}
}

// position returns where the feed ends.
func (f *feed) position() protocol.Position {
	f.mu.Lock()
	defer f.mu.Unlock()
	return protocol.Position{Epoch: f.ring.Epoch(), Offset: f.ring.Head()}
}

// data appends output. deliver must follow.
func (f *feed) data(m protocol.Data) error {
	if f.arrived.IsZero() {
		f.arrived = time.Now()
	}
	f.metrics.TerminalBytes.Add(float64(len(m.Bytes)))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ring.Data(m.Offset, m.Bytes)
}

// deliver hands the viewers what was appended.
func (f *feed) deliver() {
	f.mu.Lock()
	viewers := f.viewers
	f.mu.Unlock()
	for _, v := range viewers {
		if !v.held.Load() {
			v.push()
		}
	}
	if len(viewers) > 0 {
		f.metrics.Delivery.Observe(time.Since(f.arrived).Seconds())
	}
	f.arrived = time.Time{}
}

// resized appends a change of size, unless it changes nothing.
func (f *feed) resized(m protocol.Resized) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cols, rows := f.ring.SizeAt(f.ring.Head()); cols == m.Cols && rows == m.Rows {
		return nil
	}
	err := f.ring.Resize(m.Offset, m.Cols, m.Rows, protocol.EncodeServerMessage(protocol.SizeChanged(m)))
	f.wake()
	return err
}

// exited appends the end of the process. Repeated ends are ignored: a stream
// that was opened again says it again.
func (f *feed) exited(m protocol.Exited) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return
	}
	f.ring.Text(protocol.EncodeServerMessage(
		protocol.PTYClosed{ExitCode: m.Code, Signal: m.Signal, Offset: m.Offset}))
	f.ended = true
	f.finished.Store(true)
	f.wake()
}

// over reports whether the terminal's process has ended.
func (f *feed) over() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ended
}

// replace begins a new run at pos; what the ring held is gone.
func (f *feed) replace(pos protocol.Position, cols, rows int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring = replay.New(pos.Epoch, pos.Offset, cols, rows, f.window)
	f.begin = pos.Offset
	f.run++
	for sort := range f.newest {
		f.cache(sort, nil)
	}
	f.wake()
}

// wake tells every viewer's writer that there is something new. The caller
// holds mu.
func (f *feed) wake() {
	for _, v := range f.viewers {
		v.nudge()
	}
}

func (f *feed) leave(v *Viewer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v.place.unlead()
	if i := slices.Index(f.viewers, v); i >= 0 {
		f.viewers = slices.Delete(slices.Clone(f.viewers), i, i+1)
	}
}

// start returns the offset of the oldest line that a newcomer gets.
func (f *feed) start() uint64 {
	if f.ring.Oldest() == f.begin && f.ring.Head()-f.begin <= protocol.MaxReplayBytes {
		return f.begin
	}
	return f.ring.LineStart(protocol.MaxReplayBytes)
}
