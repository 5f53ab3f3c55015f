package checks

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A File is one file of the repository.
type File struct {
	Path string // from the root, with slashes
	Text []byte
}

func (f File) isTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// isTestdata reports whether f is in a directory that the go tool ignores: no
// package of the module.
func (f File) isTestdata() bool {
	return slices.Contains(strings.Split(path.Dir(f.Path), "/"), "testdata")
}

// maxMainLines bounds the file that holds func main: what a program does
// belongs in a package that can be tested.
const maxMainLines = 30

// Check returns every violation of the repository's rules in files, sorted, each
// as "path: what is wrong".
func Check(files []File) []string {
	var found []string
	for _, f := range files {
		found = append(found, checkRoot(f)...)
		found = append(found, checkPaths(f)...)
		if strings.HasSuffix(f.Path, ".go") && !f.isTestdata() {
			found = append(found, checkGo(f)...)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func checkGo(f File) []string {
	tree, err := parser.ParseFile(token.NewFileSet(), f.Path, f.Text, parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	found := append(checkImports(f, tree), checkFunctions(f, tree)...)
	if f.isTest() {
		found = append(found, checkSleep(f, tree)...)
	}
	return found
}

func checkRoot(f File) []string {
	top, _, _ := strings.Cut(f.Path, "/")
	if strings.HasPrefix(top, ".") || slices.Contains(RootEntries, top) {
		return nil
	}
	return []string{top + ": may not stand at the root"}
}

// machinePath matches an absolute path that exists on one machine only. The
// alternatives are bracketed so that this file doesn't match itself.
var machinePath = regexp.MustCompile(`(?:^|[^\w./~$})-])/(?:work|root|farm|home/\w+|Users/\w+)/`)

func checkPaths(f File) []string {
	if slices.Contains(f.Text[:min(len(f.Text), 8000)], 0) {
		return nil // not text
	}
	var found []string
	for i, line := range strings.Split(string(f.Text), "\n") {
		if m := machinePath.FindString(line); m != "" {
			found = append(found, fmt.Sprintf("%s:%d: path of one machine: %s", f.Path, i+1, strings.TrimLeft(m, " \t\"'`=:(")))
		}
	}
	return found
}

func checkImports(f File, tree *ast.File) []string {
	dir := path.Dir(f.Path)
	floor, known := FloorOf(dir)
	if !known {
		return []string{dir + ": unknown package: give it a floor in deploy/checks/floors.go"}
	}
	var found []string
	for _, spec := range tree.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return append(found, f.Path+": "+err.Error())
		}
		problem := cmp.Or(restricted(f, dir, target), foreign(f, dir, target), upwards(f, dir, floor, target))
		if problem != "" {
			found = append(found, fmt.Sprintf("%s: imports %s: %s", f.Path, target, problem))
		}
	}
	return found
}

// upwards says why importing target breaks the floors, or "".
func upwards(f File, dir string, floor Floor, target string) string {
	targetDir, ours := dirOf(target)
	if !ours {
		return ""
	}
	targetFloor, known := FloorOf(targetDir)
	switch {
	case !known:
		return "unknown package: give it a floor in deploy/checks/floors.go"
	case targetFloor < floor:
		return ""
	case targetFloor > floor:
		return fmt.Sprintf("F%d is above F%d", targetFloor, floor)
	case kin(dir, targetDir) || f.isTest():
		return ""
	}
	for _, s := range Sideways {
		if s.From == dir && s.To == targetDir {
			return ""
		}
	}
	return fmt.Sprintf("sideways on F%d", floor)
}

// restricted says which of the Restrictions forbids importing target, or "".
func restricted(f File, dir, target string) string {
	covers := func(pattern string) bool { return matches(pattern, dir) }
	for _, r := range Restrictions {
		if !matches(r.Import+"/...", target) || (!r.InTests && (f.isTest() || matches("deploy/e2e/...", dir))) {
			continue
		}
		if slices.ContainsFunc(r.Never, covers) || (r.Only != nil && !slices.ContainsFunc(r.Only, covers)) {
			return "not from here: " + r.Why
		}
	}
	return ""
}

// foreign says why protocol may not import target, or "": it imports only the
// standard library, whose paths have no dot in their first element.
func foreign(f File, dir, target string) string {
	first, _, _ := strings.Cut(target, "/")
	if dir != "protocol" || !strings.Contains(first, ".") || f.isTest() {
		return ""
	}
	return "protocol imports the standard library only"
}

func checkFunctions(f File, tree *ast.File) []string {
	var found []string
	for _, decl := range tree.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Recv != nil {
			continue
		}
		lines := strings.Count(string(f.Text), "\n")
		switch {
		case fn.Name.Name == "init":
			found = append(found, f.Path+": init(): call a function from main instead")
		case fn.Name.Name == "main" && tree.Name.Name == "main" && lines >= maxMainLines:
			found = append(found, fmt.Sprintf("%s: main of %d lines, want fewer than %d", f.Path, lines, maxMainLines))
		}
	}
	return found
}

// checkSleep looks for time.Sleep in test files. One that imports
// testing/synctest may sleep: in a bubble that is how virtual time passes.
func checkSleep(f File, tree *ast.File) []string {
	name := importName(tree, "time")
	if name == "" || importName(tree, "testing/synctest") != "" {
		return nil
	}
	sleeps := false
	ast.Inspect(tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
			ident, ok := sel.X.(*ast.Ident)
			sleeps = sleeps || (ok && ident.Name == name)
		}
		return true
	})
	if sleeps {
		return []string{f.Path + ": time.Sleep in a test: wait for an event, or use testing/synctest"}
	}
	return nil
}

// importName returns the name under which tree's file imports target, or "".
func importName(tree *ast.File, target string) string {
	for _, spec := range tree.Imports {
		switch {
		case spec.Path.Value != strconv.Quote(target):
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return path.Base(target)
		}
	}
	return ""
}
