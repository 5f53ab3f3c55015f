package transcript

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
)

// A Follower reads the log inside the agent: for a recording, a command, or the
// disk. It delays nothing by itself. Next is for one goroutine.
type Follower struct {
	// Static after construction.
	transcript *Transcript
	Wake       chan struct{} // 1 element: Next may have something

	buf    []byte         // owned by Next
	cursor bytelog.Cursor // guarded by transcript.mu
}

// Follow returns a follower of the log from cursor on, which is in the current
// epoch. In a new epoch the follower continues at its beginning. Close it when
// done.
func (t *Transcript) Follow(cursor bytelog.Cursor) *Follower {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := &Follower{transcript: t, Wake: make(chan struct{}, 1), cursor: cursor}
	t.followers[f] = struct{}{}
	return f
}

// Close stops waking the follower.
func (f *Follower) Close() {
	f.transcript.mu.Lock()
	defer f.transcript.mu.Unlock()
	delete(f.transcript.followers, f)
}

// An Item is the next piece of the log: bytes, a size, or the end.
type Item struct {
	Epoch   protocol.Epoch
	Offset  uint64
	At      time.Time // not earlier than it was printed
	Bytes   []byte    // valid until the next call
	Resized *protocol.Resized
	Exited  *protocol.Exited
}

// Next returns the next item, of at most limit bytes, false when there is none
// now. It fails with [bytelog.ErrGap] when the log no longer holds it.
func (f *Follower) Next(limit int) (Item, bool, error) {
	f.transcript.mu.Lock()
	defer f.transcript.mu.Unlock()
	return f.next(limit)
}

// next is Next. The caller holds transcript.mu.
func (f *Follower) next(limit int) (Item, bool, error) {
	next := Item{Epoch: f.transcript.log.Epoch(), Offset: f.cursor.Offset(), At: f.transcript.printed}
	item, ok, err := f.transcript.log.Next(&f.cursor, limit)
	if !ok || err != nil {
		return Item{}, false, err
	}
	next.Resized, next.Exited = item.Resized, item.Exited
	if item.Bytes != nil {
		f.buf = append(f.buf[:0], item.Bytes...)
		next.Bytes = f.buf
	} else {
		next.At = time.Now()
	}
	return next, true, nil
}

// Offset returns the follower's offset.
func (f *Follower) Offset() uint64 {
	f.transcript.mu.Lock()
	defer f.transcript.mu.Unlock()
	return f.cursor.Offset()
}

// Move continues at cursor and returns the size there.
func (f *Follower) Move(cursor bytelog.Cursor) (cols, rows int) {
	f.transcript.mu.Lock()
	defer f.transcript.mu.Unlock()
	f.cursor = cursor
	return f.transcript.log.SizeAt(cursor.Offset())
}

// Notify wakes the follower.
func (f *Follower) Notify() { wake(f.Wake) }
