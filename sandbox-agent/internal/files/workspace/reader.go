package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// A reader finds and reads the files of a workspace. It hides the agent's own
// folder.
type reader struct {
	// Static after construction.
	o       *Options
	root    *os.Root
	escapes error      // what os.Root says of a path that leads outside
	homes   [][]string // the names of the workspace's own absolute paths
	staging *staging
}

func newReader(root *os.Root, o *Options, staging *staging) *reader {
	r := &reader{o: o, root: root, homes: homes(o.Dir), staging: staging}
	var outside *fs.PathError
	if _, err := root.Lstat(".."); errors.As(err, &outside) {
		r.escapes = outside.Err
	}
	return r
}

// inside calls do with a path. When os.Root refuses a symlink on it, do is called
// once more, with where the path leads when absolute symlinks into the workspace
// are taken as relative to it. do must be a method of os.Root: whatever becomes
// of the path meanwhile, that doesn't let it lead outside.
func inside[T any](r *reader, clean string, do func(string) (T, error)) (T, error) {
	v, err := do(clean)
	if err == nil || r.escapes == nil || !errors.Is(err, r.escapes) {
		return v, err
	}
	actual, err := r.resolve(clean)
	if err != nil {
		return v, err
	}
	return do(actual)
}

// within returns the names that an absolute path has below the workspace's own,
// none when it doesn't lead there. They may hold "..".
func (r *reader) within(abs string) []string {
	names := namesOf(abs)
	for _, home := range r.homes {
		if len(names) > len(home) && slices.Equal(names[:len(home)], home) {
			names = names[len(home):]
			if strings.HasSuffix(abs, "/") {
				names = append(names, ".") // it must be a folder
			}
			return names
		}
	}
	return nil
}

// resolve returns the path, free of symlinks at this moment, to which p leads.
// Its last name may be of nothing.
func (r *reader) resolve(p string) (string, error) {
	top, err := r.root.OpenFile(".", openFolder, 0)
	if err != nil {
		return "", err
	}
	t := trail{open: []folder{{top}}}
	defer func() { t.back(0); top.Close() }()
	rest, links := strings.Split(p, "/"), 0
	for steps := 0; len(rest) > 0; steps++ {
		if steps == maxSteps || len(t.names) > maxDepth {
			return "", unix.ENAMETOOLONG
		}
		name := rest[0]
		link, err := t.step(name)
		switch {
		case errors.Is(err, errAbove):
			return "", r.escapes
		case err != nil && len(rest) > 1: // of the last, do says what it is
			return "", err
		case link == "":
			rest = rest[1:]
			continue
		}
		if links++; links > maxFollowed {
			return "", unix.ELOOP
		}
		to := strings.Split(link, "/")
		if path.IsAbs(link) {
			if to = r.within(link); to == nil {
				return "", r.escapes
			}
			t.back(0)
		}
		rest = slices.Concat(to, rest[1:])
	}
	return path.Join(append([]string{"."}, t.names...)...), nil
}

// folder opens the folder that a clean path names, through symlinks that stay
// inside.
func (r *reader) folder(clean string) (folder, error) {
	f, err := inside(r, clean, func(p string) (*os.File, error) { return r.root.OpenFile(p, openFolder, 0) })
	if err != nil {
		return folder{}, err
	}
	d := folder{f}
	if st, err := d.stat(); err == nil && r.staging.hides(&st) {
		d.close()
		return folder{}, unix.ENOENT
	}
	return d, nil
}

// parent opens the folder that holds the last name of a clean path, and returns
// it with that name. The workspace itself has none.
func (r *reader) parent(clean string) (folder, string, error) {
	if clean == "." {
		return folder{}, "", protocol.Errorf(protocol.KindInvalid, "this is the workspace itself")
	}
	dir, name := split(clean)
	d, err := r.folder(dir)
	return d, name, err
}

// listed opens the folder of a list.
func (r *reader) listed(clean string) (folder, error) {
	d, err := r.folder(clean)
	if errors.Is(err, unix.ENOTDIR) {
		return folder{}, protocol.Errorf(protocol.KindInvalid, "it is not a folder")
	}
	return d, r.fault(err)
}

// refuseAlien refuses a file with several names that isn't the sandbox's.
func (r *reader) refuseAlien(st *unix.Stat_t) error {
	if st.Nlink > 1 && isRegular(st) && r.alien(st) {
		return protocol.Errorf(protocol.KindForbidden, "the file has another name, and its owner is outside of the sandbox")
	}
	return nil
}

// alien reports whether the owner of a file is outside of the sandbox.
func (r *reader) alien(st *unix.Stat_t) bool { return r.o.Own != nil && !r.o.Own(st.Uid) }

// fault gives err a kind. Errors that have one stay as they are.
func (r *reader) fault(err error) error {
	var known *protocol.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if r.escapes != nil && errors.Is(err, r.escapes) {
		return &protocol.Error{Kind: protocol.KindInvalid, Message: "a symlink leads out of the workspace", Err: err}
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		for _, row := range errnos {
			if row.errno == errno {
				return &protocol.Error{Kind: row.kind, Message: row.text, Err: err}
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return &protocol.Error{Kind: protocol.KindNotFound, Message: "there is no such file", Err: err}
	}
	return protocol.Fault(protocol.KindInternal, err)
}
