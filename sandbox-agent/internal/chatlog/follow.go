package chatlog

import (
	"context"
	"fmt"
	"io"
)

// A Reset is why [Follower.Next] has no event: the log goes on under another
// epoch, and copies of older events must be dropped, for they may hold what has
// become a secret. Next goes on behind it.
type Reset struct {
	At   Position // of the log now
	Last uint64   // of the last event before those that follow
}

func (r *Reset) Error() string {
	return fmt.Sprintf("chatlog: the log goes on behind %d under another epoch", r.Last)
}

// A Follower is a place in a log. It holds no events and delays nobody: what is
// no longer in memory it reads from disk. It is for one goroutine.
type Follower struct {
	log *Log // static after construction

	// Owned by whoever calls Next.
	cursor uint64 // the next event has this number, or the next higher one
	resets uint64 // of the log, that were told
	disk   *Reader
	closed bool
}

// Subscribe follows the log from the event behind after on; at is what it holds
// at this moment. If the log doesn't cover after, see [Position.Covers], it
// follows from the oldest event held or, if after is beyond the newest, from the
// next. The caller must close the follower.
func (l *Log) Subscribe(after uint64) (f *Follower, at Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at = l.position()
	l.followers++
	return &Follower{log: l, cursor: max(min(after, at.Last)+1, at.First), resets: l.resets}, at
}

// From returns the number of the next event: it has this one, or the next higher
// one that there is.
func (f *Follower) From() uint64 { return f.cursor }

// Next waits for the next event. It fails with a [*Reset], after which it goes
// on; with an [ErrGap] when the log has dropped what comes next; with [ErrEnded];
// or with the cause of ctx's end.
func (f *Follower) Next(ctx context.Context) (Entry, error) {
	for {
		e, wait, err := f.take()
		if err != nil || wait == nil {
			return e, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return Entry{}, context.Cause(ctx)
		}
	}
}

// Ready returns the next event if it is there already.
func (f *Follower) Ready() (e Entry, ok bool, err error) {
	e, wait, err := f.take()
	return e, wait == nil && err == nil, err
}

// take returns the next event, or what to wait for.
func (f *Follower) take() (Entry, <-chan struct{}, error) {
	e, wait, err := f.fromMemory()
	if err != nil || wait != nil || e.Seq != 0 {
		return e, wait, err
	}
	e, err = f.disk.Next()
	switch {
	case err == nil:
		f.cursor = e.Seq + 1
		return e, nil, nil
	case err == io.EOF: // there is nothing up to the end of what was there
		f.cursor = max(f.cursor, f.disk.until+1)
		fallthrough
	case err == ErrReset: // look again
		f.closeDisk()
		return f.take()
	}
	return Entry{}, nil, err
}

// fromMemory returns the next event if it is in memory, or what to wait for. If
// it does neither the event is on disk.
func (f *Follower) fromMemory() (Entry, <-chan struct{}, error) {
	l := f.log
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended || f.closed:
		return Entry{}, nil, ErrEnded
	case f.resets != l.resets:
		f.resets = l.resets
		f.closeDisk()
		at := l.position()
		f.cursor = max(f.cursor, at.First)
		return Entry{}, nil, &Reset{At: at, Last: f.cursor - 1}
	case f.cursor >= l.next:
		f.closeDisk()
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		return Entry{}, l.changed, nil
	}
	if e, ok := l.tail.at(f.cursor); ok {
		f.closeDisk()
		f.cursor++
		return e, nil, nil
	}
	if f.disk == nil {
		f.disk = l.reader(f.cursor, l.next-1)
	}
	return Entry{}, nil, nil
}

func (f *Follower) closeDisk() {
	if f.disk != nil {
		f.disk.Close()
		f.disk = nil
	}
}

// Close ends the follower. It may be called while nobody waits in Next.
func (f *Follower) Close() {
	f.closeDisk()
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	if !f.closed {
		f.closed = true
		f.log.followers--
		f.log.relax()
	}
}
