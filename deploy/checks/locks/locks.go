// Package locks verifies what comments say of mutexes: that a field is guarded
// by one, and that a function is called with one held.
package locks

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// A Package is one package with its types.
type Package struct {
	Fset  *token.FileSet
	Files []*ast.File
	Types *types.Package
	Info  *types.Info // needs Defs, Uses, Selections and Types
}

// A Violation is one place where a comment isn't kept.
type Violation struct {
	Pos  token.Position
	What string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s:%d: %s", v.Pos.Filename, v.Pos.Line, v.What)
}

// Check returns what doesn't keep the comments of p, in the order of the files.
// Each line counts once.
func Check(p Package) []Violation {
	a := readAnnotations(p)
	for _, file := range p.Files {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				a.checkFunc(fn)
			}
		}
	}
	slices.SortStableFunc(a.found, func(x, y Violation) int {
		if x.Pos.Filename != y.Pos.Filename {
			if x.Pos.Filename < y.Pos.Filename {
				return -1
			}
			return 1
		}
		return x.Pos.Line - y.Pos.Line
	})
	return slices.CompactFunc(a.found, func(x, y Violation) bool {
		return x.Pos.Filename == y.Pos.Filename && x.Pos.Line == y.Pos.Line
	})
}

// A guard is the mutex that a comment names.
type guard struct {
	mutex *types.Var
	// sibling says that the mutex stands in the same struct as the field, or in
	// the receiver of the method: the lock of another value doesn't count.
	sibling bool
	path    string // the embedded fields between it and that struct
	// parameter, from 1, says that the struct is that argument of a function.
	parameter int
}

// A callback is an argument that a function calls with a mutex held.
type callback struct {
	argument int
	guard    guard
}

// annotations is what the comments of a package say.
type annotations struct {
	Package
	fields    map[*types.Var]guard    // guarded fields
	functions map[*types.Func][]guard // what their callers hold
	releases  map[*types.Func]bool    // they give up what their callers hold
	callbacks map[*types.Func][]callback
	docs      map[*types.TypeName]*typeDoc
	found     []Violation
}

func (a *annotations) report(pos token.Pos, format string, args ...any) {
	a.found = append(a.found, Violation{a.Fset.Position(pos), fmt.Sprintf(format, args...)})
}
