package passwd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Path is where the list is.
const Path = "/etc/passwd"

const (
	// lockName is beside the list: who changes it locks that, as lckpwdf(3) does.
	lockName = ".pwd.lock"
	// nextName is beside the list as well: what it is about to be. One that a
	// killed agent left is replaced.
	nextName = ".passwd.fairlead"
	// lockWithin bounds how long somebody else may change the list, and
	// lockEvery is how often it is tried.
	lockWithin = 5 * time.Second
	lockEvery  = 20 * time.Millisecond
	// maxBytes bounds a list that is read.
	maxBytes = 8 << 20
)

// A File is a list of users. It is changed as a whole: whoever reads it sees what
// was before or what is then, and so it is after a crash. It is safe for
// concurrent use, by several processes too.
type File struct {
	path string
	mu   sync.Mutex // one of this process at a time
}

// Open returns the list at path, which must be a file that can be replaced.
func Open(path string) (*File, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return &File{path: real}, nil
}

// Set adds e, or changes it.
func (f *File) Set(e Entry) error {
	return f.change(func(text []byte) ([]byte, error) { return with(text, e) })
}

// Remove takes the entry for uid away, if there is one.
func (f *File) Remove(uid int) error {
	return f.change(func(text []byte) ([]byte, error) { return without(text, uid), nil })
}

// UIDs returns those that have an entry, also of other agents, and left-over ones.
func (f *File) UIDs() ([]int, error) {
	list, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	text, err := read(list)
	return owned(text), err
}

// change replaces the list's text by what edit makes of it.
func (f *File) change(edit func(text []byte) ([]byte, error)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	unlock, err := lock(filepath.Join(filepath.Dir(f.path), lockName))
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.path, err)
	}
	defer unlock()
	list, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer list.Close()
	text, err := read(list)
	if err != nil {
		return err
	}
	next, err := edit(text)
	if err != nil || slices.Equal(text, next) {
		return err
	}
	return f.replace(list, next)
}

func read(list *os.File) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(list, maxBytes+1))
	if err == nil && len(text) > maxBytes {
		err = fmt.Errorf("%s has over %d bytes", list.Name(), maxBytes)
	}
	return text, err
}

// replace puts text in the place of list, with the same mode, owner and
// attributes.
func (f *File) replace(list *os.File, text []byte) error {
	path := filepath.Join(filepath.Dir(f.path), nextName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	next, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	err = errors.Join(err, resemble(next, list))
	if err == nil {
		err = next.Sync()
	}
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(path, f.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// resemble gives next the owner, mode and extended attributes of list.
func resemble(next, list *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(list.Fd()), &st); err != nil {
		return err
	}
	if err := next.Chown(int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	copyAttributes(int(next.Fd()), int(list.Fd()))
	return unix.Fchmod(int(next.Fd()), st.Mode&0o7777)
}

// copyAttributes copies what of a file's label there is, as far as it may be set.
func copyAttributes(to, from int) {
	names, value := make([]byte, 4096), make([]byte, 4096)
	n, err := unix.Flistxattr(from, names)
	if err != nil {
		return // there are none here
	}
	for _, name := range splitNames(names[:n]) {
		if n, err := unix.Fgetxattr(from, name, value); err == nil {
			_ = unix.Fsetxattr(to, name, value[:n], 0)
		}
	}
}

func splitNames(list []byte) (names []string) {
	for len(list) > 0 {
		end := slices.Index(list, 0)
		if end < 0 {
			return names
		}
		names = append(names, string(list[:end]))
		list = list[end+1:]
	}
	return names
}

// lock waits until nobody else changes the list. The lock ends with the process,
// too. It keeps apart from those of other programs and from ours in another
// process: two of one process would have one such lock between them.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	again := time.NewTicker(lockEvery)
	defer again.Stop()
	for deadline := time.Now().Add(lockWithin); ; <-again.C {
		err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart})
		if err == nil {
			return func() { file.Close() }, nil
		}
		busy := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EINTR)
		if !busy || time.Now().After(deadline) {
			return nil, errors.Join(err, file.Close())
		}
	}
}
