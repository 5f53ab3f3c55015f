package workspace

import (
	"errors"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	openFolder = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NONBLOCK | unix.O_CLOEXEC
	openFile   = unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

	// namesAtOnce is how many names of a folder are read in one go.
	namesAtOnce = 1024
	// maxLinks is how many symlinks in a row are followed to what is written.
	maxLinks = 8
)

// A folder is an open folder. Its methods take one name, not a path, and follow
// no symlink: whatever is renamed meanwhile, they work on this folder.
type folder struct{ f *os.File }

// folder opens the folder that a clean path names, through symlinks that stay
// inside.
func (s *FS) folder(clean string) (folder, error) {
	f, err := inside(s, clean, func(p string) (*os.File, error) { return s.root.OpenFile(p, openFolder, 0) })
	if err != nil {
		return folder{}, err
	}
	d := folder{f}
	if s.isStaging(d) {
		d.close()
		return folder{}, unix.ENOENT
	}
	return d, nil
}

// parent opens the folder that holds the last name of a clean path, and returns
// it with that name. The workspace itself has none.
func (s *FS) parent(clean string) (folder, string, error) {
	if clean == "." {
		return folder{}, "", protocol.Errorf(protocol.KindInvalid, "this is the workspace itself")
	}
	dir, name := split(clean)
	d, err := s.folder(dir)
	return d, name, err
}

// target is parent for what is to be written: where the last name is a symlink,
// it is the folder and name to which that leads, made when makeParents.
func (s *FS) target(clean string, makeParents bool) (folder, string, error) {
	if clean == "." {
		return folder{}, "", protocol.Errorf(protocol.KindInvalid, "this is the workspace itself")
	}
	dir, name := split(clean)
	for range maxLinks {
		d, err := s.folder(dir)
		if errors.Is(err, unix.ENOENT) && makeParents {
			d, err = s.makeFolders(dir)
		}
		if err != nil {
			return folder{}, "", err
		}
		link, err := d.readlink(name)
		if err != nil {
			return d, name, nil // not a symlink, or nothing yet
		}
		d.close()
		makeParents = false // a symlink into nowhere stays one
		if path.IsAbs(link) {
			dir = "."
			link = strings.Join(s.within(link), "/")
		}
		to, last := path.Split(link)
		if last == "" || last == "." || last == ".." || reserved(last) {
			return folder{}, "", protocol.Errorf(protocol.KindInvalid, "a symlink leads to no file of the workspace")
		}
		// Not path.Join: what ".." means depends on the symlinks before it.
		dir, name = dir+"/"+strings.TrimSuffix(to, "/"), last
		if len(dir) > maxPathBytes {
			return folder{}, "", unix.ENAMETOOLONG
		}
		dir = strings.TrimSuffix(dir, "/")
	}
	return folder{}, "", unix.ELOOP
}

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
