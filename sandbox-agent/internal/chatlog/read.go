package chatlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// ErrGap says that events were dropped before they were read. The log now begins
// with the event First.
type ErrGap struct{ First uint64 }

func (e ErrGap) Error() string {
	return fmt.Sprintf("chatlog: events are missing, the log begins with %d", e.First)
}

// A Reader reads a part of a log from disk, in order. It holds at most one file
// open and 1 MiB in memory. It is for one goroutine.
type Reader struct {
	// Static after construction.
	log    *Log
	until  uint64 // inclusive
	resets uint64 // of the log, when reading began

	// Owned by whoever reads.
	cursor uint64 // number of the next event
	file   *os.File
	in     *segment
	lines  *lines
	at     uint64 // number of the next line
	last   uint64 // number of the last line
	err    error
}

// Read returns a reader of the events numbered above after, up to until, that
// are there at this moment. Events that were dropped before are left out; the
// caller asks [Position.Covers]. The caller must close it.
func (l *Log) Read(after, until uint64) (*Reader, Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.position()
	return l.reader(max(min(after, at.Last)+1, at.First), min(until, at.Last)), at
}

// reader returns a reader from cursor on. The caller holds mu.
func (l *Log) reader(cursor, until uint64) *Reader {
	return &Reader{log: l, cursor: cursor, until: until, resets: l.resets}
}

// Next returns the next event, and io.EOF behind the last one. It fails with
// [ErrReset] when another epoch begins, with an [ErrGap] when the log has
// dropped what comes next, and with [ErrEnded].
func (r *Reader) Next() (Entry, error) {
	if r.err == nil {
		var e Entry
		if e, r.err = r.next(); r.err == nil {
			return e, nil
		}
		r.closeFile()
	}
	return Entry{}, r.err
}

func (r *Reader) next() (Entry, error) {
	for {
		if err := r.check(); err != nil {
			return Entry{}, err
		}
		if r.cursor > r.until {
			return Entry{}, io.EOF
		}
		if r.file == nil {
			if err := r.openNext(); err != nil {
				return Entry{}, err
			}
		}
		line, err := r.lines.next()
		switch {
		case err == io.EOF && r.at > r.last: // of what was there when the file was opened
			r.closeFile()
			continue
		case err == io.EOF:
			return Entry{}, r.log.damaged(r.in, r.at)
		case err != nil && !errors.Is(err, errDamaged) && !errors.Is(err, io.ErrUnexpectedEOF):
			return Entry{}, fmt.Errorf("chatlog: %w", err)
		}
		seq := r.at
		r.at++
		if err == nil && seq < r.cursor {
			continue
		}
		if found, ok := seqOf(line); err != nil || !ok || found != seq {
			return Entry{}, r.log.damaged(r.in, seq)
		}
		r.cursor = seq + 1
		return Entry{Seq: seq, Origin: originOf(line), JSON: line}, nil
	}
}

// check fails when what is read is not the log's any more.
func (r *Reader) check() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	switch {
	case r.log.ended:
		return ErrEnded
	case r.log.resets != r.resets:
		return ErrReset
	}
	return nil
}

// openNext opens the segment with the next event.
func (r *Reader) openNext() error {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.log.resets != r.resets {
		return ErrReset
	}
	if held := r.log.position(); r.cursor < held.First {
		return ErrGap{held.First}
	}
	for _, g := range r.log.segments {
		if g.last < r.cursor || g.empty() {
			continue
		}
		f, err := os.Open(g.path)
		if err != nil {
			return fmt.Errorf("chatlog: %w", err)
		}
		r.cursor = max(r.cursor, g.first)
		r.file, r.in, r.at, r.last = f, g, g.first, g.last
		r.lines = &lines{from: io.LimitReader(f, g.bytes)}
		_, err = r.lines.next() // the header
		return err
	}
	return io.EOF
}

func (r *Reader) closeFile() {
	if r.file != nil {
		r.file.Close()
		r.file, r.lines = nil, nil
	}
}

// Close frees what the reader holds. Next then fails with [ErrEnded].
func (r *Reader) Close() {
	r.closeFile()
	if r.err == nil {
		r.err = ErrEnded
	}
}

// damaged puts a segment aside that isn't what was written, and returns why
// reading ends.
func (l *Log) damaged(g *segment, seq uint64) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.closeOut()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, held := range l.segments {
		if held != g {
			continue
		}
		before := l.size()
		if err := l.putAside(i, fmt.Errorf("event %d: %w", seq, errDamaged)); err != nil {
			return fmt.Errorf("chatlog: %s: %w", filepath.Base(g.path), err)
		}
		l.room.grow(l.size() - before)
		l.renewEpoch()
	}
	return ErrReset
}
