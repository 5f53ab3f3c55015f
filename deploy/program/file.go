package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ReplaceFile puts data into the file at path with the given mode. Readers see
// the whole of it or what was there before, also after a power failure.
func ReplaceFile(path string, data []byte, mode fs.FileMode) error {
	r, err := PrepareFile(path, data, mode)
	if err != nil {
		return err
	}
	return r.Commit()
}

// A Replacement is on the disk, beside the file whose place it is to take.
type Replacement struct {
	path, temporary string
}

// PrepareFile is the part of ReplaceFile that may well fail: it writes data
// beside path. Commit or Discard must follow.
func PrepareFile(path string, data []byte, mode fs.FileMode) (*Replacement, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, &fs.PathError{Op: "replace", Path: path, Err: syscall.EISDIR}
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()))
	}
	return &Replacement{path: path, temporary: f.Name()}, nil
}

// Discard leaves the file as it was.
func (r *Replacement) Discard() error { return os.Remove(r.temporary) }

// Commit puts the replacement into its place, or leaves the file as it was.
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
