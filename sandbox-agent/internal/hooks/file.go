package hooks

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxFile bounds a settings file: claude keeps much beside its settings in
	// ~/.claude.json.
	maxFile = 16 << 20
	// maxLinks bounds how many links lead to a settings file.
	maxLinks = 8
)

// A homeDir is the home of a terminal. Its user may put anything there at any
// time, so every operation stays within it.
type homeDir struct {
	root  *os.Root
	chown func(*os.File) error
}

// read returns a file's text, or fs.ErrNotExist.
func (h homeDir) read(name string) ([]byte, error) {
	f, err := h.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, reason(err)
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, reason(err)
	case !st.Mode().IsRegular():
		return nil, errors.New("not a file")
	case st.Size() > maxFile:
		return nil, fmt.Errorf("more than %d MiB", maxFile>>20)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	return text, reason(err)
}

// reason returns err without the path, which the caller's error names.
func reason(err error) error {
	var in *fs.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

// write replaces a file's text atomically and keeps its mode. It returns the
// folders that it made for the file, outermost first.
func (h homeDir) write(name string, text []byte) (made []string, err error) {
	name, mode, err := h.target(name)
	if err != nil {
		return nil, err
	}
	if made, err = h.folders(path.Dir(name)); err != nil {
		return made, err
	}
	aside := path.Join(path.Dir(name), ".fairlead-"+rand.Text())
	f, err := h.root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return made, reason(err)
	}
	_, err = f.Write(text)
	if err == nil && h.chown != nil {
		err = h.chown(f)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = h.root.Rename(aside, name)
	}
	if err != nil {
		_ = h.root.Remove(aside) // the caller learns of the first error
		return made, reason(err)
	}
	return made, nil
}

// target follows links from name and returns the name and mode of the file they
// lead to, so that a link stays a link. A new file is for its owner alone.
func (h homeDir) target(name string) (string, fs.FileMode, error) {
	for range maxLinks {
		st, err := h.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, 0o600, nil
		}
		if err != nil {
			return "", 0, reason(err)
		}
		if st.Mode().IsRegular() {
			return name, st.Mode().Perm(), nil
		}
		if st.Mode()&fs.ModeSymlink == 0 {
			return "", 0, errors.New("not a file")
		}
		to, err := h.root.Readlink(name)
		if err != nil {
			return "", 0, reason(err)
		}
		if path.IsAbs(to) {
			return "", 0, errors.New("a link to an absolute path")
		}
		name = path.Join(path.Dir(name), to)
		if name == ".." || strings.HasPrefix(name, "../") {
			return "", 0, errors.New("a link that leads out of the home")
		}
	}
	return "", 0, errors.New("too many links")
}

// folders makes a folder and its missing parents.
func (h homeDir) folders(name string) (made []string, err error) {
	if name == "." {
		return nil, nil
	}
	if made, err = h.folders(path.Dir(name)); err != nil {
		return made, err
	}
	err = h.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return made, nil
	}
	if err != nil {
		return made, reason(err)
	}
	made = append(made, name)
	if h.chown == nil {
		return made, nil
	}
	f, err := h.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return made, reason(err)
	}
	return made, errors.Join(h.chown(f), f.Close())
}

// remove removes a file, if it exists.
func (h homeDir) remove(name string) error {
	if err := h.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reason(err)
	}
	return nil
}
