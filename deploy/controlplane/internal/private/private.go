// Package private reads the control plane's own files, some of which hold secrets.
package private

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Mode is the mode of every file that the control plane writes.
const Mode = 0o600

// MakeDir makes a directory for its owner alone; one that is there stays as it is.
func MakeDir(dir string) error {
	if dir == "" {
		return errors.New("no state directory")
	}
	return os.MkdirAll(dir, 0o700)
}

// Read reads a file that holds secrets: at most limit bytes, and for its owner
// alone.
func Read(path string, limit int64) ([]byte, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	return ReadPublic(path, limit)
}

// ReadPublic reads a file that anybody may read: at most limit bytes.
func ReadPublic(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: larger than %d bytes", path, limit)
	}
	return data, err
}

// Check refuses a file or directory that others may open.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: mode %04o lets others in, want %04o", path, mode, mode&0o700)
	}
	return nil
}

// Key reads a key of size bytes, and makes it where there is none. Of several
// processes that make it at a time all get the same one.
func Key(path string, size int) ([]byte, error) {
	key, err := Read(path, int64(size))
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeKey(path, size); err == nil {
			key, err = Read(path, int64(size))
		}
	}
	if err == nil && len(key) != size {
		err = fmt.Errorf("%s: %d bytes, want %d", path, len(key), size)
	}
	return key, err
}

// makeKey writes a new key unless there is one by now. The file is whole
// from the moment on at which it has its name.
func makeKey(path string, size int) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	key := make([]byte, size)
	if _, err = rand.Read(key); err == nil {
		_, err = f.Write(key)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	err = errors.Join(err, os.Remove(f.Name()))
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
