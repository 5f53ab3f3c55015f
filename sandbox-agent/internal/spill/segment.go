package spill

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

const (
	segmentDigits = 20 // of the largest offset
	segmentSuffix = ".log"
)

// A segment is one file of a log. It is on the disk before it is part of its
// File, and holds at least one byte then; so the segments of one File never
// share a name. All but what is static is guarded by Store.mu.
type segment struct {
	// Static after construction.
	file  *File
	start uint64 // offset of the first byte
	seq   uint64 // segments are numbered in order of creation, over all files

	size    int64    // bytes written and to be read
	resizes int      // that happened in it
	out     *os.File // open for the next bytes; nil: it is complete
	dropped bool     // no longer part of its File; out doesn't change any more
}

// end returns the offset after the last byte. It is called with Store.mu held.
func (g *segment) end() uint64 { return g.start + uint64(g.size) }

func (g *segment) path() string {
	return fmt.Sprintf("%s/%0*d%s", g.file.name, segmentDigits, g.start, segmentSuffix)
}

// isSegment reports whether name is that of a segment in its directory.
func isSegment(name string) bool {
	digits, ok := strings.CutSuffix(name, segmentSuffix)
	return ok && len(digits) == segmentDigits && strings.Trim(digits, "0123456789") == ""
}

// remove removes dropped segments from the disk. An open reader can still read
// its segment. A missing file is no error.
func (s *Store) remove(dropped []*segment) error {
	var errs []error
	for _, g := range dropped {
		s.mu.Lock()
		out := g.out
		s.mu.Unlock()
		if out != nil {
			out.Close() // else its bytes would stay until the writer comes back
		}
		if err := s.root.Remove(g.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		g.file.removals.Done()
	}
	return errors.Join(errs...)
}

// removeOrLog is remove for callers that can't report an error.
func (s *Store) removeOrLog(dropped []*segment) {
	if err := s.remove(dropped); err != nil {
		s.o.Logger.Warn("spilled output can't be removed", "err", err)
	}
}

// removeLeftovers removes all segments, and directories that held nothing else.
// It follows no links.
func removeLeftovers(root *os.Root) error {
	names, err := list(root, ".", fs.ModeDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !protocol.ValidID(name) {
			continue
		}
		removed, err := removeSegments(root, name)
		if err != nil {
			return err
		}
		if removed { // an empty directory may be another's
			if err := removeEmpty(root, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeSegments removes the segments in a directory, if it exists, and returns
// whether there were any.
func removeSegments(root *os.Root, name string) (removed bool, err error) {
	files, err := list(root, name, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, file := range files {
		if !isSegment(file) {
			continue
		}
		if err := root.Remove(name + "/" + file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
		removed = true
	}
	return removed, nil
}

// list returns the names of a directory's entries of one type.
func list(root *os.Root, name string, of fs.FileMode) ([]string, error) {
	dir, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type() == of {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// removeEmpty removes a directory unless it isn't empty or is gone.
func removeEmpty(root *os.Root, name string) error {
	err := root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) { // ENOTEMPTY is an ErrExist
		return nil
	}
	return err
}
