// Package private reads the control plane's own files, some of which hold secrets.
package private

import (
	"fmt"
	"io"
	"os"
)

// Mode is the mode of every file that the control plane writes.
const Mode = 0o600

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
