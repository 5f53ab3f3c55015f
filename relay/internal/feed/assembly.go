package feed

import (
	"fmt"
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// Sizes of the parts of a keyframe, in bytes. Memory grows with what has come,
// and each part is one write.
const (
	firstPart = 16 << 10
	lastPart  = 64 << 10
)

// An Assembly is a partly received keyframe. The stream's reader owns it.
type Assembly struct {
	memory  *Memory // nil: unlimited
	sandbox protocol.SandboxID

	next    protocol.Keyframe // what the next piece must match, except for its Bytes
	total   int               // bytes of all pieces
	frames  net.Buffers       // the WebSocket frame, so far
	charged int               // bytes taken for frames
	started bool
	dropped string // why the keyframe is dropped; empty: it is kept
}

// Assemble returns an empty assembly for keyframes of f.
func (f *Feed) Assemble() Assembly { return Assembly{memory: f.memory, sandbox: f.sandbox} }

// Started reports whether some pieces of a keyframe have come.
func (a *Assembly) Started() bool { return a.started }

// Add takes the next piece; whole: it was the last one. It fails if the piece
// doesn't continue the keyframe. It allocates only for what has come, whatever
// the first piece announces. unwanted, of a first piece: nobody has asked for
// the keyframe, so it is dropped.
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

// put appends p, with left bytes still to come, to the frame.
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

// Drop drops the received part of the keyframe, and the rest of it.
func (a *Assembly) Drop(why string) {
	if a.memory != nil && a.charged > 0 {
		a.memory.add(a.sandbox, -a.charged)
	}
	a.frames, a.charged, a.dropped = nil, 0, why
}

// Take returns the whole keyframe, or why it was dropped, and resets the
// assembly. The caller must release the keyframe.
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
