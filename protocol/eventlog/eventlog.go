// Package eventlog is an append-only log of events: an epoch, and the newest
// events of an endless sequence, each with its offset. It is for events what
// bytelog is for a terminal's bytes.
//
// An offset counts events. A reader that comes back presents the position behind
// the last event that it has; [Log.Since] says where it goes on, and whether
// events are missing in between. The same rule serves whoever holds the log and
// whoever caches it: a cache makes a Log at the position that it was told, appends
// what it hears, and makes a new one when the epoch or the offset is another.
package eventlog

import (
	"fmt"
	"iter"

	"github.com/fairlead/fairlead/protocol"
)

// A Bound says how much a log holds. A member that is 0 bounds nothing.
type Bound struct {
	Events int
	Bytes  int // by the sizes that [Log.Append] is told
}

// ErrGap says that an offset is no longer held. The log now begins at Oldest.
type ErrGap struct{ Oldest uint64 }

func (e ErrGap) Error() string {
	return fmt.Sprintf("eventlog: the place is lost, the log begins at offset %d", e.Oldest)
}

// A Log holds the newest events of a sequence. It is not safe for concurrent use.
type Log[E any] struct {
	epoch protocol.Epoch
	bound Bound
	first uint64     // offset of held[0]
	held  []entry[E] // the oldest first
	bytes int        // sum of the sizes of held
}

type entry[E any] struct {
	event E
	size  int
}

// New returns an empty log whose first event will be at the given position.
func New[E any](at protocol.Position, bound Bound) *Log[E] {
	return &Log[E]{epoch: at.Epoch, first: at.Offset, bound: bound}
}

// Epoch returns the name of this unbroken run of the log.
func (l *Log[E]) Epoch() protocol.Epoch { return l.epoch }

// First returns the offset of the oldest event held, Next when none is.
func (l *Log[E]) First() uint64 { return l.first }

// Next returns the offset that the next event will have.
func (l *Log[E]) Next() uint64 { return l.first + uint64(len(l.held)) }

// Len returns how many events are held.
func (l *Log[E]) Len() int { return len(l.held) }

// Bytes returns the sum of their sizes.
func (l *Log[E]) Bytes() int { return l.bytes }

// Bound returns how much the log holds at most.
func (l *Log[E]) Bound() Bound { return l.bound }

// Restart gives the log another epoch, for readers who must not go on as if
// nothing had happened. Events and offsets stay.
func (l *Log[E]) Restart(epoch protocol.Epoch) { l.epoch = epoch }

// Append adds an event of some size, in bytes. It first makes room, and returns
// what was dropped for it.
func (l *Log[E]) Append(e E, size int) (dropped []E) {
	dropped = l.MakeRoom(1, size)
	l.held = append(l.held, entry[E]{e, size})
	l.bytes += size
	return dropped
}

// MakeRoom drops the oldest events if so many more, of so many bytes together,
// would exceed the bound, and returns them. Half of the bound is freed at once,
// because dropping may be expensive for whoever stores the log. What alone
// exceeds the bound empties the log.
func (l *Log[E]) MakeRoom(events, bytes int) (dropped []E) {
	if l.Fits(events, bytes) {
		return nil
	}
	half := Bound{Events: (l.bound.Events + 1) / 2, Bytes: (l.bound.Bytes + 1) / 2}
	return l.dropWhile(func() bool { return !l.fits(0, 0, half) || !l.Fits(events, bytes) })
}

// Fits reports whether the bound leaves room for so many more events, of so many
// bytes together.
func (l *Log[E]) Fits(events, bytes int) bool { return l.fits(events, bytes, l.bound) }

// fits reports whether the log stays within bound with so much more.
func (l *Log[E]) fits(events, bytes int, bound Bound) bool {
	return (bound.Events == 0 || len(l.held)+events <= bound.Events) && (bound.Bytes == 0 || l.bytes+bytes <= bound.Bytes)
}

// DropBefore drops the events before offset and returns them.
func (l *Log[E]) DropBefore(offset uint64) (dropped []E) {
	return l.dropWhile(func() bool { return l.first < offset })
}

func (l *Log[E]) dropWhile(more func() bool) (dropped []E) {
	for len(l.held) > 0 && more() {
		oldest := l.held[0]
		l.held[0] = entry[E]{} // so that the array doesn't keep it
		l.held, l.first = l.held[1:], l.first+1
		l.bytes -= oldest.size
		dropped = append(dropped, oldest.event)
	}
	return dropped
}

// At returns the event at offset; false where that is still to come. It fails
// with [ErrGap] where the event is dropped.
func (l *Log[E]) At(offset uint64) (e E, ok bool, err error) {
	switch {
	case offset < l.first:
		return e, false, ErrGap{l.first}
	case offset >= l.Next():
		return e, false, nil
	}
	return l.held[offset-l.first].event, true, nil
}

// Since returns where a reader goes on that comes with a position: there, if the
// log holds what follows. Otherwise, or with none, it follows from now on. gap
// reports that events are missing.
func (l *Log[E]) Since(since *protocol.Position) (from uint64, gap bool) {
	switch {
	case since == nil:
		return l.Next(), false
	case since.Epoch == l.epoch && since.Offset >= l.first && since.Offset <= l.Next():
		return since.Offset, false
	}
	return l.Next(), true
}

// All yields the events that are held, the oldest first.
func (l *Log[E]) All() iter.Seq2[uint64, E] {
	return func(yield func(uint64, E) bool) {
		for i, held := range l.held {
			if !yield(l.first+uint64(i), held.event) {
				return
			}
		}
	}
}

// Backward yields the events that are held, the newest first.
func (l *Log[E]) Backward() iter.Seq2[uint64, E] {
	return func(yield func(uint64, E) bool) {
		for i := len(l.held) - 1; i >= 0; i-- {
			if !yield(l.first+uint64(i), l.held[i].event) {
				return
			}
		}
	}
}
