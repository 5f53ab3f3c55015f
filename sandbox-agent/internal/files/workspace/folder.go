package workspace

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	openFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC
	openFile   = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

	// namesAtOnce is how many names of a folder are read in one go.
	namesAtOnce = 1024
	// refillRounds is how often a folder that fills again while it is removed is
	// emptied.
	refillRounds = 8
)

// A folder is an open folder. Its methods take one name, not a path, and follow
// no symlink: whatever is renamed meanwhile, they work on this folder.
type folder struct{ f *os.File }

func (d folder) fd() int { return int(d.f.Fd()) }

func (d folder) close() { d.f.Close() }

func (d folder) stat() (unix.Stat_t, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstat(d.fd(), &st) })
	return st, err
}

// lstat returns what name is. A symlink is what it is.
func (d folder) lstat(name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	err := retry(func() error { return unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func (d folder) readlink(name string) (string, error) {
	buf := make([]byte, maxPathBytes+1)
	n := 0
	err := retry(func() (err error) { n, err = unix.Readlinkat(d.fd(), name, buf); return err })
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

// open opens name with flags; it never blocks and follows no symlink.
func (d folder) open(name string, flags int, mode uint32) (*os.File, error) {
	fd := -1
	err := retry(func() (err error) {
		fd, err = unix.Openat(d.fd(), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
		return err
	})
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// child opens the folder name.
func (d folder) child(name string) (folder, error) {
	f, err := d.open(name, openFolder, 0)
	return folder{f}, err
}

func (d folder) unlink(name string) error {
	return retry(func() error { return unix.Unlinkat(d.fd(), name, 0) })
}

func (d folder) rmdir(name string) error {
	return retry(func() error { return unix.Unlinkat(d.fd(), name, unix.AT_REMOVEDIR) })
}

func (d folder) mkdir(name string, mode uint32) error {
	return retry(func() error { return unix.Mkdirat(d.fd(), name, mode) })
}

// rename gives name in d the place of newName in to. Without replace it fails
// with EEXIST when there is something.
func (d folder) rename(name string, to folder, newName string, replace bool) error {
	flags := uint(0)
	if !replace {
		flags = unix.RENAME_NOREPLACE
	}
	err := retry(func() error { return unix.Renameat2(d.fd(), name, to.fd(), newName, flags) })
	if replace || (!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS)) {
		return err
	}
	// The filesystem may not know the flag.
	if _, err := to.lstat(newName); err == nil {
		return unix.EEXIST
	}
	return retry(func() error { return unix.Renameat(d.fd(), name, to.fd(), newName) })
}

// names calls yield with the names in d, but for reserved ones, until it
// returns false.
func (d folder) names(yield func(string) bool) error {
	for {
		names, err := d.f.Readdirnames(namesAtOnce)
		for _, name := range names {
			if !reserved(name) && !yield(name) {
				return nil
			}
		}
		if errors.Is(err, io.EOF) || (err == nil && len(names) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (d folder) sync() error { return d.f.Sync() }

// removeAll removes name from d. That it isn't there is no error.
func (d folder) removeAll(ctx context.Context, name string, depth int) error {
	for range refillRounds {
		err := d.unlink(name)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		// EPERM is also what some filesystems say of a folder.
		if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
			return err
		}
		child, openErr := d.child(name)
		if errors.Is(openErr, unix.ENOTDIR) && errors.Is(err, unix.EPERM) {
			return err
		}
		if gone(openErr) {
			continue
		}
		if openErr != nil {
			return openErr
		}
		err = child.empty(ctx, depth)
		child.close()
		if err != nil {
			return err
		}
		err = d.rmdir(name)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
	return protocol.Errorf(protocol.KindConflict, "the folder fills again while it is removed")
}

// empty removes all that d holds.
func (d folder) empty(ctx context.Context, depth int) error {
	if depth == maxDepth {
		return protocol.Errorf(protocol.KindTooLarge, "the folders are nested too deeply")
	}
	for {
		names, err := d.f.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return &protocol.Error{Kind: protocol.KindUnavailable, Err: err}
			}
			if err := d.removeAll(ctx, name, depth+1); err != nil {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			return nil // the rmdir that follows shows what is left
		}
	}
}
