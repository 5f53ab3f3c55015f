// Package bytelog is the append-only log of a terminal: an epoch, the newest
// bytes of an endless stream, each with its offset, and the events (a new size,
// the end) between them.
//
// # Events and offsets
//
// A reader resumes with an offset and nothing else, so two rules say which
// events at exactly that offset it gets:
//
//   - A resize at offset o belongs to [Log.SizeAt](o). [Log.CursorAt](o) is
//     behind it. A later resize is delivered, even if it is still at o.
//   - The end is never skipped: a cursor at the head of an ended log still
//     delivers it.
//
// So a reader that takes SizeAt(o) and then follows a cursor from o always has
// the right size, and one cursor delivers no event twice. Resizes at one
// offset supersede one another; only the last is kept, and a cursor that has
// not delivered the others skips them.
package bytelog

import (
	"errors"
	"fmt"
	"iter"
	"sort"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// minBuffer is the size in bytes to which a log's buffer first grows.
	minBuffer = 4 << 10
	// maxResizes bounds the resizes held. One more, and the log drops the
	// oldest together with the bytes before it, as if the window ended there.
	maxResizes = 4096
)

// ErrFuture says that an offset lies behind the log's head.
var ErrFuture = errors.New("bytelog: offset is beyond the head")

// ErrGap says that an offset, or the place of a cursor, is no longer held.
// The log now begins at Oldest.
type ErrGap struct{ Oldest uint64 }

func (e ErrGap) Error() string {
	return fmt.Sprintf("bytelog: the place is lost, the log begins at offset %d", e.Oldest)
}

// A Log holds the newest bytes of a terminal and the events between them. It
// is not safe for concurrent use.
type Log struct {
	// Static after construction.
	epoch  protocol.Epoch
	window int // most bytes held

	// The bytes [oldest, head); the one at offset o is buf[o%len(buf)].
	buf          []byte // grows up to window
	oldest, head uint64

	// The events. Offsets and sequence numbers of resizes strictly rise.
	resizes []resize
	before  size   // in force before the first of resizes
	seq     uint64 // of the next resize
	exited  *protocol.Exited
}

type size struct{ cols, rows int }

type resize struct {
	offset uint64
	seq    uint64
	size
}

// New returns an empty log at offset 0 that will hold the newest window bytes.
// Its terminal has the default size. New panics when window is not positive.
func New(epoch protocol.Epoch, window int) *Log {
	if window < 1 {
		panic(fmt.Sprintf("bytelog: window of %d bytes", window))
	}
	return &Log{
		epoch:  epoch,
		window: window,
		before: size{protocol.DefaultCols, protocol.DefaultRows},
	}
}

// Epoch returns the name of this unbroken run of the log.
func (l *Log) Epoch() protocol.Epoch { return l.epoch }

// Oldest returns the offset of the oldest byte held, Head when none is.
func (l *Log) Oldest() uint64 { return l.oldest }

// Head returns the offset that the next byte will have.
func (l *Log) Head() uint64 { return l.head }

// Exited returns the end of the terminal, if it has ended.
func (l *Log) Exited() (protocol.Exited, bool) {
	if l.exited == nil {
		return protocol.Exited{}, false
	}
	return *l.exited, true
}

// Append adds a copy of p at the head and drops the oldest bytes beyond the
// window. Nothing follows the end: after [Log.Exit] it does nothing.
func (l *Log) Append(p []byte) {
	if l.exited != nil {
		return
	}
	if over := len(p) - l.window; over > 0 { // these would not outlast the call
		l.head += uint64(over)
		p = p[over:]
	}
	end := l.head + uint64(len(p))
	if window := uint64(l.window); end > l.oldest+window {
		l.drop(end - window)
	}
	l.grow(int(end - l.oldest))
	l.write(p)
}

// Resize records a new size at the head. It does nothing when the size is the
// one in force, or after [Log.Exit].
func (l *Log) Resize(cols, rows int) {
	to := size{cols, rows}
	if l.exited != nil || to == l.sizeAt(l.head) {
		return
	}
	if last := len(l.resizes) - 1; last >= 0 && l.resizes[last].offset == l.head {
		l.resizes = l.resizes[:last]
	}
	l.resizes = append(l.resizes, resize{l.head, l.seq, to})
	l.seq++
	if len(l.resizes) > maxResizes {
		l.drop(l.resizes[0].offset + 1)
	}
}

// Exit records the end at the head: an exit code, or −1 and the name of the
// signal that ended the process. Only the first call counts.
func (l *Log) Exit(code int, signal string) {
	if l.exited == nil {
		l.exited = &protocol.Exited{Offset: l.head, Code: code, Signal: signal}
	}
}

// SizeAt returns the terminal's size at offset, resizes there included; for an
// offset older than the log, the oldest size known.
func (l *Log) SizeAt(offset uint64) (cols, rows int) {
	s := l.sizeAt(offset)
	return s.cols, s.rows
}

func (l *Log) sizeAt(offset uint64) size {
	if i := l.resizesUpTo(offset); i > 0 {
		return l.resizes[i-1].size
	}
	return l.before
}

// resizesUpTo returns how many resizes happened at or before offset.
func (l *Log) resizesUpTo(offset uint64) int {
	return sort.Search(len(l.resizes), func(i int) bool { return l.resizes[i].offset > offset })
}

// LineStart returns where a newcomer should begin to read at most limit bytes:
// see [LineStart].
func (l *Log) LineStart(limit int) uint64 {
	from := l.head - min(uint64(max(limit, 0)), l.head-l.oldest)
	at := from
	if from > l.oldest {
		at-- // a line feed just before makes from a line start
	}
	return LineStart(from, at, l.head, l.spans(at, l.head))
}

// grow makes room for n bytes, at most a window.
func (l *Log) grow(n int) {
	if n <= len(l.buf) {
		return
	}
	held := l.spans(l.oldest, l.head) // still reads the old buffer
	l.buf, l.head = make([]byte, min(max(n, 2*len(l.buf), minBuffer), l.window)), l.oldest
	for span := range held {
		l.write(span)
	}
}

// write puts p at the head; the buffer has room.
func (l *Log) write(p []byte) {
	for len(p) > 0 {
		n := copy(l.buf[l.head%uint64(len(l.buf)):], p)
		l.head += uint64(n)
		p = p[n:]
	}
}

// drop gives up the bytes before oldest and the resizes between them. One at
// oldest itself stays, since a cursor there may still have to deliver it.
func (l *Log) drop(oldest uint64) {
	l.oldest = oldest
	n := 0
	for n < len(l.resizes) && l.resizes[n].offset < oldest {
		l.before = l.resizes[n].size
		n++
	}
	l.resizes = l.resizes[n:]
}

// span returns the bytes [offset, end), which are not none, as far as they lie
// in one piece.
func span(buf []byte, offset, end uint64) []byte {
	i := offset % uint64(len(buf))
	j := min(i+end-offset, uint64(len(buf)))
	return buf[i:j:j]
}

// spans yields the bytes [offset, end) of the buffer as it is now.
func (l *Log) spans(offset, end uint64) iter.Seq[[]byte] {
	buf := l.buf
	return func(yield func([]byte) bool) {
		for at := offset; at < end; {
			p := span(buf, at, end)
			if !yield(p) {
				return
			}
			at += uint64(len(p))
		}
	}
}
