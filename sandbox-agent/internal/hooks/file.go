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

// A place is where files are: a terminal's home. It is its user's, who may put
// anything there at any time; whatever is done stays within it.
type place struct {
	root  *os.Root
	chown func(*os.File) error
}

// read returns a file's text, fs.ErrNotExist if there is none.
func (p place) read(name string) ([]byte, error) {
	f, err := p.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
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

// reason returns err without the path, which whoever reports it names.
func reason(err error) error {
	var in *fs.PathError
	if errors.As(err, &in) {
		return in.Err
	}
	return err
}

// write puts text in the place of a file, at once and with the mode it had. It
// returns the folders that it made for it, outermost first.
func (p place) write(name string, text []byte) (made []string, err error) {
	name, mode, err := p.target(name)
	if err != nil {
		return nil, err
	}
	if made, err = p.folders(path.Dir(name)); err != nil {
		return made, err
	}
	aside := path.Join(path.Dir(name), ".fairlead-"+rand.Text())
	f, err := p.root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return made, reason(err)
	}
	_, err = f.Write(text)
	if err == nil && p.chown != nil {
		err = p.chown(f)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = p.root.Rename(aside, name)
	}
	if err != nil {
		_ = p.root.Remove(aside) // what is told is why it is not wanted
		return made, reason(err)
	}
	return made, nil
}

// target returns the name of the file that name leads to by links, and its mode:
// a link stays one. A file that isn't there yet is to be its owner's alone.
func (p place) target(name string) (string, fs.FileMode, error) {
	for range maxLinks {
		st, err := p.root.Lstat(name)
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
		to, err := p.root.Readlink(name)
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

// folders makes a folder and those above it that are missing.
func (p place) folders(name string) (made []string, err error) {
	if name == "." {
		return nil, nil
	}
	if made, err = p.folders(path.Dir(name)); err != nil {
		return made, err
	}
	err = p.root.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return made, nil
	}
	if err != nil {
		return made, reason(err)
	}
	made = append(made, name)
	if p.chown == nil {
		return made, nil
	}
	f, err := p.root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return made, reason(err)
	}
	return made, errors.Join(p.chown(f), f.Close())
}

// remove removes a file; one that isn't there is fine.
func (p place) remove(name string) error {
	if err := p.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reason(err)
	}
	return nil
}
