package workspace

import (
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxFollowed bounds the symlinks of one path, as the kernel does.
	maxFollowed = 40
	// maxSteps bounds the names of one path with those of its symlinks.
	maxSteps = 1024
)

// homes returns the names of the absolute paths by which programs know dir.
func homes(dir string) [][]string {
	var all [][]string
	for _, find := range []func(string) (string, error){filepath.Abs, filepath.EvalSymlinks} {
		if p, err := find(dir); err == nil && path.IsAbs(p) {
			all = append(all, namesOf(p))
		}
	}
	return all
}

// namesOf returns the names in a path, without those that say nothing.
func namesOf(p string) []string {
	return slices.DeleteFunc(strings.Split(p, "/"), func(name string) bool { return name == "" || name == "." })
}

// errAbove says that a path leads above the workspace.
var errAbove = errors.New("above the workspace")

// A trail is a way through folders, each open.
type trail struct {
	open  []folder // from the workspace itself on
	names []string // of those behind it, and maybe one that is no folder
}

// step goes to name. Where that is a symlink, it stays and returns its target.
// From what is no folder, an error, no step leads on.
func (t *trail) step(name string) (link string, err error) {
	switch {
	case name == "" || name == ".":
		return "", nil
	case name == ".." && len(t.names) == 0:
		return "", errAbove
	case name == "..":
		t.back(len(t.names) - 1)
		return "", nil
	}
	at := t.open[len(t.open)-1]
	if link, err := at.readlink(name); err == nil {
		return link, nil
	}
	t.names = append(t.names, name)
	child, err := at.child(name)
	if err == nil {
		t.open = append(t.open, child)
	}
	return "", err
}

// back leaves all but the first n names.
func (t *trail) back(n int) {
	t.names = t.names[:n]
	for len(t.open) > n+1 {
		t.open[len(t.open)-1].close()
		t.open = t.open[:len(t.open)-1]
	}
}
