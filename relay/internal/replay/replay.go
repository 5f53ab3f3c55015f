// Package replay is a relay's bounded copy of a terminal's log, kept as ready
// WebSocket frames for every viewer.
//
// Output is framed and copied once, on arrival, into slabs: blocks of memory
// that hold whole frames one after another. A written byte in a slab never
// changes. So a viewer is a mere [Cursor], and what [Ring.Next] returns, one
// slice per slab, may be written to a socket without the ring's lock, even
// after the ring has dropped the slab.
//
// Besides its offset in the terminal's output, every frame has a position: the
// sum of the sizes of all frames before it. Offsets are public; positions also
// tell events at one offset apart.
//
// Resizes and offsets relate as in [bytelog]: [Ring.SizeAt](o) includes a
// resize at offset o, and [Ring.CursorAt](o) is behind it.
package replay

import (
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

// Sizes of slabs in bytes. The first one is small, since most terminals print
// little; each further one is twice as large as the last.
const (
	minSlab   = 64
	firstSlab = 1 << 10
	maxSlab   = 32 << 10
	// slabsPerWindow is how many slabs a full window has at least: the ring
	// drops whole slabs.
	slabsPerWindow = 16
	// minTail is the smallest share of a slab, 1/minTail, that is worth a frame of
	// its own; less room at a slab's end stays empty.
	minTail = 16
)

// A Ring holds the newest output of a terminal. It is not safe for concurrent
// use, but what Next returned is.
type Ring struct {
	// Static after construction.
	epoch protocol.Epoch

	// The content.
	window int    // memory limit for slabs, in bytes
	slab   int    // bytes of a full-size one
	slabs  []slab // oldest first
	held   int    // sum of the slabs' capacities
	head   uint64 // offset of the next byte
	end    uint64 // position of the next frame

	// The resizes, each with a frame in a slab.
	resizes []resize // oldest first
	before  size     // in force before the first of resizes
}

// A slab is a run of whole frames.
type slab struct {
	base        uint64 // position of the first frame
	start, stop uint64 // offsets [start, stop) of its output
	frames      []byte // grows within its capacity only
}

func (s *slab) end() uint64 { return s.base + uint64(len(s.frames)) }

type size struct{ cols, rows int32 }

type resize struct {
	offset   uint64
	at, next uint64 // positions of its frame and of the one behind it
	size
}

// New returns an empty ring whose first byte will have the given offset, where
// the terminal has the given size. Its slabs, with headers, events and free
// room, take at most window bytes of memory; only the newest slab is always
// kept. New panics if window is not positive.
func New(epoch protocol.Epoch, offset uint64, cols, rows, window int) *Ring {
	r := &Ring{
		epoch:  epoch,
		head:   offset,
		before: size{int32(cols), int32(rows)},
	}
	r.SetWindow(window)
	return r
}

// SetWindow changes the memory limit of the slabs, as in [New], and drops the
// oldest ones beyond it. It panics if window is not positive.
func (r *Ring) SetWindow(window int) {
	if window < 1 {
		panic(fmt.Sprintf("replay: window of %d bytes", window))
	}
	r.window = window
	r.slab = min(max(window/slabsPerWindow, minSlab), maxSlab)
	r.drop(len(r.slabs) - 1)
}

// Epoch returns the epoch of the log that the ring copies.
func (r *Ring) Epoch() protocol.Epoch { return r.epoch }

// Head returns the offset that the next byte will have.
func (r *Ring) Head() uint64 { return r.head }

// Held returns how much memory the slabs take, in bytes.
func (r *Ring) Held() int { return r.held }

// Oldest returns the offset of the oldest byte held, Head when none is.
func (r *Ring) Oldest() uint64 {
	if len(r.slabs) == 0 {
		return r.head
	}
	return r.slabs[0].start
}

// Data adds a copy of p, output that begins at offset, and drops the oldest
// slabs beyond the window. It fails without a change unless offset is the head.
// A large p may become several frames.
func (r *Ring) Data(offset uint64, p []byte) error {
	if err := r.check(offset); err != nil {
		return err
	}
	for len(p) > 0 {
		s := r.last()
		n := s.fit(len(p))
		if n == 0 {
			s = r.addSlab(0)
			n = s.fit(len(p))
		}
		s.frames = AppendBinaryFrame(s.frames, p[:n])
		r.head += uint64(n)
		s.stop = r.head
		r.end = s.end()
		p = p[n:]
	}
	return nil
}

// Text adds an event at the head: one text frame that moves no offset.
func (r *Ring) Text(json []byte) {
	n := headerBytes(len(json)) + len(json)
	s := r.last()
	if cap(s.frames)-len(s.frames) < n {
		s = r.addSlab(n)
	}
	s.frames = AppendTextFrame(s.frames, json)
	r.end = s.end()
}

// Resize records the terminal's new size from offset on and adds json as its
// event. It fails without a change unless offset is the head.
func (r *Ring) Resize(offset uint64, cols, rows int, json []byte) error {
	if err := r.check(offset); err != nil {
		return err
	}
	at := r.end
	r.Text(json)
	r.resizes = append(r.resizes, resize{offset, at, r.end, size{int32(cols), int32(rows)}})
	return nil
}

// SizeAt returns the terminal's size at offset, resizes there included; for an
// offset older than the ring, the oldest size known.
func (r *Ring) SizeAt(offset uint64) (cols, rows int) {
	s := r.before
	if i := sort.Search(len(r.resizes), func(i int) bool { return r.resizes[i].offset > offset }); i > 0 {
		s = r.resizes[i-1].size
	}
	return int(s.cols), int(s.rows)
}

// LineStart returns where a new viewer should begin to read at most limit
// bytes: see [bytelog.LineStart].
func (r *Ring) LineStart(limit int) uint64 {
	oldest := r.Oldest()
	from := r.head - min(uint64(max(limit, 0)), r.head-oldest)
	at := from
	if from > oldest {
		at-- // from is a line start if a line feed precedes it
	}
	return bytelog.LineStart(from, at, r.head, r.output(at))
}

// output yields the output from offset, which is held, to the head.
func (r *Ring) output(offset uint64) iter.Seq[[]byte] {
	c := r.seek(offset)
	return func(yield func([]byte) bool) {
		at, skip := c.at, c.skip
		for i := r.find(at); i < len(r.slabs); i++ {
			s := &r.slabs[i]
			for at < s.end() {
				f := firstFrame(s.frames[at-s.base:])
				if !f.isEvent && !yield(f.data[skip:]) {
					return
				}
				at, skip = at+uint64(f.size), 0
			}
		}
	}
}

func (r *Ring) check(offset uint64) error {
	if offset != r.head {
		return protocol.Errorf(protocol.KindUpstream, "replay: output at offset %d, expected %d", offset, r.head)
	}
	return nil
}

// last returns the newest slab, or an empty one without room.
func (r *Ring) last() *slab {
	if len(r.slabs) == 0 {
		return &slab{}
	}
	return &r.slabs[len(r.slabs)-1]
}

// fit returns how many of n bytes should go into the next frame of s: 0 if the
// remaining room should stay empty.
func (s *slab) fit(n int) int {
	room := cap(s.frames) - len(s.frames)
	switch {
	case headerBytes(n)+n <= room:
		return n
	case room*minTail < cap(s.frames) || room <= maxHeader:
		return 0
	}
	return room - headerBytes(room)
}

// addSlab adds an empty slab with room for a frame of at least n bytes, and
// drops the oldest ones beyond the window.
func (r *Ring) addSlab(n int) *slab {
	grown := max(firstSlab, 2*cap(r.last().frames))
	n = max(n, min(grown, r.slab))
	r.held += n
	r.slabs = append(r.slabs, slab{
		base:   r.end,
		start:  r.head,
		stop:   r.head,
		frames: make([]byte, 0, n),
	})
	r.drop(len(r.slabs) - 1)
	return r.last()
}

// drop drops up to most of the oldest slabs beyond the window, with their
// resizes.
func (r *Ring) drop(most int) {
	dropped := 0
	for ; r.held > r.window && dropped < most; dropped++ {
		r.held -= cap(r.slabs[dropped].frames)
	}
	if dropped == 0 {
		return
	}
	r.slabs = slices.Delete(r.slabs, 0, dropped)
	gone := 0
	for gone < len(r.resizes) && r.resizes[gone].at < r.slabs[0].base {
		r.before = r.resizes[gone].size
		gone++
	}
	r.resizes = r.resizes[gone:]
}
