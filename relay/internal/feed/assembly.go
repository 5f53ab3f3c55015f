package feed

import (
	"fmt"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// Sizes of the parts that a keyframe is kept in, in bytes: no more is allocated
// than has come, and no part is written as more than one write.
const (
	firstPart = 16 << 10
	lastPart  = 64 << 10
)

// An Assembly is a keyframe of which some pieces have come. The stream's reader
// owns it.
type Assembly struct {
	memory  *Memory // nil: it costs nothing
	sandbox protocol.SandboxID

	next    protocol.Keyframe // what the next piece must say; its Bytes don't count
	total   int               // bytes of all pieces
	frames  net.Buffers       // a WebSocket frame, as far as it has come
	charged int               // bytes taken for frames
	started bool
	dropped string // why nothing is kept; empty: it is kept
}

// Assemble returns an empty assembly for keyframes of f.
func (f *Feed) Assemble() Assembly { return Assembly{memory: f.memory, sandbox: f.sandbox} }

// Started reports whether some pieces of a keyframe have come.
func (a *Assembly) Started() bool { return a.started }

// Add takes the next piece. whole says that it was the last one. It fails when
// the piece doesn't belong where it stands; what a first piece announces is
// not allocated before it comes. unwanted says of a first piece that nobody has
// asked for it, so that nothing is kept.
func (a *Assembly) Add(m protocol.Keyframe, unwanted bool) (whole bool, err error) {
	left := m.Left + len(m.Bytes)
	if !a.started {
		a.next = protocol.Keyframe{Offset: m.Offset, History: m.History, Left: left}
		a.total, a.started = left, true
		if unwanted {
			a.dropped = DroppedUnasked
		}
		a.put(replay.AppendBinaryHeader(nil, left), left)
	}
	if m.Offset != a.next.Offset || m.History != a.next.History || left != a.next.Left {
		return false, fmt.Errorf("feed: a piece of a keyframe at offset %d with %d bytes left, expected %d with %d",
			m.Offset, left, a.next.Offset, a.next.Left)
	}
	a.put(m.Bytes, left)
	a.next.Left = m.Left
	return m.Left == 0, nil
}

// put keeps p, the beginning of what is still to come.
func (a *Assembly) put(p []byte, left int) {
	for len(p) > 0 && a.dropped == "" {
		last := len(a.frames) - 1
		if last < 0 || len(a.frames[last]) == cap(a.frames[last]) {
			size := min(max(a.charged, firstPart), lastPart, left+len(p))
			if a.memory != nil && !a.memory.take(a.sandbox, size) {
				a.Drop(DroppedMemory)
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

// Drop gives up what has come, and what comes of the same keyframe.
func (a *Assembly) Drop(why string) {
	if a.memory != nil && a.charged > 0 {
		a.memory.add(a.sandbox, -a.charged)
	}
	a.frames, a.charged, a.dropped = nil, 0, why
}

// Take returns the whole keyframe, or why it wasn't kept, and makes ready for
// another. Release the keyframe when done.
func (a *Assembly) Take() (kf *Keyframe, dropped string) {
	if a.dropped == "" {
		kf = &Keyframe{offset: a.next.Offset, sort: SortOf(a.next.History), bytes: a.total, frames: a.frames}
		if a.memory != nil {
			kf.charge = &charge{memory: a.memory, sandbox: a.sandbox, bytes: a.charged}
			kf.charge.holders.Store(1)
		}
	}
	dropped = a.dropped
	*a = Assembly{memory: a.memory, sandbox: a.sandbox}
	return kf, dropped
}
