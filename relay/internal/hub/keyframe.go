package hub

import (
	"fmt"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// reuseBytes bounds the output behind a keyframe that is sent once more:
// beyond it a fresh one is cheaper.
const reuseBytes = 64 << 10

// A keyframe is what a terminal shows at one point of its output, framed once
// for all viewers that get it. It never changes.
type keyframe struct {
	offset     uint64
	history    bool // with lines above the screen
	cols, rows int
	bytes      int    // of the keyframe itself
	frame      []byte // the same as one WebSocket frame

	run    uint64        // of the feed, when it came
	cursor replay.Cursor // where output goes on
}

// An assembly is a keyframe of which some pieces have come. Owned by the
// stream's reader.
type assembly struct {
	next    protocol.Keyframe // what the next piece must say; its Bytes don't count
	total   int               // bytes of all pieces
	frame   []byte            // a WebSocket frame, as far as it has come
	started bool
}

// add takes the next piece. whole says that it was the last one. It fails when
// the piece doesn't belong where it stands; what a first piece announces is
// not allocated before it comes.
func (a *assembly) add(m protocol.Keyframe) (whole bool, err error) {
	left := m.Left + len(m.Bytes)
	if !a.started {
		*a = assembly{next: protocol.Keyframe{Offset: m.Offset, History: m.History, Left: left}, total: left, started: true}
		a.frame = replay.AppendBinaryHeader(nil, left)
	}
	if m.Offset != a.next.Offset || m.History != a.next.History || left != a.next.Left {
		return false, fmt.Errorf("hub: a piece of a keyframe at offset %d with %d bytes left, expected %d with %d",
			m.Offset, left, a.next.Offset, a.next.Left)
	}
	a.frame = append(a.frame, m.Bytes...)
	a.next.Left = m.Left
	return m.Left == 0, nil
}

// take returns the whole keyframe and makes ready for another.
func (a *assembly) take() *keyframe {
	kf := &keyframe{offset: a.next.Offset, history: a.next.History, bytes: a.total, frame: a.frame}
	*a = assembly{}
	return kf
}

// keyframe adopts kf, which stands where the ring ends. It fails when kf is
// made for another offset.
func (f *feed) keyframe(kf *keyframe) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if head := f.ring.Head(); kf.offset != head {
		return fmt.Errorf("hub: a keyframe at offset %d, expected %d", kf.offset, head)
	}
	kf.run, kf.cursor = f.run, f.ring.End()
	kf.cols, kf.rows = f.ring.SizeAt(kf.offset)
	f.newest[sortOf(kf.history)] = kf
	return nil
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
			f.newest[sort] = nil
		}
	}
}
