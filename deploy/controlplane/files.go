package controlplane

import (
	"fmt"
	"io"
	"os"
)

// privateMode is the mode of every file that the control plane writes.
const privateMode = 0o600

// readPrivate reads a file that holds secrets: at most limit bytes, and for
// its owner alone.
func readPrivate(path string, limit int64) ([]byte, error) {
	if err := checkPrivate(path); err != nil {
		return nil, err
	}
	return readLimited(path, limit)
}

func readLimited(path string, limit int64) ([]byte, error) {
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

// checkPrivate refuses a file or directory that others may open.
func checkPrivate(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%s: mode %04o lets others in, want %04o", path, mode, mode&0o700)
	}
	return nil
}
