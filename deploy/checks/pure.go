package checks

import (
	"fmt"
	"go/ast"
	"go/types"
	"strconv"
	"strings"
)

// concurrency returns where a package could do two things at once: the race
// detector would have something to find.
func concurrency(p Package) []string {
	return places(p, func(n ast.Node) string {
		switch n := n.(type) {
		case *ast.GoStmt:
			return "go statement"
		case *ast.ImportSpec:
			if target, _ := strconv.Unquote(n.Path.Value); target == "sync" || strings.HasPrefix(target, "sync/") || strings.HasSuffix(target, "/errgroup") {
				return "imports " + target
			}
		case *ast.Ident:
			if fn, ok := p.Info.Uses[n].(*types.Func); ok && strings.HasSuffix(fn.FullName(), ".AfterFunc") {
				return fn.FullName()
			}
		}
		return ""
	})
}

// starts returns where a package starts a goroutine of its own.
func starts(p Package) []string {
	return places(p, func(n ast.Node) string {
		switch n := n.(type) {
		case *ast.GoStmt:
			return "go statement"
		case *ast.SelectorExpr:
			if fn, ok := p.Info.Uses[n.Sel].(*types.Func); ok && fn.Name() == "Go" {
				return fn.FullName()
			}
		}
		return ""
	})
}

// places returns where a package has what what names; "" is nothing.
func places(p Package, what func(ast.Node) string) (found []string) {
	for _, file := range p.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			if name := what(n); name != "" {
				found = append(found, fmt.Sprintf("%v: %s", p.Fset.Position(n.Pos()), name))
			}
			return true
		})
	}
	return found
}
