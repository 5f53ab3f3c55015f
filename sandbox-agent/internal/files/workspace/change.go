package workspace

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// Delete removes what path names: a symlink itself, a folder with its content.
// The workspace can't be removed. When ctx ends or a file can't be removed, part
// of a folder may be gone.
func (w *writer) Delete(ctx context.Context, path string) error {
	clean, err := Clean(path)
	if err != nil {
		return err
	}
	d, name, err := w.parent(clean)
	if err != nil {
		return w.fault(err)
	}
	defer d.close()
	st, err := d.lstat(name)
	if err == nil && w.staging.hides(&st) {
		err = unix.ENOENT
	}
	if err == nil {
		err = d.removeAll(ctx, name, 0)
	}
	return w.fault(err)
}

// Mkdir makes the folder path, and those above it. It returns false when the
// folder was there.
func (w *writer) Mkdir(path string) (protocol.FileInfo, bool, error) {
	clean, err := Clean(path)
	if err != nil {
		return protocol.FileInfo{}, false, err
	}
	made := false
	d, err := w.folder(clean)
	if errors.Is(err, unix.ENOENT) {
		d, err = w.makeFolders(clean)
		made = true
	}
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.EEXIST
	}
	if err != nil {
		return protocol.FileInfo{}, false, w.fault(err)
	}
	defer d.close()
	st, err := d.stat()
	return info(clean, &st), made, w.fault(err)
}

// Move renames from to to, making the folders above it. A symlink is moved
// itself, and replaced itself. Without overwrite there must be nothing of the
// new name; with it a file replaces a file, and a folder one that is empty.
func (w *writer) Move(from, to string, overwrite bool) (protocol.FileInfo, error) {
	source, err := Clean(from)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	clean, err := Clean(to)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	if strings.HasPrefix(clean, source+"/") {
		return protocol.FileInfo{}, protocol.Errorf(protocol.KindInvalid, "a folder can't be moved into itself")
	}
	e, err := w.move(source, clean, overwrite)
	return e, w.fault(err)
}

func (w *writer) move(source, clean string, overwrite bool) (protocol.FileInfo, error) {
	src, name, err := w.parent(source)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	defer src.close()
	st, err := src.lstat(name)
	if err == nil && w.staging.hides(&st) {
		err = unix.ENOENT
	}
	if err != nil {
		return protocol.FileInfo{}, err
	}
	dst, newName, err := w.parent(clean)
	if errors.Is(err, unix.ENOENT) {
		dir, base := split(clean)
		newName = base
		dst, err = w.makeFolders(dir)
	}
	if err != nil {
		return protocol.FileInfo{}, err
	}
	defer dst.close()
	w.commit.Lock()
	err = src.rename(name, dst, newName, overwrite)
	w.commit.Unlock()
	if errors.Is(err, unix.EINVAL) {
		return protocol.FileInfo{}, protocol.Errorf(protocol.KindInvalid, "a folder can't be moved into itself")
	}
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.EEXIST // a folder on a file
	}
	if err != nil {
		return protocol.FileInfo{}, err
	}
	if err := errors.Join(dst.sync(), src.sync()); err != nil {
		return protocol.FileInfo{}, err
	}
	e, err := w.describe(dst, newName, clean)
	if gone(err) {
		err = nil // and moved on already
	}
	return e, err
}
