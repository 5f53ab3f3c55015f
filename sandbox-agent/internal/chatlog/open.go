package chatlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// list finds the log's files, of which it reads nothing. The caller holds mu.
func (l *Log) list() error {
	l.segments = nil
	entries, err := os.ReadDir(l.folder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		n, ok := segmentNumber(e.Name())
		info, err := e.Info()
		if !ok || err != nil || !info.Mode().IsRegular() {
			continue
		}
		l.segments = append(l.segments, &segment{n: n, path: l.path(n), bytes: info.Size()})
		if info.ModTime().After(l.used) {
			l.used = info.ModTime()
		}
	}
	slices.SortFunc(l.segments, func(a, b *segment) int { return cmp.Compare(a.n, b.n) })
	return nil
}

// find lists the log's files and returns their size. Nothing is read.
func (l *Log) find() (bytes int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.list()
	return l.size(), err
}

// open reads what the log holds, unless that is known.
func (l *Log) open() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.openLocked()
}

// openLocked is open with writing held.
func (l *Log) openLocked() error {
	if l.opened {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return errClosed
	}
	before := l.size()
	if err := l.read(); err != nil {
		return err
	}
	l.room.grow(l.size() - before)
	l.opened = true
	return nil
}

// read reads the log's files. Called with writing and mu held.
func (l *Log) read() error {
	if err := l.finishRewrite(); err != nil {
		return err
	}
	if err := l.list(); err != nil {
		return err
	}
	if err := l.readSegments(); err != nil {
		return err
	}
	if len(l.segments) > 0 {
		g := l.segments[len(l.segments)-1]
		l.epoch, l.next = g.epoch, g.last+1
		if g.boot != l.room.boot {
			l.renewEpoch()
		}
		return nil
	}
	l.epoch, l.next = newEpoch(), max(l.next, 1)
	damaged, err := l.beside(damageSuffix)
	if err == nil && len(damaged) > 0 {
		l.renewEpoch()
	}
	return err
}

// readSegments reads what the listed segments hold, and puts damaged ones
// aside. Called with writing and mu held.
func (l *Log) readSegments() error {
	for i := len(l.segments) - 1; i >= 0; i-- {
		g := l.segments[i]
		var next *segment
		if i+1 < len(l.segments) {
			next = l.segments[i+1]
		}
		err := l.readSegment(g, next)
		switch {
		case next == nil && errors.Is(err, errUnbegun): // a crash while it was made
			if err := remove(g.path); err != nil {
				return err
			}
			l.segments = slices.Delete(l.segments, i, i+1)
		case errors.Is(err, errDamaged):
			return l.putAside(i, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// readSegment reads what g holds, which is before next, if that isn't nil.
// Called with writing and mu held.
func (l *Log) readSegment(g, next *segment) error {
	if next != nil {
		h, err := headerOf(g.path, l.id)
		if err != nil {
			return err
		}
		g.epoch, g.first, g.after, g.boot, g.last = h.Epoch, h.First, h.After, h.Boot, next.after
		if g.last+1 < g.first {
			return fmt.Errorf("it begins behind the next one: %w", errDamaged)
		}
		return nil
	}
	c, err := scanFile(g.path, l.id)
	if err != nil {
		return err
	}
	h := c.header
	g.epoch, g.first, g.after, g.boot, g.last = h.Epoch, h.First, h.After, h.Boot, c.last
	if c.bytes == g.bytes {
		return nil
	}
	if err := os.Truncate(g.path, c.bytes); err != nil {
		return err
	}
	g.bytes = c.bytes
	return nil
}

// putAside renames the damaged segment i and drops the older ones: what is held
// has no holes. An earlier damaged one makes room. Called with writing and mu held.
func (l *Log) putAside(i int, why error) error {
	g := l.segments[i]
	l.room.log.Warn("a part of a conversation's log is damaged, and put aside",
		"conversation", l.id, "file", filepath.Base(g.path), "err", why)
	err := l.removeAll(damageSuffix)
	if err = errors.Join(err, os.Rename(g.path, g.path+damageSuffix)); err != nil {
		return err
	}
	l.room.count(func(c *Counts) { c.Damaged++ })
	for _, older := range l.segments[:i] {
		if err := remove(older.path); err != nil {
			return err
		}
		l.room.dropped(older.bytes)
	}
	l.segments = slices.Delete(l.segments, 0, i+1)
	return nil
}

// removeAll removes the log's files with a suffix beyond the segments'.
func (l *Log) removeAll(suffix string) error {
	paths, err := l.beside(suffix)
	for _, path := range paths {
		err = errors.Join(err, remove(path))
	}
	return err
}

// beside returns the log's files with a suffix beyond the segments'.
func (l *Log) beside(suffix string) ([]string, error) {
	return filepath.Glob(filepath.Join(l.folder(), filePrefix+"*"+fileSuffix+suffix))
}

// finishRewrite finishes or undoes what a crash has interrupted: if one segment
// is in place, all are written. Called with writing and mu held.
func (l *Log) finishRewrite() error {
	paths, err := l.beside(newSuffix)
	if err != nil || len(paths) == 0 {
		return err
	}
	h, err := headerOf(paths[0], l.id)
	if err != nil {
		return l.removeAll(newSuffix) // a crash while it was written
	}
	begun := false
	if err := l.list(); err != nil {
		return err
	}
	for _, g := range l.segments {
		if in, err := headerOf(g.path, l.id); err == nil && in.Epoch == h.Epoch {
			begun = true
		}
	}
	if !begun {
		return l.removeAll(newSuffix)
	}
	for _, path := range paths {
		if err := os.Rename(path, path[:len(path)-len(newSuffix)]); err != nil {
			return err
		}
	}
	return l.room.disk.syncFolder(l.folder())
}
