package locks

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
)

func (w *walk) exprs(list []ast.Expr, held state) {
	for _, e := range list {
		w.expr(e, held, false)
	}
}

// expr looks at each field and call in e, which is written to or read.
func (w *walk) expr(e ast.Expr, held state, writing bool) {
	switch e := e.(type) {
	case nil:
	case *ast.FuncLit:
		w.literal(e, held)
	case *ast.SelectorExpr:
		w.access(e, held, writing)
		w.expr(e.X, held, false)
	case *ast.CallExpr:
		w.call(e, held)
	case *ast.IndexExpr: // what is written in a map or slice changes it
		w.expr(e.X, held, writing)
		w.expr(e.Index, held, false)
	case *ast.ParenExpr:
		w.expr(e.X, held, writing)
	case *ast.StarExpr:
		w.expr(e.X, held, false)
	case *ast.UnaryExpr:
		w.expr(e.X, held, false)
	case *ast.BinaryExpr:
		w.expr(e.X, held, false)
		w.expr(e.Y, held, false)
	case *ast.SliceExpr:
		w.exprs([]ast.Expr{e.X, e.Low, e.High, e.Max}, held)
	case *ast.TypeAssertExpr:
		w.expr(e.X, held, false)
	case *ast.KeyValueExpr:
		w.expr(e.Value, held, false)
	case *ast.CompositeLit:
		_, isStruct := w.Info.TypeOf(e).Underlying().(*types.Struct)
		for _, element := range e.Elts {
			if pair, ok := element.(*ast.KeyValueExpr); ok && !isStruct {
				w.expr(pair.Key, held, false)
			}
			w.expr(element, held, false)
		}
	}
}

// access checks that the lock of a guarded field is held.
func (w *walk) access(sel *ast.SelectorExpr, held state, writing bool) {
	field, ok := w.Info.Uses[sel.Sel].(*types.Var)
	if !ok || !field.IsField() {
		return
	}
	g, guarded := w.fields[origin(field)]
	if !guarded || w.isFresh(sel.X) {
		return
	}
	base := ""
	if g.sibling {
		base = w.base(sel) + g.path
	}
	switch forWriting, isHeld := w.holds(held, lock{g.mutex, base}); {
	case !isHeld:
		w.complain(sel.Sel.Pos(), "%s without %s", field.Name(), g.mutex.Name())
	case writing && !forWriting:
		w.complain(sel.Sel.Pos(), "%s is written with %s held for reading", field.Name(), g.mutex.Name())
	}
}

// call checks that what a function's callers hold is held.
func (w *walk) call(call *ast.CallExpr, held state) {
	fn := w.callee(call)
	for _, l := range w.required(call, fn) {
		sel, isMethod := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		if isMethod && w.isFresh(sel.X) {
			continue
		}
		if _, isHeld := w.holds(held, l); !isHeld {
			w.complain(call.Pos(), "%s is called without %s", fn.Name(), l.mutex.Name())
		}
	}
	w.expr(call.Fun, held, false)
	if fn != nil && startsLater[fn.FullName()] {
		for _, arg := range call.Args {
			if literal, ok := arg.(*ast.FuncLit); ok {
				w.alone(literal)
			} else {
				w.expr(arg, held, false)
			}
		}
		return
	}
	for i, arg := range call.Args {
		if literal, ok := arg.(*ast.FuncLit); ok {
			w.literal(literal, w.calledBack(call, fn, i, held))
			continue
		}
		first := i == 0 && isBuiltin(w.Info, call.Fun, "delete", "clear", "copy")
		w.expr(arg, held, first)
	}
}

// calledBack returns what is held where fn calls its argument i.
func (w *walk) calledBack(call *ast.CallExpr, fn *types.Func, i int, held state) state {
	held = maps.Clone(copyOf(held))
	for _, c := range w.callbacks[fn] {
		if c.argument == i {
			held[w.lockFor(call, c.guard)] = true
		}
	}
	return held
}

// startsLater are functions that call their argument when the caller may be gone.
var startsLater = map[string]bool{
	"time.AfterFunc": true, "context.AfterFunc": true, "(*sync.WaitGroup).Go": true,
	"(*golang.org/x/sync/errgroup.Group).Go": true,
}

// required returns what a call of fn needs to hold.
func (w *walk) required(call *ast.CallExpr, fn *types.Func) (locks []lock) {
	if fn == nil {
		return nil
	}
	for _, g := range w.functions[fn] {
		locks = append(locks, w.lockFor(call, g))
	}
	return locks
}

// lockFor returns the lock that a comment of the called function means.
func (w *walk) lockFor(call *ast.CallExpr, g guard) lock {
	l := lock{mutex: g.mutex}
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	switch {
	case g.parameter > 0 && g.parameter <= len(call.Args):
		l.base = w.path(call.Args[g.parameter-1]) + g.path
	case g.sibling && ok:
		l.base = w.base(sel) + g.path
	}
	return l
}

// holds reports whether l is held, and whether for writing. A lock without a base
// is whichever value's.
func (w *walk) holds(held state, l lock) (writing, ok bool) {
	if writing, ok = held[l]; ok {
		return writing, true
	}
	for other, forWriting := range held {
		if other.mutex == l.mutex && (l.base == "" || other.base == "") {
			writing, ok = writing || forWriting, true
		}
	}
	return writing, ok
}

// literal walks a function that is called where it stands, or by what it is
// given to.
func (w *walk) literal(f *ast.FuncLit, held state) {
	around := w.loops
	w.loops = nil
	w.block(f.Body.List, copyOf(held))
	w.loops = around
}

// alone walks a function that runs when its surroundings may be gone.
func (w *walk) alone(f *ast.FuncLit) {
	other := &walk{annotations: w.annotations, fresh: map[types.Object]bool{}, silent: w.silent}
	other.block(f.Body.List, state{})
}

// concurrent walks a go statement: its arguments are evaluated here.
func (w *walk) concurrent(call *ast.CallExpr, held state) {
	w.exprs(call.Args, held)
	if f, ok := call.Fun.(*ast.FuncLit); ok {
		w.alone(f)
		return
	}
	w.expr(call.Fun, held, false)
	for _, l := range w.required(call, w.callee(call)) {
		w.complain(call.Pos(), "a goroutine is started without %s", l.mutex.Name())
	}
}

// later walks a deferred call as if it stood here.
func (w *walk) later(call *ast.CallExpr, held state) {
	if _, _, ok := w.lockCall(call); !ok {
		w.expr(call, held, false)
	}
}

// callee returns the function or method that a call names.
func (w *walk) callee(call *ast.CallExpr) *types.Func {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = index.X
	}
	var ident *ast.Ident
	switch fun := fun.(type) {
	case *ast.Ident:
		ident = fun
	case *ast.SelectorExpr:
		ident = fun.Sel
	default:
		return nil
	}
	fn, ok := w.Info.Uses[ident].(*types.Func)
	if !ok {
		return nil
	}
	return fn.Origin()
}

// base returns the value that has the selected field or method, embedded fields
// on the way included.
func (w *walk) base(sel *ast.SelectorExpr) string {
	base := w.path(sel.X)
	if s := w.Info.Selections[sel]; s != nil {
		base += embedded(s.Recv(), s.Index())
	}
	return base
}

// path names the value of an expression: equal names are the same value, as long
// as nothing is assigned.
func (w *walk) path(e ast.Expr) string {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		obj := w.Info.ObjectOf(e)
		if obj == nil {
			return e.Name
		}
		return nameOf(obj)
	case *ast.SelectorExpr:
		return w.base(e) + "." + e.Sel.Name
	case *ast.StarExpr:
		return w.path(e.X)
	case *ast.UnaryExpr:
		if e.Op == token.AND {
			return w.path(e.X)
		}
	}
	return fmt.Sprintf("%T@%d", e, e.Pos())
}

func nameOf(obj types.Object) string { return fmt.Sprintf("%s@%d", obj.Name(), obj.Pos()) }

// isFresh reports whether e is a part of a value that nobody else has yet.
func (w *walk) isFresh(e ast.Expr) bool {
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			return w.fresh[w.Info.ObjectOf(x)]
		case *ast.SelectorExpr:
			e = x.X
		case *ast.UnaryExpr:
			e = x.X
		case *ast.CompositeLit:
			return true
		default:
			return false
		}
	}
}

func (w *walk) complain(pos token.Pos, format string, args ...any) {
	if w.silent == 0 {
		w.report(pos, format, args...)
	}
}

func isBuiltin(info *types.Info, fun ast.Expr, names ...string) bool {
	ident, ok := fun.(*ast.Ident)
	if !ok {
		return false
	}
	b, ok := info.Uses[ident].(*types.Builtin)
	if !ok {
		return false
	}
	for _, name := range names {
		if b.Name() == name {
			return true
		}
	}
	return false
}

func copyOf(held state) state {
	if held == nil {
		return state{}
	}
	return held
}

// origin returns the field of the generic type that v is an instance of.
func origin(v *types.Var) *types.Var { return v.Origin() }
