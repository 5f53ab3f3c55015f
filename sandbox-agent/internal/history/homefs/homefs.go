// Package homefs reads files in the homes of a sandbox's users, who may put
// anything there at any time, and tells when some change.
package homefs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNotOurs is of a file that is none, or that another user has put there.
var ErrNotOurs = errors.New("not a file of the home's user")

// A Home is a folder in which nothing leads elsewhere. It is safe for concurrent
// use.
type Home struct{ root *os.Root }

// Open opens the home at dir.
func Open(dir string) (*Home, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Home{root}, nil
}

// owner returns the home's user, whose files alone are read. A home that is kept
// may get another one.
func (h *Home) owner() (uint32, error) {
	st, err := h.root.Stat(".")
	if err != nil {
		return 0, err
	}
	return st.Sys().(*syscall.Stat_t).Uid, nil
}

// Close closes the home. Files stay open.
func (h *Home) Close() error { return h.root.Close() }

// An ID tells one file from another that takes its place.
type ID struct{ Dev, Inode uint64 }

// A Stat is what is known of a file.
type Stat struct {
	ID       ID
	Size     int64
	Modified time.Time
}

// A File is open for reading.
type File struct {
	*os.File
	Stat Stat
}

// Open opens a file, which is no link, by its path in the home.
func (h *Home) Open(name string) (*File, error) {
	f, st, err := h.open(name, 0)
	if err != nil {
		return nil, err
	}
	sys := st.Sys().(*syscall.Stat_t)
	if owner, err := h.owner(); err != nil || !st.Mode().IsRegular() || sys.Uid != owner {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Join(ErrNotOurs, f.Close())}
	}
	return &File{f, Stat{ID{sys.Dev, sys.Ino}, st.Size(), st.ModTime()}}, nil
}

// open opens what is at name itself: an [os.Root] follows a link that stays below
// it, whatever the flags say.
func (h *Home) open(name string, flags int) (*os.File, fs.FileInfo, error) {
	at, err := h.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !at.Mode().IsRegular() && !at.IsDir() {
		return nil, nil, &fs.PathError{Op: "open", Path: name, Err: ErrNotOurs}
	}
	f, err := h.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil, nil, err
	}
	st, err := f.Stat()
	if err == nil && !os.SameFile(at, st) {
		err = &fs.PathError{Op: "open", Path: name, Err: ErrNotOurs}
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, st, nil
}

// Read returns a file's content. It fails when that is longer than limit bytes.
func (h *Home) Read(name string, limit int64) ([]byte, Stat, error) {
	f, err := h.Open(name)
	if err != nil {
		return nil, Stat{}, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: syscall.EFBIG}
	}
	return content, f.Stat, err
}

// Remove removes a file, or a folder with all that it holds.
func (h *Home) Remove(name string) error { return h.root.RemoveAll(name) }

// Rename gives a file, which is no link, another name, unless there is one by
// that name.
func (h *Home) Rename(name, to string) error {
	f, err := h.Open(name)
	if err != nil {
		return err
	}
	f.Close()
	if _, err := h.root.Lstat(to); err == nil {
		return fs.ErrExist
	}
	return h.root.Rename(name, to)
}

// Write puts a file of the home's user there, with the folders above it, unless
// there is one.
func (h *Home) Write(name string, from io.Reader) (err error) {
	owner, err := h.owner()
	if err == nil {
		err = h.folders(path.Dir(name), int(owner))
	}
	if err != nil {
		return err
	}
	aside := name + ".fairlead-part"
	_ = h.root.Remove(aside) // of an earlier try
	f, err := h.root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.root.Remove(aside))
		}
	}()
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Chown(int(owner), -1)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if _, err := h.root.Lstat(name); err == nil {
		return fs.ErrExist
	}
	return h.root.Rename(aside, name)
}

// folders makes a folder of owner's and those above it.
func (h *Home) folders(name string, owner int) error {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		err := h.root.Mkdir(name[:i], 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = h.root.Lchown(name[:i], owner, -1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Find returns the paths of the files that a pattern names, at most limit of
// them: parts between slashes are as [path.Match] takes them.
func (h *Home) Find(pattern string, limit int) []string {
	var found []string
	h.find("", strings.Split(pattern, "/"), &limit, &found)
	return found
}

// find looks in dir for what is left of a pattern. limit also bounds how many
// names are looked at, for a folder may hold any number.
func (h *Home) find(dir string, parts []string, limit *int, found *[]string) {
	for _, e := range h.entries(dir, 16**limit) {
		name := path.Join(dir, e.Name())
		switch ok, _ := path.Match(parts[0], e.Name()); {
		case *limit <= 0:
			return
		case !ok:
		case len(parts) > 1 && e.IsDir():
			h.find(name, parts[1:], limit, found)
		case len(parts) == 1 && e.Type().IsRegular():
			*limit--
			*found = append(*found, name)
		}
	}
}

// entries returns at most limit entries of a folder.
func (h *Home) entries(dir string, limit int) []fs.DirEntry {
	f, err := h.folder(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.ReadDir(max(1, limit)) // what there is by then
	return list
}

// folder opens a folder, which is no link; "" is the home.
func (h *Home) folder(dir string) (*os.File, error) {
	if dir == "" {
		dir = "."
	}
	f, _, err := h.open(dir, unix.O_DIRECTORY)
	return f, err
}
