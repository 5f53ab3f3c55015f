package workspace

import (
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
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

// within returns the names that an absolute path has below the workspace's own,
// none when it doesn't lead there. They may hold "..".
func (s *FS) within(abs string) []string {
	names := namesOf(abs)
	for _, home := range s.homes {
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

// inside calls do with a path. When os.Root refuses a symlink on it, do is called
// once more, with where the path leads when absolute symlinks into the workspace
// are taken as relative to it. do must be a method of os.Root: whatever becomes
// of the path meanwhile, that doesn't let it lead outside.
func inside[T any](s *FS, clean string, do func(string) (T, error)) (T, error) {
	v, err := do(clean)
	if err == nil || s.escapes == nil || !errors.Is(err, s.escapes) {
		return v, err
	}
	actual, err := s.resolve(clean)
	if err != nil {
		return v, err
	}
	return do(actual)
}

// resolve returns the path, free of symlinks at this moment, to which p leads.
// Its last name may be of nothing.
func (s *FS) resolve(p string) (string, error) {
	top, err := s.root.OpenFile(".", openFolder, 0)
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
			return "", s.escapes
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
			if to = s.within(link); to == nil {
				return "", s.escapes
			}
			t.back(0)
		}
		rest = slices.Concat(to, rest[1:])
	}
	return path.Join(append([]string{"."}, t.names...)...), nil
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
