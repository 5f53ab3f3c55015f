// Package changed finds what a change concerns, and builds, vets and tests that:
// make check.
package changed

import (
	"path"
	"slices"
	"strings"
)

// A Package is what the go tool says of a package of the repository.
type Package struct {
	ImportPath string
	Dir        string   // from the root
	GoFiles    []string // none where there are only tests
	Imports    []string
	// TestImports and XTestImports are those of its test files.
	TestImports, XTestImports []string
}

// Everywhere are files that concern every package.
var Everywhere = []string{"go.mod", "go.sum"}

// Elsewhere are folders whose files a package tests that isn't above them.
var Elsewhere = []struct{ Folder, Package string }{
	{"relay/internal/console/web", "relay/internal/console/build"},
}

// always is the package that looks at every file.
const always = "deploy/checks"

// Concerned returns the directories of the packages whose files have changed, and
// of those that depend on them. What only a test has changed concerns nobody
// else.
func Concerned(packages []Package, files []string) (direct, dependent []string) {
	changed := map[string]bool{}
	add := func(dir string) {
		if !slices.Contains(direct, dir) {
			direct = append(direct, dir)
		}
	}
	for _, file := range files {
		for _, dir := range owners(packages, file) {
			if add(dir); !strings.HasSuffix(file, "_test.go") {
				changed[dir] = true
			}
		}
	}
	for _, p := range packages {
		if !slices.Contains(direct, p.Dir) && (p.Dir == always || depends(packages, p, changed)) {
			dependent = append(dependent, p.Dir)
		}
	}
	slices.Sort(direct)
	return direct, dependent
}

// owners returns the packages that a file belongs to: the nearest above it, and
// those that Elsewhere names.
func owners(packages []Package, file string) (dirs []string) {
	if slices.Contains(Everywhere, file) {
		for _, p := range packages {
			dirs = append(dirs, p.Dir)
		}
		return dirs
	}
	is := func(dir string) bool {
		return slices.ContainsFunc(packages, func(p Package) bool { return p.Dir == dir })
	}
	for dir := path.Dir(file); dir != "."; dir = path.Dir(dir) {
		if is(dir) {
			dirs = append(dirs, dir)
			break
		}
	}
	for _, e := range Elsewhere {
		if strings.HasPrefix(file, e.Folder+"/") && is(e.Package) {
			dirs = append(dirs, e.Package)
		}
	}
	return dirs
}

// depends reports whether p or its tests are built from a changed package.
func depends(packages []Package, p Package, changed map[string]bool) bool {
	seen := map[string]bool{}
	var built func(paths []string) bool
	built = func(paths []string) bool {
		for _, importPath := range paths {
			i := slices.IndexFunc(packages, func(p Package) bool { return p.ImportPath == importPath })
			if i < 0 || seen[importPath] {
				continue
			}
			seen[importPath] = true
			if changed[packages[i].Dir] || built(packages[i].Imports) {
				return true
			}
		}
		return false
	}
	return built(p.Imports) || built(p.TestImports) || built(p.XTestImports)
}
