package hub

import (
	"fmt"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// reuseBytes bounds the output behind a keyframe that is sent once more:
// beyond it a fresh one is cheaper.
const reuseBytes = 64 << 10

// Sizes of the parts that a keyframe is kept in, in bytes: no more is allocated
// than has come, and no part is written as more than one write.
const (
	firstPart = 16 << 10
	lastPart  = 64 << 10
)

// A keyframe is what a terminal shows at one point of its output, framed once
// for all viewers that get it. It never changes.
type keyframe struct {
	offset     uint64
	history    bool // with lines above the screen
	cols, rows int
	bytes      int         // of the keyframe itself
	frames     net.Buffers // the same as one WebSocket frame, in parts
	charge     *charge     // its memory

	run    uint64        // of the feed, when it came
	cursor replay.Cursor // where output goes on
}

// An assembly is a keyframe of which some pieces have come. Owned by the
// stream's reader.
type assembly struct {
	memory  *memory // nil: it costs nothing
	sandbox protocol.SandboxID

	next    protocol.Keyframe // what the next piece must say; its Bytes don't count
	total   int               // bytes of all pieces
	frames  net.Buffers       // a WebSocket frame, as far as it has come
	charged int               // bytes taken for frames
	started bool
	dropped string // why nothing is kept; empty: it is kept
}

// add takes the next piece. whole says that it was the last one. It fails when
// the piece doesn't belong where it stands; what a first piece announces is
// not allocated before it comes. unwanted says of a first piece that nobody has
// asked for it, so that nothing is kept.
func (a *assembly) add(m protocol.Keyframe, unwanted bool) (whole bool, err error) {
	left := m.Left + len(m.Bytes)
	if !a.started {
		a.next = protocol.Keyframe{Offset: m.Offset, History: m.History, Left: left}
		a.total, a.started = left, true
		if unwanted {
			a.dropped = droppedUnasked
		}
		a.put(replay.AppendBinaryHeader(nil, left), left)
	}
	if m.Offset != a.next.Offset || m.History != a.next.History || left != a.next.Left {
		return false, fmt.Errorf("hub: a piece of a keyframe at offset %d with %d bytes left, expected %d with %d",
			m.Offset, left, a.next.Offset, a.next.Left)
	}
	a.put(m.Bytes, left)
	a.next.Left = m.Left
	return m.Left == 0, nil
}

// put keeps p, the beginning of what is still to come.
func (a *assembly) put(p []byte, left int) {
	for len(p) > 0 && a.dropped == "" {
		last := len(a.frames) - 1
		if last < 0 || len(a.frames[last]) == cap(a.frames[last]) {
			size := min(max(a.charged, firstPart), lastPart, left+len(p))
			if a.memory != nil && !a.memory.take(a.sandbox, size) {
				a.drop(droppedMemory)
				return
			}
			a.charged += size
			a.frames = append(a.frames, make([]byte, 0, size))
			last++
		}
		n := min(len(p), cap(a.frames[last])-len(a.frames[last]))
		a.frames[last] = append(a.frames[last], p[:n]...)
		p = p[n:]
	}
}

// drop gives up what has come, and what comes of the same keyframe.
func (a *assembly) drop(why string) {
	if a.memory != nil && a.charged > 0 {
		a.memory.add(a.sandbox, -a.charged)
	}
	a.frames, a.charged, a.dropped = nil, 0, why
}

// take returns the whole keyframe, or why it wasn't kept, and makes ready for
// another. Release the keyframe's charge when done.
func (a *assembly) take() (kf *keyframe, dropped string) {
	if a.dropped == "" {
		kf = &keyframe{offset: a.next.Offset, history: a.next.History, bytes: a.total, frames: a.frames}
		if a.memory != nil {
			kf.charge = &charge{memory: a.memory, sandbox: a.sandbox, bytes: a.charged}
			kf.charge.holders.Store(1)
		}
	}
	dropped = a.dropped
	*a = assembly{memory: a.memory, sandbox: a.sandbox}
	return kf, dropped
}

// keyframe adopts kf, which stands where the ring ends. It fails when kf is
// made for another offset.
func (f *feed) keyframe(kf *keyframe) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.placed(kf.offset); err != nil {
		return err
	}
	kf.run, kf.cursor = f.run, f.ring.End()
	kf.cols, kf.rows = f.ring.SizeAt(kf.offset)
	f.cache(sortOf(kf.history), kf)
	f.settle(kf.history)
	return nil
}

// cache keeps kf for those who come later; nil keeps none. The caller holds mu.
func (f *feed) cache(sort int, kf *keyframe) {
	if old := f.newest[sort]; old != nil {
		if e := f.cached[sort]; e != nil {
			f.memory.forget(e)
		}
		old.charge.release()
	}
	f.newest[sort], f.cached[sort] = kf, nil
	if kf == nil {
		return
	}
	kf.charge.hold()
	if f.memory != nil {
		f.cached[sort] = f.memory.keep(&cached{f, sort, kf})
	}
}

// evict has kf give way, if it is still kept.
func (f *feed) evict(sort int, kf *keyframe) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.newest[sort] == kf {
		f.cache(sort, nil)
	}
}

// placed fails when a keyframe at an offset doesn't belong where the ring ends.
func (f *feed) placed(offset uint64) error {
	if head := f.ring.Head(); offset != head {
		return fmt.Errorf("hub: a keyframe at offset %d, expected %d", offset, head)
	}
	return nil
}

// owe notes that the agent is asked for a keyframe of a sort, or, for another
// stream, that it owes none.
func (f *feed) owe(sorts ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(sorts) == 0 {
		f.owed = [2]bool{}
	}
	for _, sort := range sorts {
		f.owed[sort] = true
	}
}

// owes reports whether a keyframe was asked for and has not come.
func (f *feed) owes(history bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owed[sortOf(history)]
}

// settle notes that a keyframe has come. One with history answers both. The
// caller holds mu.
func (f *feed) settle(history bool) {
	f.owed[sortOf(history)] = false
	if history {
		f.owed[sortOf(false)] = false
	}
}

// dropped notes that a keyframe has come, and was not kept. It fails as keyframe
// does.
func (f *feed) dropped(m protocol.Keyframe, why string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.metrics.KeyframesDropped.WithLabelValues(why).Inc()
	if why != droppedUnasked {
		f.settle(m.History)
	}
	return f.placed(m.Offset)
}

// end gives up all keyframes: nobody new gets one any more.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sort := range f.newest {
		f.cache(sort, nil)
	}
	for _, v := range f.viewers {
		v.place.unlead()
	}
}

// sortOf numbers the two sorts of keyframes.
func sortOf(history bool) int {
	if history {
		return 1
	}
	return 0
}

// fresh returns a keyframe of a sort that is worth sending once more, to a
// viewer that has everything before after; nil when there is none. The caller
// holds mu.
func (f *feed) fresh(history bool, after uint64) *keyframe {
	kf := f.newest[sortOf(history)]
	if kf == nil || kf.run != f.run || !f.ring.Holds(kf.cursor) || kf.offset < after || f.ring.Head()-kf.offset > reuseBytes {
		return nil
	}
	return kf
}

// freshest is fresh for a viewer that takes either sort, but rather the small
// one. The caller holds mu.
func (f *feed) freshest(history bool, after uint64) *keyframe {
	if !history {
		if kf := f.fresh(false, after); kf != nil {
			return kf
		}
	}
	return f.fresh(true, after)
}

// forget drops the keyframes that nobody will get any more.
func (f *feed) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sort := range f.newest {
		if f.fresh(sort == 1, 0) == nil {
			f.cache(sort, nil)
		}
	}
}
