package bytelog

import (
	"sort"

	"github.com/fairlead/fairlead/protocol"
)

// A Cursor is a reader's position between two items of the log that made it.
// The zero Cursor is the beginning of any log, before its first event.
type Cursor struct {
	offset uint64 // of the next byte
	seq    uint64 // resizes before it are delivered or superseded
	ended  bool   // the end is delivered
}

// Offset returns the offset of the next byte.
func (c Cursor) Offset() uint64 { return c.offset }

// An Item is the next thing in a log: exactly one field is set.
type Item struct {
	Bytes   []byte // aliases the log: valid until its next Append
	Resized *protocol.Resized
	Exited  *protocol.Exited
}

// CursorAt returns a cursor before the byte at offset and behind the resizes
// there. It fails with [ErrGap] when offset is no longer held and with
// [ErrFuture] when it lies beyond the head.
func (l *Log) CursorAt(offset uint64) (Cursor, error) {
	if err := l.check(offset); err != nil {
		return Cursor{}, err
	}
	c := Cursor{offset: offset, seq: l.seq}
	if i := l.resizesUpTo(offset); i < len(l.resizes) {
		c.seq = l.resizes[i].seq
	}
	return c, nil
}

// Next returns the item at c and moves c behind it; false if c is at the head.
// Bytes are at least one and at most limit, at least 1; they end before the
// next event, and may end earlier. It fails with [ErrGap], c unmoved, if the
// log has dropped what c reads next.
func (l *Log) Next(c *Cursor, limit int) (Item, bool, error) {
	if err := l.check(c.offset); err != nil {
		return Item{}, false, err
	}
	end := l.head
	if r, ok := l.pending(c.seq); ok {
		if r.offset == c.offset {
			c.seq = r.seq + 1
			return Item{Resized: &protocol.Resized{Offset: r.offset, Cols: r.cols, Rows: r.rows}}, true, nil
		}
		end = r.offset
	}
	if c.offset < end {
		p := span(l.buf, c.offset, min(end, c.offset+uint64(max(limit, 1))))
		c.offset += uint64(len(p))
		return Item{Bytes: p}, true, nil
	}
	if l.exited != nil && !c.ended {
		c.ended = true
		exited := *l.exited
		return Item{Exited: &exited}, true, nil
	}
	return Item{}, false, nil
}

// pending returns the first resize that a cursor at seq has not delivered.
func (l *Log) pending(seq uint64) (resize, bool) {
	if seq == l.seq {
		return resize{}, false // the common case: none
	}
	i := sort.Search(len(l.resizes), func(i int) bool { return l.resizes[i].seq >= seq })
	if i == len(l.resizes) {
		return resize{}, false
	}
	return l.resizes[i], true
}

func (l *Log) check(offset uint64) error {
	switch {
	case offset < l.oldest:
		return ErrGap{l.oldest}
	case offset > l.head:
		return ErrFuture
	}
	return nil
}
