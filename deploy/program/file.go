package program

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ReplaceFile replaces the content and mode of the file at path. Readers see
// the old or the new content, never a part, even after a power failure.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	r, err := PrepareFile(path, data, mode)
	if err != nil {
		return err
	}
	return r.Commit()
}

// ReplaceFileBy is ReplaceFile for content that write writes: more of it than should
// be in memory at once. write's errors are returned, and nothing is replaced then.
func ReplaceFileBy(path string, mode fs.FileMode, write func(io.Writer) error) error {
	r, err := prepareFile(path, mode, func(w io.Writer) error {
		buffered := bufio.NewWriter(w)
		return errors.Join(write(buffered), buffered.Flush())
	})
	if err != nil {
		return err
	}
	return r.Commit()
}

// A Replacement is a written file beside the one that it replaces.
type Replacement struct {
	path, temporary string
}

// PrepareFile is the part of ReplaceFile that is likely to fail: it writes data
// beside path. Commit or Discard must follow.
func PrepareFile(path string, data []byte, mode fs.FileMode) (*Replacement, error) {
	return prepareFile(path, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func prepareFile(path string, mode fs.FileMode, write func(io.Writer) error) (*Replacement, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, &fs.PathError{Op: "replace", Path: path, Err: syscall.EISDIR}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	err = write(f)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return &Replacement{path: path, temporary: f.Name()}, nil
}

// Discard removes the replacement.
func (r *Replacement) Discard() error { return os.Remove(r.temporary) }

// Commit puts the replacement in place, or removes it if it fails.
func (r *Replacement) Commit() error {
	if err := os.Rename(r.temporary, r.path); err != nil {
		return errors.Join(err, r.Discard())
	}
	d, err := os.Open(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
