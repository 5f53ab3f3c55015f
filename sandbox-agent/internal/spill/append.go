package spill

import (
	"errors"
	"io/fs"
	"os"
)

// Append adds a copy of p, bytes that begin at offset. An offset beyond the
// head is a gap: it drops all older bytes and begins a new run there. Bytes
// before the head are skipped.
//
// A failed write ends the run at the last whole write. Append then skips a
// segment's worth of further bytes, at most 1 MiB. The next Append after that
// begins a new run. So the caller needs no error: [File.Head] says how far the
// bytes are kept. One incident is logged once.
func (f *File) Append(offset uint64, p []byte) {
	f.disk.Lock()
	defer f.disk.Unlock()
	if f.earlier != nil { // frees its bytes and its names
		if err := f.earlier.Close(); err != nil {
			f.store.o.Logger.Warn("spilled output can't be removed", "pty", f.name, "err", err)
		}
		f.earlier = nil
	}
	end := offset + uint64(len(p))
	p = f.arrange(offset, p)
	for len(p) > 0 {
		n, err := f.put(p)
		if err != nil {
			f.stop(end, err)
			return
		}
		p = p[n:]
	}
}

// arrange returns the bytes of p to write at the head.
func (f *File) arrange(offset uint64, p []byte) []byte {
	s := f.store
	var dropped []*segment
	s.mu.Lock()
	if f.closed || len(p) == 0 {
		s.mu.Unlock()
		return nil
	}
	if t := &f.trouble; t.stopped {
		if t.seen-t.since < uint64(s.segmentBytes) {
			t.seen = max(t.seen, offset+uint64(len(p)))
			s.mu.Unlock()
			return nil
		}
		t.stopped = false
		dropped = f.newRun(t.seen) // bytes before it are skipped when they come again
	}
	dropped = append(dropped, f.skipTo(offset)...)
	p = p[min(f.head-offset, uint64(len(p))):]
	s.mu.Unlock()
	s.removeOrLog(dropped)
	return p
}

// skipTo begins a new run at offset if that is beyond the head. It is called
// with mu held.
func (f *File) skipTo(offset uint64) (dropped []*segment) {
	if offset > f.head {
		dropped = f.newRun(offset)
	}
	return dropped
}

// newRun drops everything and puts the head at offset. It is called with mu
// held.
func (f *File) newRun(offset uint64) (dropped []*segment) {
	dropped = f.dropAll()
	f.head, f.resizes, f.before = offset, nil, f.size
	return dropped
}

// put writes at the head as many bytes of p as go into one segment. It returns
// 0 when that segment was dropped meanwhile. It is called with disk held.
func (f *File) put(p []byte) (n int, err error) {
	s := f.store
	s.mu.Lock()
	if f.closed {
		s.mu.Unlock()
		return 0, os.ErrClosed
	}
	g, room := f.last(), s.segmentBytes
	var out *os.File
	if g != nil {
		room, out = room-g.size, g.out
	}
	p = p[:min(int64(len(p)), room)]
	head := f.head
	dropped, err := s.reserve(f, int64(len(p)))
	s.mu.Unlock()
	s.removeOrLog(dropped)
	if err != nil {
		return 0, err
	}
	if g == nil {
		return len(p), f.begin(p, head)
	}
	return f.extend(g, out, p)
}

// last returns the segment that is open for the next bytes, if any. It is
// called with mu held.
func (f *File) last() *segment {
	if n := len(f.segments); n > 0 && f.segments[n-1].out != nil {
		return f.segments[n-1]
	}
	return nil
}

// begin makes a segment of p at the head, for which there is room. It is called
// with disk held.
func (f *File) begin(p []byte, head uint64) error {
	s := f.store
	g := &segment{file: f, start: head}
	var err error
	g.out, err = f.create(g.path())
	if err == nil {
		if _, err = s.o.write(g.out, p); err != nil {
			err = errors.Join(err, g.out.Close(), s.root.Remove(g.path()))
		}
	}
	s.mu.Lock()
	switch {
	case err != nil:
		s.bytes -= int64(len(p))
		s.mu.Unlock()
		return err
	case f.closed: // Close saw no segment to remove
		s.bytes -= int64(len(p))
		s.mu.Unlock()
		return errors.Join(os.ErrClosed, g.out.Close(), s.root.Remove(g.path()))
	}
	g.seq = s.seq
	s.seq++
	f.segments = append(f.segments, g)
	full, recovered := f.wrote(g, len(p))
	s.mu.Unlock()
	f.finish(full, recovered)
	return nil
}

// create makes a segment's file. It is called with disk held.
func (f *File) create(path string) (*os.File, error) {
	root := f.store.root
	if err := root.Mkdir(f.name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	f.made = true
	return root.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// extend appends p, for which there is room, to g's file out. It returns 0 if g
// was dropped meanwhile.
func (f *File) extend(g *segment, out *os.File, p []byte) (n int, err error) {
	s := f.store
	_, err = s.o.write(out, p)
	s.mu.Lock()
	switch {
	case g.dropped: // and out closed, perhaps before the write, even by reserve
		s.bytes -= int64(len(p))
		s.mu.Unlock()
		return 0, nil
	case err != nil:
		g.out = nil
		size := g.size
		s.mu.Unlock()
		f.cut(out, size)
		s.mu.Lock()
		s.bytes -= int64(len(p))
		s.mu.Unlock()
		return 0, err
	}
	full, recovered := f.wrote(g, len(p))
	s.mu.Unlock()
	f.finish(full, recovered)
	return len(p), nil
}

// cut removes a partial write from a segment's file, which had that size
// before. If even that fails, it drops everything.
func (f *File) cut(out *os.File, size int64) {
	s := f.store
	err := out.Truncate(size)
	out.Close()
	if err == nil {
		return
	}
	s.mu.Lock()
	dropped := f.dropAll()
	s.mu.Unlock()
	s.removeOrLog(dropped)
}

// wrote counts n bytes more in g, the last segment. It returns g's file when
// that is complete, and whether a trouble with the disk is over. It is called
// with mu held; the caller hands both to finish, without.
func (f *File) wrote(g *segment, n int) (full *os.File, recovered bool) {
	g.size += int64(n)
	f.bytes += int64(n)
	f.head += uint64(n)
	if g.size == f.store.segmentBytes {
		full, g.out = g.out, nil
	}
	if t := &f.trouble; t.failing {
		t.sound += int64(n)
		recovered = t.sound >= f.store.segmentBytes
		t.failing = !recovered
	}
	return full, recovered
}

func (f *File) finish(full *os.File, recovered bool) {
	if full != nil {
		full.Close()
	}
	if recovered {
		f.store.o.Logger.Info("output is spilled again", "pty", f.name, "epoch", f.epoch)
	}
}

// stop begins or continues a trouble with the disk. The log ends at end, the
// written bytes earlier.
func (f *File) stop(end uint64, err error) {
	s := f.store
	s.mu.Lock()
	t := &f.trouble
	if f.closed {
		s.mu.Unlock()
		return
	}
	known := t.failing
	*t = trouble{stopped: true, since: end, seen: end, failing: true}
	s.mu.Unlock()
	if !known {
		s.o.Logger.Warn("output is not spilled", "pty", f.name, "epoch", f.epoch, "err", err)
	}
}

// Resize records a new size at offset, in order with Append: an offset beyond
// the head is a gap, and one before it is ignored. An unchanged size is ignored
// too. Resizes at one offset supersede one another.
func (f *File) Resize(offset uint64, cols, rows int) {
	s := f.store
	to := size{cols, rows}
	s.mu.Lock()
	switch {
	case f.closed, to == f.size:
		s.mu.Unlock()
		return
	case f.trouble.stopped:
		if offset >= f.trouble.seen {
			f.trouble.seen, f.size = offset, to // the next run begins with it
		}
		s.mu.Unlock()
		return
	case offset < f.head:
		s.mu.Unlock()
		return
	}
	dropped := f.skipTo(offset)
	f.size = to
	full := f.addResize(resize{offset, to})
	for len(f.resizes) > maxResizes {
		dropped = append(dropped, f.dropOldest())
	}
	s.mu.Unlock()
	f.finish(full, false)
	s.removeOrLog(dropped)
}

// addResize adds a resize at the head. It returns the last segment's file when
// that has enough of them. It is called with mu held.
func (f *File) addResize(r resize) (full *os.File) {
	if len(f.segments) == 0 {
		f.before = r.size
		return nil
	}
	if i := len(f.resizes) - 1; i >= 0 && f.resizes[i].offset == r.offset {
		f.resizes[i] = r
		return nil
	}
	f.resizes = append(f.resizes, r)
	if g := f.last(); g != nil {
		if g.resizes++; g.resizes == maxSegmentResizes {
			full, g.out = g.out, nil
		}
	}
	return full
}
