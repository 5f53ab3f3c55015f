package workspace

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// neverDone is the context of what nobody waits for.
var neverDone = context.Background()

// refillRounds is how often a folder that fills again while it is removed is
// emptied.
const refillRounds = 8

// Delete removes what path names: a symlink itself, a folder with its content.
// The workspace can't be removed. When ctx ends or a file can't be removed, part
// of a folder may be gone.
func (s *FS) Delete(ctx context.Context, path string) error {
	clean, err := Clean(path)
	if err != nil {
		return err
	}
	d, name, err := s.parent(clean)
	if err != nil {
		return s.fault(err)
	}
	defer d.close()
	st, err := d.lstat(name)
	if err == nil && s.isStagingInode(&st) {
		err = unix.ENOENT
	}
	if err == nil {
		err = s.removeAll(ctx, d, name, 0)
	}
	return s.fault(err)
}

// removeAll removes name from d. That it isn't there is no error.
func (s *FS) removeAll(ctx context.Context, d folder, name string, depth int) error {
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
		err = s.empty(ctx, child, depth)
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
func (s *FS) empty(ctx context.Context, d folder, depth int) error {
	if depth == maxDepth {
		return protocol.Errorf(protocol.KindTooLarge, "the folders are nested too deeply")
	}
	for {
		names, err := d.f.Readdirnames(namesAtOnce)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return &protocol.Error{Kind: protocol.KindUnavailable, Err: err}
			}
			if err := s.removeAll(ctx, d, name, depth+1); err != nil {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			return nil // the rmdir that follows shows what is left
		}
	}
}

// Mkdir makes the folder path, and those above it. It returns false when the
// folder was there.
func (s *FS) Mkdir(path string) (protocol.FileInfo, bool, error) {
	clean, err := Clean(path)
	if err != nil {
		return protocol.FileInfo{}, false, err
	}
	made := false
	d, err := s.folder(clean)
	if errors.Is(err, unix.ENOENT) {
		d, err = s.makeFolders(clean)
		made = true
	}
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.EEXIST
	}
	if err != nil {
		return protocol.FileInfo{}, false, s.fault(err)
	}
	defer d.close()
	st, err := d.stat()
	return info(clean, &st), made, s.fault(err)
}

// makeFolders makes the folder clean, with those above it, and opens it.
func (s *FS) makeFolders(clean string) (folder, error) {
	at, err := s.folder(".")
	if err != nil {
		return folder{}, err
	}
	prefix := "."
	for name := range strings.SplitSeq(clean, "/") {
		prefix = below(prefix, name)
		next, err := s.folder(prefix)
		if errors.Is(err, unix.ENOENT) {
			if err = s.makeFolder(at, name); err == nil {
				next, err = s.folder(prefix)
			}
		}
		at.close()
		if err != nil {
			return folder{}, err
		}
		at = next
	}
	return at, nil
}

// makeFolder makes the folder name in d, for d's owner and group, or for
// Options.Owner. It is made
// among our own first: nobody can put another in its place before it is given
// away. That it is there already is no error.
func (s *FS) makeFolder(d folder, name string) error {
	own, err := s.stagingFolder()
	if err != nil {
		return err
	}
	temp := writePrefix + rand.Text()
	if err := own.mkdir(temp, 0o700); err != nil {
		return err
	}
	made, err := own.child(temp)
	if err != nil {
		return err
	}
	defer made.close()
	st, err := d.stat()
	if err == nil {
		uid, gid := s.owner(&st)
		give(made.f, uid, gid)
		err = retry(func() error { return unix.Fchmod(made.fd(), folderMode) })
	}
	if err == nil {
		err = own.rename(temp, d, name, false)
	}
	if err == nil {
		return d.sync()
	}
	_ = own.rmdir(temp) // the next Open tries again
	if errors.Is(err, unix.EXDEV) {
		err = d.mkdir(name, folderMode)
	}
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// Move renames from to to, making the folders above it. A symlink is moved
// itself, and replaced itself. Without overwrite there must be nothing of the
// new name; with it a file replaces a file, and a folder one that is empty.
func (s *FS) Move(from, to string, overwrite bool) (protocol.FileInfo, error) {
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
	e, err := s.move(source, clean, overwrite)
	return e, s.fault(err)
}

func (s *FS) move(source, clean string, overwrite bool) (protocol.FileInfo, error) {
	src, name, err := s.parent(source)
	if err != nil {
		return protocol.FileInfo{}, err
	}
	defer src.close()
	st, err := src.lstat(name)
	if err == nil && s.isStagingInode(&st) {
		err = unix.ENOENT
	}
	if err != nil {
		return protocol.FileInfo{}, err
	}
	dst, newName, err := s.parent(clean)
	if errors.Is(err, unix.ENOENT) {
		dir, base := split(clean)
		newName = base
		dst, err = s.makeFolders(dir)
	}
	if err != nil {
		return protocol.FileInfo{}, err
	}
	defer dst.close()
	s.commit.Lock()
	err = src.rename(name, dst, newName, overwrite)
	s.commit.Unlock()
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
	e, err := s.describe(dst, newName, clean)
	if gone(err) {
		err = nil // and moved on already
	}
	return e, err
}
