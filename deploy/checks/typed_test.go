package checks

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"testing"

	"github.com/fairlead/fairlead/deploy/checks/locks"
)

// fake returns a package of made-up files.
func fake(t *testing.T, dir string, files map[string]string) Package {
	t.Helper()
	p := Package{Dir: dir, Package: locks.Package{Fset: token.NewFileSet(), Info: newInfo()}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		tree, err := parser.ParseFile(p.Fset, name, files[name], parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		p.Files = append(p.Files, tree)
	}
	var err error
	config := types.Config{Importer: importer.Default()}
	if p.Types, err = config.Check(dir, p.Fset, p.Files, p.Info); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestLoad: every package has its types, and a name its declaration.
func TestLoad(t *testing.T) {
	for _, p := range packages(t) {
		if p.Types == nil || !p.Types.Complete() {
			t.Errorf("%s isn't complete", p.Dir)
		}
		for _, file := range p.Files {
			ast.Inspect(file, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok && p.Info.ObjectOf(sel.Sel) == nil {
					t.Errorf("%v: nobody knows %s", p.Fset.Position(n.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
}
