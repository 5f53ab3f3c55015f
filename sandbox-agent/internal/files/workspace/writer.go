package workspace

import (
	"crypto/rand"
	"errors"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

const (
	fileMode   = 0o664
	folderMode = 0o2775

	// maxLinks is how many symlinks in a row are followed to what is written.
	maxLinks = 8
)

// A writer changes the files of a workspace.
type writer struct {
	*reader

	// commit is held from the look at what a write replaces to its rename, so
	// that no caller of this FS replaces another's file unseen.
	commit sync.Mutex
}

// target is parent for what is to be written: where the last name is a symlink,
// it is the folder and name to which that leads, made when makeParents.
func (w *writer) target(clean string, makeParents bool) (folder, string, error) {
	if clean == "." {
		return folder{}, "", protocol.Errorf(protocol.KindInvalid, "this is the workspace itself")
	}
	dir, name := split(clean)
	for range maxLinks {
		d, err := w.folder(dir)
		if errors.Is(err, unix.ENOENT) && makeParents {
			d, err = w.makeFolders(dir)
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
			link = strings.Join(w.within(link), "/")
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

// owner returns to whom something new in the folder dir goes.
func (w *writer) owner(dir *unix.Stat_t) (uid, gid uint32) {
	if w.o.Owner != nil && w.alien(dir) {
		if uid, ok := w.o.Owner(); ok && uid >= 0 {
			return uint32(uid), dir.Gid
		}
	}
	return dir.Uid, dir.Gid
}

// give makes uid and gid the owner of f, or gid alone where only root may do
// that, or neither.
func give(f *os.File, uid, gid uint32) {
	if f.Chown(int(uid), int(gid)) != nil {
		_ = f.Chown(-1, int(gid)) // it is the agent's own then
	}
}

// makeFolders makes the folder clean, with those above it, and opens it.
func (w *writer) makeFolders(clean string) (folder, error) {
	at, err := w.folder(".")
	if err != nil {
		return folder{}, err
	}
	prefix := "."
	for name := range strings.SplitSeq(clean, "/") {
		prefix = below(prefix, name)
		next, err := w.folder(prefix)
		if errors.Is(err, unix.ENOENT) {
			if err = w.makeFolder(at, name); err == nil {
				next, err = w.folder(prefix)
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
// Options.Owner. It is made in the staging folder first: there nobody can put
// another in its place before it is given away. That it is there already is no
// error.
func (w *writer) makeFolder(d folder, name string) error {
	own, err := w.staging.folder()
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
		uid, gid := w.owner(&st)
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
