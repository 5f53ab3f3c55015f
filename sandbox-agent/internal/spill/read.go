package spill

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
)

// Read reads bytes from offset on into buf: at least one unless buf is empty,
// and at most up to the next resize or the end of a segment. It returns a
// resize at offset+n, n above 0, as next: it follows the bytes. One at offset
// itself belongs to SizeAt(offset), as in package bytelog; a reader that waited
// at the head learns of a resize there from SizeAt.
//
// It fails with [ErrGone] when the byte at offset was dropped, even meanwhile,
// and with io.EOF when there is none yet: at the head and beyond.
func (f *File) Read(offset uint64, buf []byte) (n int, next *protocol.Resized, err error) {
	s := f.store
	s.mu.Lock()
	g, next, end, err := f.locate(offset, len(buf))
	s.mu.Unlock()
	if err != nil || len(buf) == 0 {
		return 0, nil, err
	}
	n = int(end - offset)
	err = s.readSegment(g, buf[:n], int64(offset-g.start))

	if err := f.confirm(g, err); err != nil {
		return 0, nil, err
	}
	return n, next, nil
}

// confirm checks the result err of a read of g. If the segment was dropped
// meanwhile, the read doesn't count, because the name may be another's by now.
func (f *File) confirm(g *segment, err error) error {
	s := f.store
	lost := unreadable(err)
	var dropped []*segment
	s.mu.Lock()
	gone := g.dropped
	if lost && !gone {
		dropped = f.dropThrough(g)
	}
	oldest := f.oldest()
	s.mu.Unlock()
	if len(dropped) > 0 {
		s.o.Logger.Warn("spilled output is gone from the disk", "pty", f.name, "epoch", f.epoch, "err", err)
		s.removeOrLog(dropped)
	}
	switch {
	case gone || lost:
		return ErrGone{oldest}
	case err != nil:
		return fmt.Errorf("spill: %w", err)
	}
	return nil
}

// locate returns the segment that holds the byte at offset, where a Read of at
// most limit bytes ends, and the resize there. It is called with mu held.
func (f *File) locate(offset uint64, limit int) (g *segment, next *protocol.Resized, end uint64, err error) {
	switch {
	case offset >= f.head:
		return nil, nil, 0, io.EOF
	case offset < f.oldest():
		return nil, nil, 0, ErrGone{f.oldest()}
	}
	g = f.segments[sort.Search(len(f.segments), func(i int) bool { return f.segments[i].end() > offset })]
	end = min(g.end(), offset+uint64(limit))
	if i := f.resizesUpTo(offset); i < len(f.resizes) && f.resizes[i].offset <= end {
		r := f.resizes[i]
		end = r.offset
		next = &protocol.Resized{Offset: r.offset, Cols: r.cols, Rows: r.rows}
	}
	return g, next, end, nil
}

// readSegment fills p from g's file. It opens the file for each call, so that
// the number of readers bounds the descriptors, not that of segments.
func (s *Store) readSegment(g *segment, p []byte, at int64) error {
	in, err := s.root.Open(g.path())
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = in.ReadAt(p, at)
	return err
}

// unreadable reports whether err says that a segment will never be read again,
// because somebody removed or cut the file or the medium is broken.
func unreadable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO)
}
