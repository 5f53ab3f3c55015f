package feed

import (
	"fmt"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// ReuseBytes bounds the output behind a keyframe that is reused: beyond it a
// fresh one is cheaper.
const ReuseBytes = 64 << 10

// A Sort is one of the two sorts of keyframes.
type Sort int

const (
	ScreenOnly  Sort = iota
	WithHistory      // with lines above the screen
)

// SortOf returns the sort of keyframes with or without history.
func SortOf(history bool) Sort {
	if history {
		return WithHistory
	}
	return ScreenOnly
}

// A Keyframe is a terminal's screen at one offset, framed once for all viewers.
// It is immutable.
type Keyframe struct {
	offset     uint64
	sort       Sort
	cols, rows int
	bytes      int         // of the keyframe itself
	frames     net.Buffers // the same as one WebSocket frame, in parts
	charge     *charge     // its share of Memory

	generation uint64        // of the ring, when it came
	cursor     replay.Cursor // where output continues
}

// Sort returns the keyframe's sort.
func (kf *Keyframe) Sort() Sort { return kf.sort }

// Release drops one reference to the keyframe.
func (kf *Keyframe) Release() { kf.charge.release() }

// AddKeyframe stores kf, which must be for the ring's head.
func (f *Feed) AddKeyframe(kf *Keyframe) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.atHead(kf.offset); err != nil {
		return err
	}
	kf.generation, kf.cursor = f.generation, f.ring.End()
	kf.cols, kf.rows = f.ring.SizeAt(kf.offset)
	f.cache(kf.sort, kf)
	f.answered(kf.sort)
	return nil
}

// DropKeyframe notes that a keyframe came and was dropped. It fails as
// AddKeyframe does.
func (f *Feed) DropKeyframe(m protocol.Keyframe, why string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.metrics.KeyframesDropped.WithLabelValues(why).Inc()
	if why != DroppedUnasked {
		f.answered(SortOf(m.History))
	}
	return f.atHead(m.Offset)
}

// atHead fails unless offset, a keyframe's, is the ring's head. The caller
// holds mu.
func (f *Feed) atHead(offset uint64) error {
	if head := f.ring.Head(); offset != head {
		return fmt.Errorf("feed: a keyframe at offset %d, expected %d", offset, head)
	}
	return nil
}

// cache keeps kf for later viewers; nil clears it. The caller holds mu.
func (f *Feed) cache(sort Sort, kf *Keyframe) {
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
		f.cached[sort] = f.memory.keep(&cached{f, kf})
	}
}

// evict drops kf from the cache, if it is still there.
func (f *Feed) evict(kf *Keyframe) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.newest[kf.sort] == kf {
		f.cache(kf.sort, nil)
	}
}

// Requested notes that the agent is asked for a keyframe of a sort.
func (f *Feed) Requested(sort Sort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owed[sort] = true
}

// NothingRequested clears the requests: the stream is new, and the agent owes
// no keyframe on it.
func (f *Feed) NothingRequested() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owed = [2]bool{}
}

// Owes reports whether a requested keyframe has not come yet.
func (f *Feed) Owes(sort Sort) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.owed[sort]
}

// answered notes that a keyframe has come. One with history answers both sorts
// of requests. The caller holds mu.
func (f *Feed) answered(sort Sort) {
	f.owed[sort] = false
	if sort == WithHistory {
		f.owed[ScreenOnly] = false
	}
}

// fresh returns a cached keyframe that is worth sending to a viewer that has
// everything before after; nil if there is none. The caller holds mu.
func (f *Feed) fresh(sort Sort, after uint64) *Keyframe {
	kf := f.newest[sort]
	if kf == nil || kf.generation != f.generation || !f.ring.Holds(kf.cursor) || kf.offset < after || f.ring.Head()-kf.offset > ReuseBytes {
		return nil
	}
	return kf
}

// Usable returns a cached keyframe for a reader that is to be moved ahead. If
// it needs no history, it gets the smaller one if there is a choice.
func (r *Reader) Usable(sort Sort) *Keyframe {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	after := uint64(0)
	if r.pos.epoch == f.ring.Epoch() {
		after = r.pos.sent()
	}
	if sort == ScreenOnly {
		if kf := f.fresh(ScreenOnly, after); kf != nil {
			return kf
		}
	}
	return f.fresh(WithHistory, after)
}

// DropStale drops cached keyframes that are too old to be reused.
func (f *Feed) DropStale() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for sort := range f.newest {
		if f.fresh(Sort(sort), 0) == nil {
			f.cache(Sort(sort), nil)
		}
	}
}
