package chatlog

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Append gives each event its Seq, puts all on disk, and shows them to whoever
// follows. With sync they outlive a crash of the machine, which takes an fsync;
// without it they outlive one of this program.
//
// An event longer than protocol.MaxChatEvent as JSON is stored with its longest
// texts cut; the caller's is not changed but for Seq. Append fails with
// KindNoSpace when the disk is full, KindInvalid for an event that is no JSON,
// and KindUnavailable otherwise. In each case none of the events are stored or
// seen; a later Append may work, perhaps in a new epoch.
func (l *Log) Append(sync bool, events ...*protocol.ChatEvent) error {
	if len(events) == 0 {
		return nil
	}
	err := l.append(sync, events)
	l.room.trim()
	if err == nil {
		return nil
	}
	if err := refusal(err); err.Kind == protocol.KindNoSpace {
		l.room.count(func(c *Counts) { c.NoSpace++ })
		return err
	}
	return refusal(err)
}

func (l *Log) append(sync bool, events []*protocol.ChatEvent) (err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	ended, live := l.ended, l.live
	l.mu.Unlock()
	if ended {
		return errClosed
	}
	if !live {
		defer l.closeOut()
	}
	first, fresh := l.place()
	entries, lines, cut, err := encodeAll(first, events)
	if err != nil {
		return err
	}
	if l.room.over() { // although all was dropped that may be
		return errFull
	}
	g, err := l.put(fresh, lines, sync)
	if err != nil {
		return err
	}
	l.show(g, fresh, entries, int64(len(lines)))
	l.room.count(func(c *Counts) {
		c.Events += uint64(len(entries))
		c.EventsCut += uint64(cut)
	})
	l.shorten()
	return nil
}

// place returns the number of the next event, and the segment that must be made
// for it, nil if the last one goes on. The caller holds writing.
func (l *Log) place() (first uint64, fresh *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renew {
		l.renewEpoch()
		l.renew = false
	}
	if n := len(l.segments); n > 0 {
		if g := l.segments[n-1]; g.epoch == l.epoch && g.last+1 == l.next && g.bytes < l.room.segmentBytes {
			return l.next, nil
		}
	}
	return l.next, l.newSegment()
}

// newSegment describes the segment behind the last one. The caller holds mu.
func (l *Log) newSegment() *segment {
	g := &segment{n: 1, epoch: l.epoch, first: l.next, after: l.next - 1}
	if n := len(l.segments); n > 0 {
		g.n, g.after = l.segments[n-1].n+1, l.segments[n-1].last
	}
	g.path = l.path(g.n)
	return g
}

// put writes lines to the disk, into the segment fresh or else the last one. It
// returns that one. If it fails nothing of lines is there. The caller holds
// writing.
func (l *Log) put(fresh *segment, lines []byte, sync bool) (*segment, error) {
	if fresh != nil {
		return fresh, l.begin(fresh, lines, sync)
	}
	l.mu.Lock()
	g := l.segments[len(l.segments)-1]
	l.mu.Unlock()
	if l.out == nil {
		out, err := os.OpenFile(g.path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, err
		}
		l.out = out
	}
	err := l.room.disk.write(l.out, lines)
	if err == nil && sync {
		if err = l.room.sync(l.out); err != nil {
			l.renew = true // the kernel may have dropped what was written before
		}
	}
	if err != nil {
		if cut := l.out.Truncate(g.bytes); cut != nil {
			l.renew = true // half a line stays, behind which nothing may be written
		}
		return nil, err
	}
	return g, nil
}

// begin makes the file of a new segment with lines, once the last one is synced:
// a crash of the machine leaves no hole. The caller holds writing.
func (l *Log) begin(g *segment, lines []byte, sync bool) error {
	if err := l.finishLast(); err != nil {
		return err
	}
	if err := l.makeFolder(); err != nil {
		return err
	}
	head := g.header(l.id, l.room.boot)
	out, err := os.OpenFile(g.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	err = l.room.disk.write(out, append(head, lines...))
	if err == nil && sync {
		err = l.room.sync(out)
	}
	if err == nil {
		err = l.room.disk.syncFolder(l.folder())
	}
	if err != nil {
		return errors.Join(err, out.Close(), os.Remove(g.path))
	}
	l.out, g.bytes = out, int64(len(head))
	return nil
}

// finishLast syncs and closes the last segment, if there is one. The caller holds
// writing.
func (l *Log) finishLast() error {
	l.mu.Lock()
	var last *segment
	if n := len(l.segments); n > 0 {
		last = l.segments[n-1]
	}
	l.mu.Unlock()
	if last == nil {
		return nil
	}
	if l.out == nil {
		var err error
		if l.out, err = os.OpenFile(last.path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
			return err
		}
	}
	defer l.closeOut()
	return l.room.sync(l.out)
}

// makeFolder makes the log's folder if it is missing.
func (l *Log) makeFolder() error {
	err := os.Mkdir(l.folder(), 0o700)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = l.room.disk.syncFolder(l.room.dir)
	}
	return err
}

// show makes entries, which are on disk in g, visible. The caller holds writing.
func (l *Log) show(g, fresh *segment, entries []Entry, lines int64) {
	grown := lines
	l.mu.Lock()
	if fresh != nil {
		grown += g.bytes
		l.segments = append(l.segments, g)
	}
	g.bytes += lines
	g.last = entries[len(entries)-1].Seq
	l.next = g.last + 1
	l.used = time.Now()
	if l.live || l.followers > 0 {
		l.tail.add(entries, l.room.tailBytes)
	}
	l.wake()
	l.mu.Unlock()
	l.room.grow(grown)
}

// shorten drops the oldest segments of a log that is too large. The caller holds
// writing.
func (l *Log) shorten() {
	for {
		l.mu.Lock()
		over := l.size() > l.room.logBytes && len(l.segments) > 1
		l.mu.Unlock()
		if !over {
			return
		}
		if err := l.dropFirst(); err != nil {
			l.room.log.Warn("a conversation's log can't be shortened", "conversation", l.id, "err", err)
			return
		}
	}
}

// dropFirst removes the oldest segment, of several. The caller holds writing.
func (l *Log) dropFirst() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.segments[0]
	if err := remove(g.path); err != nil {
		return err
	}
	l.segments = slices.Delete(l.segments, 0, 1)
	l.room.grow(-g.bytes)
	l.room.dropped(g.bytes)
	return nil
}

// droppable reports whether a segment of l may be dropped: any but the last one
// of a live log.
func (l *Log) droppable() (live bool, used time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.segments)
	ok = n > 1 || n == 1 && !l.live && (!l.segments[0].empty() || l.segments[0].first == 0)
	return l.live, l.used, ok
}

// dropOldest drops the oldest segment. The only one of a log gives way to one
// without events, which says where numbers go on.
func (l *Log) dropOldest() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if err := l.openLocked(); err != nil {
		return err
	}
	l.mu.Lock()
	n := len(l.segments)
	var fresh *segment
	if n == 1 && !l.segments[0].empty() && !l.live {
		fresh = l.newSegment()
		fresh.last = fresh.first - 1
	}
	l.mu.Unlock()
	switch {
	case fresh != nil:
		if err := l.begin(fresh, nil, true); err != nil {
			return err
		}
		l.closeOut()
		l.mu.Lock()
		l.segments = append(l.segments, fresh)
		l.mu.Unlock()
		l.room.grow(fresh.bytes)
	case n < 2:
		return nil
	}
	return l.dropFirst()
}
