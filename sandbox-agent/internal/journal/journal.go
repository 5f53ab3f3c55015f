// Package journal keeps event logs on disk, one file each. It tells a log's
// followers of each event, or that they have missed some.
//
// An event is on disk before any follower sees it. A restart therefore keeps
// the epoch, and a follower of the last process resumes at its position. Each
// [Log.Append] is one write and one sync for any number of events, so an owner
// with frequent events should batch them. A full log drops the older half of
// its events and replaces the file, which bounds the file too. A log that can't
// be written begins a new epoch.
package journal

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
)

var (
	// ErrDamaged says that a file's content is not what was written.
	ErrDamaged = errors.New("the log is damaged")
	// ErrTooLarge says that events exceed the log's bound.
	ErrTooLarge = errors.New("the events exceed the log's bound")
)

// A Format encodes the lines of a log's file, without their ends. One goroutine
// at a time uses it, and it must not call the log.
type Format[E any] interface {
	// Header encodes the first line: the position of the first event, and whatever
	// else the owner needs.
	Header(first protocol.Position) []byte
	ParseHeader(line []byte) (first protocol.Position, err error)
	// Event encodes an event. The line must hold its offset.
	Event(offset uint64, e E) []byte
	// ParseEvent reads a line. It fails with [ErrDamaged] for a whole line that is
	// no event of this log, and with any other error for one that was cut.
	ParseEvent(line []byte) (offset uint64, e E, err error)
	// Dropped learns of the oldest events before they go. The next Header follows.
	Dropped(events []E)
}

// Options configure a log.
type Options[E any] struct {
	Disk   Disk
	Name   string // of the file
	Format Format[E]
	// Bound is the log's greatest size, counted in the file's lines.
	Bound eventlog.Bound
	// Lagged counts the subscribers that were ended because they were too slow.
	// Several logs may share it; nil: not counted.
	Lagged *atomic.Uint64
}

// A Log is one event log. It is safe for concurrent use.
type Log[E any] struct {
	o Options[E] // static after construction

	writing sync.Mutex // held while the file is written, before mu
	// Owned by whoever holds writing.
	rewrite bool // the file must be replaced: it differs from this log
	apart   bool // the file, if there is one, has another epoch

	mu sync.Mutex
	// Guarded by mu, and changed only by whoever holds writing as well.
	events *eventlog.Log[E]
	// Guarded by mu.
	subscriptions map[*Subscription[E]]struct{}
}

// NewEpoch returns a random name for an epoch.
func NewEpoch() protocol.Epoch {
	var random [8]byte
	rand.Read(random[:])
	return protocol.Epoch(binary.BigEndian.Uint64(random[:]))
}

// New returns an empty log. The first event creates its file.
func New[E any](o Options[E], first protocol.Position) *Log[E] {
	l := newLog(o, first)
	l.rewrite, l.apart = true, true
	return l
}

func newLog[E any](o Options[E], first protocol.Position) *Log[E] {
	if o.Lagged == nil {
		o.Lagged = new(atomic.Uint64)
	}
	return &Log[E]{o: o, events: eventlog.New[E](first, o.Bound), subscriptions: map[*Subscription[E]]struct{}{}}
}

// Open reads a log from its file. A crash may have cut the last line: no
// follower has seen that event, and the next Append replaces the file. Open
// fails with [ErrDamaged] if anything else is not what was written.
func Open[E any](o Options[E]) (*Log[E], error) {
	data, err := o.Disk.Read(o.Name)
	if err != nil {
		return nil, err
	}
	text, rest, whole := bytes.Cut(data, []byte("\n"))
	if !whole {
		return nil, fmt.Errorf("first line: %w", ErrDamaged)
	}
	first, err := o.Format.ParseHeader(text)
	if err != nil {
		return nil, fmt.Errorf("first line: %w", ErrDamaged)
	}
	l := newLog(o, first)
	for len(rest) > 0 {
		text, rest, whole = bytes.Cut(rest, []byte("\n"))
		offset, e, err := o.Format.ParseEvent(text)
		switch {
		case err == nil && whole && offset == l.events.Next() && l.events.Fits(1, len(text)+1):
			l.events.Append(e, len(text)+1)
		case (err != nil && !errors.Is(err, ErrDamaged) || !whole) && len(bytes.Trim(rest, "\x00")) == 0:
			l.rewrite = true
			return l, nil
		default:
			return nil, fmt.Errorf("event %d: %w", l.events.Next(), ErrDamaged)
		}
	}
	return l, nil
}

// Append puts events on disk, then into the log, and wakes the subscribers. If
// the disk fails, it returns that error and the log has another epoch. In that
// case, and with [ErrTooLarge], the log doesn't have the events.
func (l *Log[E]) Append(events ...E) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	_, err := l.append(events)
	return err
}

// AppendAnyway is Append for events that happened whether or not they can be
// stored. Unless they are too large, the log has them in either case.
func (l *Log[E]) AppendAnyway(events ...E) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	sizes, err := l.append(events)
	if err != nil && sizes != nil {
		l.add(events, sizes)
	}
	return err
}

// append returns the sizes of the events' lines. The caller holds writing.
func (l *Log[E]) append(events []E) (sizes []int, err error) {
	text, sizes, err := l.prepare(events)
	if err != nil {
		return nil, err
	}
	if l.rewrite {
		err = l.o.Disk.Replace(l.o.Name, text)
	} else {
		err = l.o.Disk.Append(l.o.Name, text)
	}
	if err != nil {
		l.breakOff()
		return sizes, err
	}
	l.rewrite, l.apart = false, false
	l.add(events, sizes)
	return sizes, nil
}

// prepare makes room for events. It returns the text to write (for rewrite: the
// whole file) and the sizes of the events' lines. The caller holds writing.
func (l *Log[E]) prepare(events []E) (text []byte, sizes []int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []byte
	for i, e := range events {
		before := len(lines)
		lines = append(append(lines, l.o.Format.Event(l.events.Next()+uint64(i), e)...), '\n')
		sizes = append(sizes, len(lines)-before)
	}
	if b := l.o.Bound; b.Events > 0 && len(events) > b.Events || b.Bytes > 0 && len(lines) > b.Bytes {
		return nil, nil, ErrTooLarge
	}
	if dropped := l.events.MakeRoom(len(events), len(lines)); len(dropped) > 0 {
		l.o.Format.Dropped(dropped)
		l.rewrite = true
	}
	if !l.rewrite {
		return lines, sizes, nil
	}
	text = append(l.o.Format.Header(protocol.Position{Epoch: l.events.Epoch(), Offset: l.events.First()}), '\n')
	for offset, e := range l.events.All() {
		text = append(append(text, l.o.Format.Event(offset, e)...), '\n')
	}
	return append(text, lines...), sizes, nil
}

// add puts events into the log and wakes the subscribers. The caller holds
// writing.
func (l *Log[E]) add(events []E, sizes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, e := range events {
		l.events.Append(e, sizes[i])
	}
	for s := range l.subscriptions {
		s.poke()
	}
}

// breakOff ends the epoch after a disk failure, because the file may no longer
// match this log. The caller holds writing.
func (l *Log[E]) breakOff() {
	l.rewrite = true
	if l.apart {
		return
	}
	l.apart = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events.Restart(NewEpoch())
	l.end(ErrReset)
}

// View calls f with the log's events. f must not change or keep them, nor call
// the log.
func (l *Log[E]) View(f func(events *eventlog.Log[E])) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l.events)
}

// Position returns the position of the next event.
func (l *Log[E]) Position() protocol.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return protocol.Position{Epoch: l.events.Epoch(), Offset: l.events.Next()}
}

// End ends all subscriptions with err.
func (l *Log[E]) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

// Remove removes the log's file.
func (l *Log[E]) Remove() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.rewrite, l.apart = true, true
	return l.o.Disk.Remove(l.o.Name)
}
