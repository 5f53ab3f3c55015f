package workspace

import (
	"errors"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// A File is a regular file that is open for reading. Programs may change it
// while it is read.
type File struct {
	*os.File
	Info     protocol.FileInfo // of the path that was asked for
	Modified time.Time
	Name     string // of the file itself, which differs when a symlink led to it
}

// Stat describes what path names. A symlink is described itself.
func (r *reader) Stat(path string) (protocol.FileInfo, error) {
	clean, err := Clean(path)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	if clean == "." {
		d, err := r.folder(clean)
		if err != nil {
			return protocol.FileInfo{}, r.fault(err)
		}
		defer d.close()
		st, err := d.stat()
		return info(clean, &st), r.fault(err)
	}
	d, name, err := r.parent(clean)
	if err != nil {
		return protocol.FileInfo{}, r.fault(err)
	}
	defer d.close()
	e, err := r.describe(d, name, clean)
	return e, r.fault(err)
}

// describe returns what is said of name in d.
func (r *reader) describe(d folder, name, clean string) (protocol.FileInfo, error) {
	st, err := d.lstat(name)
	if err == nil && r.staging.hides(&st) {
		err = unix.ENOENT
	}
	if err != nil {
		return protocol.FileInfo{}, err
	}
	e := info(clean, &st)
	if isLink(&st) {
		e.Target, _ = d.readlink(name)
	}
	return e, nil
}

// Open opens the regular file that path names, through symlinks that stay
// inside. Close it. Anything else is refused with KindInvalid, without waiting.
func (r *reader) Open(path string) (*File, error) {
	clean, err := Clean(path)
	if err != nil {
		return nil, err
	}
	f, err := r.open(clean)
	return f, r.fault(err)
}

func (r *reader) open(clean string) (*File, error) {
	// To open a FIFO or a device can have effects.
	look, err := inside(r, clean, r.root.Stat)
	if err != nil {
		return nil, err
	}
	if look.IsDir() {
		return nil, protocol.Errorf(protocol.KindInvalid, "it is a folder")
	}
	if !look.Mode().IsRegular() {
		return nil, errSpecial
	}
	return r.settle(clean, func() (*os.File, error) {
		return inside(r, clean, func(p string) (*os.File, error) { return r.root.OpenFile(p, openFile, 0) })
	})
}

var errRestive = protocol.Errorf(protocol.KindUnavailable, "the file changes too often to tell where it belongs")

// settle opens a file by open, and returns it when it may be read.
func (r *reader) settle(clean string, open func() (*os.File, error)) (*File, error) {
	for range restiveTries {
		var before unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &before); err != nil {
			return nil, err
		}
		f, err := open()
		if err != nil {
			return nil, err
		}
		opened, err := r.readable(f, clean, before)
		if err == nil {
			return opened, nil
		}
		f.Close()
		if !errors.Is(err, errRestive) {
			return nil, err
		}
		time.Sleep(restiveWait)
	}
	return nil, errRestive
}

const (
	// restiveTries is how often a file that isn't the sandbox's, and that has
	// just changed, is looked at.
	restiveTries = 5
	// restiveWait is more than a tick of the clock that stamps changes.
	restiveWait = 11 * time.Millisecond
)

// readable returns f, which was opened after before, as a File when it may be
// read.
func (r *reader) readable(f *os.File, clean string, before unix.Timespec) (*File, error) {
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return nil, err
	}
	if !isRegular(&st) {
		return nil, errSpecial
	}
	if err := r.refuseAlien(&st); err != nil {
		return nil, err
	}
	// It may have had another name until a moment ago: this one, which led to a
	// file outside. That would have changed its ctime.
	if r.alien(&st) && st.Ctim.Nano() >= before.Nano() {
		return nil, errRestive
	}
	opened := &File{File: f, Info: info(clean, &st), Modified: modified(&st), Name: path.Base(clean)}
	// A symlink may have led here.
	if actual, err := os.Readlink(descriptor(f)); err == nil {
		var dir unix.Stat_t
		if unix.Stat(path.Dir(actual), &dir) == nil && r.staging.hides(&dir) {
			return nil, unix.ENOENT
		}
		opened.Name = strings.TrimSuffix(path.Base(actual), " (deleted)")
	}
	return opened, nil
}

// descriptor returns a path that leads to the very file that f has open.
func descriptor(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(int(f.Fd())) }
