package spill

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// maxResizes bounds the resizes held of one log. At the limit the oldest
	// segments are dropped with theirs.
	maxResizes = 4096
	// maxSegmentResizes ends a segment early, so that few resizes go with it.
	maxSegmentResizes = maxResizes / minSegments
)

// ErrGone says that the byte at an offset is no longer held. What is held
// begins at Oldest, which is the head if nothing is.
type ErrGone struct{ Oldest uint64 }

func (e ErrGone) Error() string {
	return fmt.Sprintf("spill: the place is lost, what is on disk begins at offset %d", e.Oldest)
}

// A File is the spilled part of one terminal's log: one unbroken run of its
// bytes, and the resizes between them. [File.Append] and [File.Resize] are for
// one goroutine and may wait for the disk. [File.Read] and [File.Close] may
// also wait. They and all others, which never wait, are safe for concurrent
// use.
type File struct {
	// Static after construction.
	store *Store
	name  string
	epoch protocol.Epoch

	// disk orders the writer and Close; it comes before Store.mu.
	disk    sync.Mutex
	earlier *File // guarded by disk: had the name before and may have segments
	made    bool  // guarded by disk: the directory is there

	// removals counts dropped segments that are still on the disk. It rises
	// with Store.mu held, and never again once the File is closed.
	removals sync.WaitGroup

	// Guarded by Store.mu.
	segments []*segment // by offset, each where the one before it ends
	bytes    int64      // of segments
	head     uint64     // offset of the next byte, where the last segment ends
	resizes  []resize   // offsets strictly rise, the first is behind the oldest byte
	before   size       // in force before the first of resizes
	size     size       // the newest
	closed   bool
	trouble  trouble
}

type size struct{ cols, rows int }

type resize struct {
	offset uint64
	size
}

// Epoch returns the epoch of the log.
func (f *File) Epoch() protocol.Epoch { return f.epoch }

// Oldest returns the offset of the oldest byte held, false when none is.
func (f *File) Oldest() (offset uint64, ok bool) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return f.oldest(), len(f.segments) > 0
}

// Head returns the offset after the newest byte written.
func (f *File) Head() uint64 {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return f.head
}

// SizeAt returns the terminal's size at offset, resizes there included; false
// when offset is not between the oldest byte held and the head.
func (f *File) SizeAt(offset uint64) (cols, rows int, ok bool) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if len(f.segments) == 0 || offset < f.oldest() || offset > f.head {
		return 0, 0, false
	}
	at := f.before
	if i := f.resizesUpTo(offset); i > 0 {
		at = f.resizes[i-1].size
	}
	return at.cols, at.rows, true
}

// Close drops all that the File holds and removes it from the disk. From then
// on the File keeps nothing.
func (f *File) Close() error {
	s := f.store
	s.mu.Lock()
	f.closed = true
	dropped := f.dropAll()
	s.mu.Unlock()
	err := s.remove(dropped)

	f.disk.Lock()
	defer f.disk.Unlock()
	f.removals.Wait()
	if f.earlier != nil {
		err = errors.Join(err, f.earlier.Close())
		f.earlier = nil
	}
	if f.made {
		_, cause := removeSegments(s.root, f.name) // a removal may have failed
		err = errors.Join(err, cause, removeEmpty(s.root, f.name))
		f.made = false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files[f.name] == f {
		delete(s.files, f.name)
	}
	return err
}

// oldest returns the offset of the oldest byte held, head when none is. It is
// called with mu held, as are all that follow.
func (f *File) oldest() uint64 {
	if len(f.segments) == 0 {
		return f.head
	}
	return f.segments[0].start
}

// resizesUpTo returns how many of resizes happened at or before offset. The
// caller holds mu.
func (f *File) resizesUpTo(offset uint64) int {
	return sort.Search(len(f.resizes), func(i int) bool { return f.resizes[i].offset > offset })
}

// dropOldest gives up the oldest segment, which there is, and the resizes that
// nobody can be told of any more. The caller removes it, without mu. The caller
// holds mu.
func (f *File) dropOldest() *segment {
	g := f.segments[0]
	f.segments = slices.Delete(f.segments, 0, 1)
	f.bytes -= g.size
	f.store.bytes -= g.size
	g.dropped = true
	f.removals.Add(1)
	if n := f.resizesUpTo(f.oldest()); n > 0 {
		f.before = f.resizes[n-1].size
		f.resizes = slices.Delete(f.resizes, 0, n)
	}
	return g
}

// dropThrough gives up all segments up to and including g. The caller holds mu.
func (f *File) dropThrough(g *segment) (dropped []*segment) {
	for !g.dropped {
		dropped = append(dropped, f.dropOldest())
	}
	return dropped
}

// dropAll gives up all segments. The caller holds mu.
func (f *File) dropAll() (dropped []*segment) {
	for len(f.segments) > 0 {
		dropped = append(dropped, f.dropOldest())
	}
	return dropped
}

// A trouble is a disk incident. It begins with a failed write and ends once a
// segment's worth of bytes has been written after it.
type trouble struct {
	stopped bool   // writing is paused
	since   uint64 // the log's end when it stopped
	seen    uint64 // the log's end now
	failing bool   // it has not ended, and has been logged
	sound   int64  // bytes written since the last failure
}
