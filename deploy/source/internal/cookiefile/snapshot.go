package cookiefile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxFile bounds each file that is copied, in bytes.
	maxFile = 512 << 20
	// tries bounds the copies of files that change meanwhile, betweenTries apart.
	tries        = 8
	betweenTries = 50 * time.Millisecond
	// counterAt and counterLen say where SQLite counts the changes of a file.
	counterAt, counterLen = 24, 4
)

// suffixes are those of the files of a database. The last one may hold what isn't
// in the first one yet, or what is to be undone there.
var suffixes = []string{"", "-journal", "-wal"}

// ErrBusy says that a browser wrote each time that its file was copied.
var ErrBusy = errors.New("the browser is writing its cookies; try again")

// snapshot copies a database's files into dir. They belong together: none of them
// has changed since the first was looked at. SQLite takes the copy like a database
// after a power failure, and undoes what a writer hadn't ended.
func snapshot(ctx context.Context, path, dir string) (copied string, err error) {
	copied = filepath.Join(dir, "Cookies")
	for range tries {
		before, err := look(path)
		if err != nil {
			return "", err
		}
		for _, suffix := range suffixes {
			if err := copyFile(path+suffix, copied+suffix, suffix == ""); err != nil {
				return "", err
			}
		}
		after, err := look(path)
		if err != nil {
			return "", err
		}
		if before == after {
			return copied, nil
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(betweenTries):
		}
	}
	return "", ErrBusy
}

// A state is what changes when a database does.
type state struct {
	counter string
	files   [3]fileState
}

type fileState struct {
	size    int64
	changed time.Time
	inode   string
}

func look(path string) (state, error) {
	var s state
	for i, suffix := range suffixes {
		st, err := os.Stat(path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist) && suffix != "":
			continue
		case err != nil:
			return s, err
		case !st.Mode().IsRegular():
			return s, fmt.Errorf("%s is no file", path+suffix)
		}
		s.files[i] = fileState{st.Size(), st.ModTime(), inode(st)}
	}
	f, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer f.Close()
	counter := make([]byte, counterLen)
	if _, err := f.ReadAt(counter, counterAt); err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	s.counter = string(counter)
	return s, nil
}

// copyFile copies a file, whose absence is an error if it is needed. What a copy
// before had goes.
func copyFile(from, to string, needed bool) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) && !needed {
		if err := os.Remove(to); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, maxFile+1))
	if err == nil && n > maxFile {
		err = fmt.Errorf("%s has more than %d MiB", from, maxFile>>20)
	}
	return errors.Join(err, out.Close())
}
