package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/checks/locks"
)

// A Package is one package of the repository with its types, without its tests.
type Package struct {
	Dir string // from the root
	locks.Package
}

// listed is what the go tool says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	ImportMap               map[string]string
}

// Load type-checks every package below root, which must build.
func Load(root string) ([]Package, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,ImportMap", "./...")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var ours []listed
	exports := map[string]string{}
	for from := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := from.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if _, is := dirOf(p.ImportPath); is {
			ours = append(ours, p)
		}
	}
	fset := token.NewFileSet()
	from := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var packages []Package
	for _, p := range ours {
		loaded, err := load(fset, from, p)
		if err != nil {
			return nil, err
		}
		packages = append(packages, loaded)
	}
	return packages, nil
}

func load(fset *token.FileSet, from types.Importer, p listed) (Package, error) {
	dir, _ := dirOf(p.ImportPath)
	loaded := Package{Dir: dir, Package: locks.Package{Fset: fset, Info: newInfo()}}
	for _, name := range p.GoFiles {
		tree, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return Package{}, err
		}
		loaded.Files = append(loaded.Files, tree)
	}
	config := types.Config{Importer: from}
	var err error
	loaded.Types, err = config.Check(p.ImportPath, fset, loaded.Files, loaded.Info)
	return loaded, err
}

func newInfo() *types.Info {
	return &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}
}
