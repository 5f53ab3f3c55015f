package workspace

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// List calls yield with what is in the folder path, sorted by name, and when
// recursive with all below it, each folder before its content. No symlink but
// those in path is followed. What vanishes meanwhile is left out, what the agent
// may not read is listed without content. More than MaxEntries are KindTooLarge;
// yield may have been called by then. An error of yield ends the list.
func (r *reader) List(ctx context.Context, path string, recursive bool, yield func(protocol.FileInfo) error) error {
	clean, err := Clean(path)
	if err != nil {
		return err
	}
	d, err := r.listed(clean)
	if err != nil {
		return err
	}
	defer d.close()
	w := walk{staging: r.staging, ctx: ctx, left: r.o.MaxEntries, deep: recursive, visit: func(_ folder, e entry) error {
		return yield(e.info())
	}}
	return r.fault(w.folder(d, clean, 0))
}

// An entry is one name that a walk comes to.
type entry struct {
	clean  string
	name   string
	st     unix.Stat_t
	target string // of a symlink
}

func (e *entry) info() protocol.FileInfo {
	i := info(e.clean, &e.st)
	i.Target = e.target
	return i
}

// A walk goes through a folder.
type walk struct {
	staging *staging
	ctx     context.Context
	left    int  // how many entries may still come
	deep    bool // folders are entered
	visit   func(folder, entry) error
}

// folder visits what is in d.
func (w *walk) folder(d folder, clean string, depth int) error {
	names, err := w.names(d)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := w.ctx.Err(); err != nil {
			return &protocol.Error{Kind: protocol.KindUnavailable, Err: err}
		}
		if err := w.entry(d, name, clean, depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) names(d folder) ([]string, error) {
	var names []string
	err := d.names(func(name string) bool {
		names = append(names, name)
		w.left--
		return w.left >= 0
	})
	if w.left < 0 {
		return nil, protocol.Errorf(protocol.KindTooLarge, "the folder holds too many files to list")
	}
	slices.Sort(names)
	return names, err
}

func (w *walk) entry(d folder, name, dir string, depth int) error {
	st, err := d.lstat(name)
	if gone(err) || (err == nil && w.staging.hides(&st)) {
		return nil
	}
	if err != nil {
		return err
	}
	e := entry{clean: below(dir, name), name: name, st: st}
	if isLink(&st) {
		if e.target, err = d.readlink(name); err != nil {
			return nil // it was replaced at this very moment
		}
	}
	if err := w.visit(d, e); err != nil || !w.deep || !isDir(&st) {
		return err
	}
	if depth == maxDepth {
		return protocol.Errorf(protocol.KindTooLarge, "the folders are nested too deeply")
	}
	child, err := d.child(name)
	if gone(err) || errors.Is(err, unix.EACCES) {
		return nil
	}
	if err != nil {
		return err
	}
	defer child.close()
	return w.folder(child, e.clean, depth+1)
}
