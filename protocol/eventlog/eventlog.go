// Package eventlog is an append-only log of events: an epoch, and the newest
// events of an endless sequence, each with its offset. It is for events what
// bytelog is for a terminal's bytes.
//
// An offset counts events. A returning reader presents the position behind its
// last event; [Log.Since] says where it continues, and whether events are
// missing in between. The same holds for caches of the log: a cache makes a Log
// at the position that it is told, appends events, and makes a new one if the
// epoch or the offset differs.
package eventlog

import (
	"fmt"
	"iter"

	"github.com/fairlead/fairlead/protocol"
)

// A Bound limits a log. A member that is 0 is no limit.
type Bound struct {
	Events int
	Bytes  int // by the sizes passed to [Log.Append]
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

// Bytes returns the sum of the held events' sizes.
func (l *Log[E]) Bytes() int { return l.bytes }

// Bound returns the log's limits.
func (l *Log[E]) Bound() Bound { return l.bound }

// Restart gives the log another epoch, so that readers notice a break. Events
// and offsets stay.
func (l *Log[E]) Restart(epoch protocol.Epoch) { l.epoch = epoch }

// Append adds an event of a size in bytes. It first makes room, and returns the
// dropped events.
func (l *Log[E]) Append(e E, size int) (dropped []E) {
	dropped = l.MakeRoom(1, size)
	l.held = append(l.held, entry[E]{e, size})
	l.bytes += size
	return dropped
}

// MakeRoom drops and returns the oldest events if so many more, of so many
// bytes together, would exceed the bound. It frees half of the bound at once,
// because dropping may be expensive for a log on disk. An event that alone
// exceeds the bound empties the log.
func (l *Log[E]) MakeRoom(events, bytes int) (dropped []E) {
	if l.Fits(events, bytes) {
		return nil
	}
	half := Bound{Events: (l.bound.Events + 1) / 2, Bytes: (l.bound.Bytes + 1) / 2}
	return l.dropWhile(func() bool { return !l.fits(0, 0, half) || !l.Fits(events, bytes) })
}

// Fits reports whether so many more events, of so many bytes together, are
// within the bound.
func (l *Log[E]) Fits(events, bytes int) bool { return l.fits(events, bytes, l.bound) }

// fits is Fits for any bound.
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
		l.held[0] = entry[E]{} // lets the array release it
		l.held, l.first = l.held[1:], l.first+1
		l.bytes -= oldest.size
		dropped = append(dropped, oldest.event)
	}
	return dropped
}

// At returns the event at offset; false if it is still to come. It fails with
// [ErrGap] if the event was dropped.
func (l *Log[E]) At(offset uint64) (e E, ok bool, err error) {
	switch {
	case offset < l.first:
		return e, false, ErrGap{l.first}
	case offset >= l.Next():
		return e, false, nil
	}
	return l.held[offset-l.first].event, true, nil
}

// Since returns where a reader with a position continues: there, if the log
// holds what follows, otherwise at Next. Without a position it is Next. gap
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

// All yields the held events, oldest first.
func (l *Log[E]) All() iter.Seq2[uint64, E] {
	return func(yield func(uint64, E) bool) {
		for i, held := range l.held {
			if !yield(l.first+uint64(i), held.event) {
				return
			}
		}
	}
}

// Backward yields the held events, newest first.
func (l *Log[E]) Backward() iter.Seq2[uint64, E] {
	return func(yield func(uint64, E) bool) {
		for i := len(l.held) - 1; i >= 0; i-- {
			if !yield(l.first+uint64(i), l.held[i].event) {
				return
			}
		}
	}
}
