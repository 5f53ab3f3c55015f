// Package spill keeps on disk what no longer fits into the memory window of a
// terminal's log. It uses segment files and drops the oldest first.
//
// Each terminal has a directory with its name; a segment in it is named by the
// offset of its first byte. The segments of one terminal are one unbroken run
// of its log: a gap drops everything older. Nothing here outlives the process,
// so nothing is synced, and the index is only in memory.
//
// A full or broken disk costs only history: see [File.Append].
package spill

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxSegmentBytes is the size of a segment unless the limits are small.
	maxSegmentBytes = 1 << 20
	// minSegments is how many segments the smallest limit has room for, so
	// that dropping one costs a small part of the history.
	minSegments = 8
)

// errNoRoom says that the limit for all terminals leaves nothing to drop.
var errNoRoom = errors.New("spill: the limit for all terminals is taken by writes under way")

// Options configure a [Store].
type Options struct {
	Dir         string       // made when missing; for one process at a time
	PerTerminal int64        // most bytes on disk of one terminal, at least 1
	Total       int64        // most bytes on disk of all terminals, at least 1
	Logger      *slog.Logger // nil: silent

	write func(w io.Writer, p []byte) (int, error) // nil: w.Write(p); for tests
}

// A Store is a directory of spilled logs, with a limit over all of them. It is
// safe for concurrent use.
type Store struct {
	// Static after construction.
	o            Options
	root         *os.Root
	segmentBytes int64

	// mu guards what follows and the state of every File. It is never held
	// while the disk works.
	mu     sync.Mutex
	files  map[string]*File // by name, the newest
	bytes  int64            // of all segments, and of writes under way
	seq    uint64           // of the next segment
	closed bool
}

// Open makes o.Dir, for its owner alone, if missing. It removes the segments
// that an earlier process left there, but nothing else.
func Open(o Options) (*Store, error) {
	if o.PerTerminal < 1 || o.Total < 1 {
		return nil, fmt.Errorf("spill: limits of %d and %d bytes", o.PerTerminal, o.Total)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("spill: %w", err)
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("spill: %w", err)
	}
	if err := removeLeftovers(root); err != nil {
		return nil, errors.Join(fmt.Errorf("spill: remove what is left of an earlier process: %w", err), root.Close())
	}
	s := &Store{
		o:            o,
		root:         root,
		segmentBytes: max(1, min(maxSegmentBytes, o.PerTerminal/minSegments, o.Total/minSegments)),
		files:        make(map[string]*File),
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	if s.o.write == nil {
		s.o.write = io.Writer.Write
	}
	return s, nil
}

// Create returns the file of a terminal's log, at offset 0 and with the default
// size. It doesn't touch the disk. The first write closes an earlier File of
// that name that is still open. If name is not an id, or the Store is closed,
// the File keeps nothing.
func (s *Store) Create(name string, epoch protocol.Epoch) *File {
	first := size{protocol.DefaultCols, protocol.DefaultRows}
	f := &File{store: s, name: name, epoch: epoch, before: first, size: first}
	if !protocol.ValidID(name) {
		s.o.Logger.Error("terminal is not spilled: its name is not an id", "epoch", epoch)
		f.closed = true
		return f
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		f.closed = true
		return f
	}
	f.earlier = s.files[name]
	s.files[name] = f
	return f
}

// Bytes returns how much is on disk, writes under way included. It never
// exceeds Options.Total.
func (s *Store) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Close closes every File and removes all segments. The directory stays.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	files := make([]*File, 0, len(s.files))
	for _, f := range s.files {
		files = append(files, f)
	}
	s.mu.Unlock()
	var err error
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, s.root.Close())
}

// reserve counts n more bytes for f, at most a segment, after it has dropped
// what exceeds a limit with them. The caller removes what was dropped, which
// may be the segment that f is at. It is called with mu held.
func (s *Store) reserve(f *File, n int64) (dropped []*segment, err error) {
	for f.bytes+n > s.o.PerTerminal {
		dropped = append(dropped, f.dropOldest())
	}
	for s.bytes+n > s.o.Total {
		largest := s.largest()
		if largest == nil {
			return dropped, errNoRoom
		}
		dropped = append(dropped, largest.dropOldest())
	}
	s.bytes += n
	return dropped, nil
}

// largest returns the file that loses its oldest segment when all of them have
// too much: the one with the most bytes, so that a flood in one terminal costs
// that terminal's history and not that of the quiet ones. Of equals it is the
// one whose segment is older; nil when none holds anything. It is called with
// mu held.
func (s *Store) largest() *File {
	var found *File
	for _, f := range s.files {
		if len(f.segments) == 0 {
			continue
		}
		if found == nil || f.bytes > found.bytes ||
			f.bytes == found.bytes && f.segments[0].seq < found.segments[0].seq {
			found = f
		}
	}
	return found
}
