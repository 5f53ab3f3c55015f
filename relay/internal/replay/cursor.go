package replay

import (
	"net"
	"sort"

	"github.com/fairlead/fairlead/protocol/bytelog"
)

// A Cursor is a viewer's position in the ring that made it.
type Cursor struct {
	offset uint64 // of the next byte
	at     uint64 // position of the next frame
	skip   int    // bytes of that frame's output before offset
}

// Offset returns the offset of the next byte.
func (c Cursor) Offset() uint64 { return c.offset }

// End returns a cursor behind everything in the ring, resizes included.
func (r *Ring) End() Cursor { return Cursor{offset: r.head, at: r.end} }

// Holds reports whether the ring still has what c, a cursor of its own, reads
// next.
func (r *Ring) Holds(c Cursor) bool { return len(r.slabs) == 0 || c.at >= r.slabs[0].base }

// CursorAt returns a cursor before the byte at offset. It is behind the resizes
// there, up to the first other event: those are always delivered. It fails with
// [bytelog.ErrGap] if the ring no longer holds offset, and with
// [bytelog.ErrFuture] if it is beyond the head.
func (r *Ring) CursorAt(offset uint64) (Cursor, error) {
	switch oldest := r.Oldest(); {
	case offset < oldest:
		return Cursor{}, bytelog.ErrGap{Oldest: oldest}
	case offset > r.head:
		return Cursor{}, bytelog.ErrFuture
	}
	c := r.seek(offset)
	i := sort.Search(len(r.resizes), func(i int) bool { return r.resizes[i].at >= c.at })
	for ; i < len(r.resizes) && r.resizes[i].at == c.at; i++ {
		c.at = r.resizes[i].next
	}
	return c, nil
}

// seek returns a cursor before all events at offset, which is held.
func (r *Ring) seek(offset uint64) Cursor {
	i := sort.Search(len(r.slabs), func(i int) bool { return r.slabs[i].stop >= offset })
	if i == len(r.slabs) {
		return Cursor{offset: offset, at: r.end}
	}
	s := &r.slabs[i]
	at, o := s.base, s.start
	for o < offset {
		f := firstFrame(s.frames[at-s.base:])
		if n := uint64(len(f.data)); o+n > offset {
			return Cursor{offset: offset, at: at, skip: int(offset - o)}
		}
		at, o = at+uint64(f.size), o+uint64(len(f.data))
	}
	return Cursor{offset: offset, at: at}
}

// Next appends to dst the frames from c on, whole and in order, and moves c
// behind them. It returns as many as carry at most limit bytes of output
// together, but at least one; none if c is at the head. The bytes never change,
// even after the ring has dropped them, so dst may be written without a lock.
// It fails with [bytelog.ErrGap], c unmoved, if the ring has dropped what c
// reads next.
//
// Frames are passed by reference. Only if c begins inside a frame, a new header
// is made for its rest.
func (r *Ring) Next(c *Cursor, limit int, dst net.Buffers) (net.Buffers, error) {
	switch {
	case len(r.slabs) == 0 || c.at == r.end:
		return dst, nil
	case c.at < r.slabs[0].base:
		return dst, bytelog.ErrGap{Oldest: r.Oldest()}
	}
	most := c.offset + uint64(max(limit, 0))
	first := true
	i := r.find(c.at)
	if c.skip > 0 {
		dst = r.slabs[i].rest(c, dst)
		first = false
	}
	for ; i < len(r.slabs); i++ {
		s := &r.slabs[i]
		from := int(c.at - s.base)
		to := s.cut(c, most, first)
		if to > from {
			dst = append(dst, s.frames[from:to:to])
			first = false
		}
		if to < len(s.frames) {
			break
		}
	}
	return dst, nil
}

// rest appends the part of the frame from c on, as a frame of its own.
func (s *slab) rest(c *Cursor, dst net.Buffers) net.Buffers {
	f := firstFrame(s.frames[c.at-s.base:])
	data := f.data[c.skip:]
	header := appendHeader(make([]byte, 0, maxHeader), opBinary, len(data))
	*c = Cursor{offset: c.offset + uint64(len(data)), at: c.at + uint64(f.size)}
	return append(dst, header, data)
}

// cut moves c behind the frames of s that end at or before the offset most, and
// behind at least one if first is set. It returns the new position in s.
func (s *slab) cut(c *Cursor, most uint64, first bool) int {
	if s.stop <= most {
		c.offset, c.at = s.stop, s.end()
		return len(s.frames)
	}
	to := int(c.at - s.base)
	for to < len(s.frames) {
		f := firstFrame(s.frames[to:])
		after := c.offset + uint64(len(f.data))
		if after > most && !first {
			break
		}
		to += f.size
		c.offset, c.at = after, s.base+uint64(to)
		first = false
	}
	return to
}

// find returns the index of the slab with the frame at a position, or the
// number of slabs when that is the end.
func (r *Ring) find(at uint64) int {
	if last := len(r.slabs) - 1; last >= 0 && at >= r.slabs[last].base && at < r.end {
		return last // most viewers are up to date
	}
	return sort.Search(len(r.slabs), func(i int) bool { return r.slabs[i].end() > at })
}
