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
func concurrency(p Package) (found []string) {
	for _, file := range p.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			var what string
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "go statement"
			case *ast.ImportSpec:
				if target, _ := strconv.Unquote(n.Path.Value); target == "sync" || strings.HasPrefix(target, "sync/") || strings.HasSuffix(target, "/errgroup") {
					what = "imports " + target
				}
			case *ast.Ident:
				if fn, ok := p.Info.Uses[n].(*types.Func); ok && strings.HasSuffix(fn.FullName(), ".AfterFunc") {
					what = fn.FullName()
				}
			}
			if what != "" {
				found = append(found, fmt.Sprintf("%v: %s", p.Fset.Position(n.Pos()), what))
			}
			return true
		})
	}
	return found
}
