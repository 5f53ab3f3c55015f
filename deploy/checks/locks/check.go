package locks

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"strings"
)

// A lock is a mutex of one value, which an expression stands for.
type lock struct {
	mutex *types.Var
	base  string // the value, as an expression; "": whichever has it
}

// A state is what is held at one place: the value says whether for writing.
// nil: the place isn't reached.
type state map[lock]bool

// both returns what is held on either way to a place.
func both(a, b state) state {
	switch {
	case a == nil:
		return maps.Clone(b)
	case b == nil:
		return maps.Clone(a)
	}
	merged := state{}
	for l, writing := range a {
		if w, held := b[l]; held {
			merged[l] = writing && w
		}
	}
	return merged
}

// A walk follows one function and the literals in it.
type walk struct {
	*annotations
	fresh  map[types.Object]bool // variables whose values nobody else has yet
	loops  []*loop               // around the present statement
	silent int                   // > 0: a loop's body is walked to learn what it leaves held
}

// A loop is a statement that break or continue leave.
type loop struct {
	label     string
	isLoop    bool  // continue is for it, too
	broken    state // both of what is held at each break
	continued state
}

func (a *annotations) checkFunc(decl *ast.FuncDecl) {
	w := &walk{annotations: a, fresh: map[types.Object]bool{}}
	held := state{}
	if fn, ok := a.Info.Defs[decl.Name].(*types.Func); ok {
		for _, g := range a.functions[fn] {
			held[lock{g.mutex, w.valueOf(g, fn)}] = true
		}
	}
	w.block(decl.Body.List, held)
}

// valueOf returns the value whose mutex a function's callers hold.
func (w *walk) valueOf(g guard, fn *types.Func) string {
	switch recv := fn.Signature().Recv(); {
	case g.parameter > 0:
		return nameOf(fn.Signature().Params().At(g.parameter-1)) + g.path
	case g.sibling && recv != nil:
		return nameOf(recv) + g.path
	}
	return ""
}

// block walks statements one after another and returns what is held behind them.
func (w *walk) block(list []ast.Stmt, held state) state {
	for _, s := range list {
		if held == nil {
			return nil // not reached, but by a label that nobody here uses
		}
		held = w.stmt(s, held)
	}
	return held
}

func (w *walk) stmt(s ast.Stmt, held state) state {
	return w.labelled(s, "", held)
}

func (w *walk) labelled(s ast.Stmt, label string, held state) state {
	switch s := s.(type) {
	case *ast.LabeledStmt:
		return w.labelled(s.Stmt, s.Label.Name, held)
	case *ast.BlockStmt:
		return w.block(s.List, held)
	case *ast.ExprStmt:
		return w.exprStmt(s, held)
	case *ast.DeferStmt:
		w.later(s.Call, held)
		return held
	case *ast.GoStmt:
		w.concurrent(s.Call, held)
		return held
	case *ast.ReturnStmt:
		w.exprs(s.Results, held)
		return nil
	case *ast.BranchStmt:
		return w.branch(s, held)
	case *ast.IfStmt:
		return w.ifStmt(s, held)
	case *ast.ForStmt:
		if s.Init != nil {
			held = w.stmt(s.Init, held)
		}
		return w.loop(label, held, s.Cond == nil, func(held state) state {
			w.expr(s.Cond, held, false)
			if held = w.block(s.Body.List, held); s.Post != nil && held != nil {
				held = w.stmt(s.Post, held)
			}
			return held
		})
	case *ast.RangeStmt:
		w.expr(s.X, held, false)
		return w.loop(label, held, false, func(held state) state {
			w.expr(s.Key, held, true)
			w.expr(s.Value, held, true)
			return w.block(s.Body.List, held)
		})
	case *ast.SwitchStmt:
		if s.Init != nil {
			held = w.stmt(s.Init, held)
		}
		w.expr(s.Tag, held, false)
		return w.clauses(label, s.Body, held)
	case *ast.TypeSwitchStmt:
		if s.Init != nil {
			held = w.stmt(s.Init, held)
		}
		held = w.stmt(s.Assign, held)
		return w.clauses(label, s.Body, held)
	case *ast.SelectStmt:
		return w.clauses(label, s.Body, held)
	}
	w.simple(s, held)
	return held
}

// simple walks a statement that neither locks nor branches.
func (w *walk) simple(s ast.Stmt, held state) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		w.exprs(s.Rhs, held)
		for i, left := range s.Lhs {
			w.expr(left, held, true)
			if len(s.Rhs) == len(s.Lhs) {
				w.note(left, s.Rhs[i])
			}
		}
	case *ast.IncDecStmt:
		w.expr(s.X, held, true)
	case *ast.SendStmt:
		w.expr(s.Chan, held, false)
		w.expr(s.Value, held, false)
	case *ast.DeclStmt:
		if decl, ok := s.Decl.(*ast.GenDecl); ok {
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.ValueSpec); ok {
					w.declare(spec, held)
				}
			}
		}
	}
}

func (w *walk) declare(spec *ast.ValueSpec, held state) {
	w.exprs(spec.Values, held)
	for i, name := range spec.Names {
		if i < len(spec.Values) {
			w.note(name, spec.Values[i])
		} else if obj := w.Info.Defs[name]; obj != nil && len(spec.Values) == 0 {
			_, isPointer := obj.Type().Underlying().(*types.Pointer)
			w.fresh[obj] = !isPointer
		}
	}
}

// note remembers a variable whose value has just been made.
func (w *walk) note(left, right ast.Expr) {
	ident, ok := left.(*ast.Ident)
	if !ok {
		return
	}
	obj := w.Info.Defs[ident]
	if obj == nil {
		obj = w.Info.Uses[ident]
	}
	if obj != nil {
		w.fresh[obj] = w.makes(right)
	}
}

// makes reports whether an expression is a value that nobody else has: a
// literal, or what a constructor of the package returns.
func (w *walk) makes(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CompositeLit:
		return true
	case *ast.UnaryExpr:
		_, literal := e.X.(*ast.CompositeLit)
		return e.Op == token.AND && literal
	case *ast.CallExpr:
		ident, ok := ast.Unparen(e.Fun).(*ast.Ident)
		return ok && strings.HasPrefix(strings.ToLower(ident.Name), "new")
	}
	return false
}

func (w *walk) exprStmt(s *ast.ExprStmt, held state) state {
	call, ok := ast.Unparen(s.X).(*ast.CallExpr)
	if !ok {
		w.expr(s.X, held, false)
		return held
	}
	if l, verb, ok := w.lockCall(call); ok {
		held = maps.Clone(held)
		switch verb {
		case "Lock":
			held[l] = true
		case "RLock":
			held[l] = held[l]
		case "Unlock", "RUnlock":
			delete(held, l)
		}
		return held
	}
	w.expr(s.X, held, false)
	fn := w.callee(call)
	switch {
	case w.ends(call, fn):
		return nil
	case w.releases[fn]:
		held = maps.Clone(held)
		for _, l := range w.required(call, fn) {
			delete(held, l)
		}
	}
	return held
}

// lockCall returns the lock that a call of a mutex's method is about.
func (w *walk) lockCall(call *ast.CallExpr) (l lock, verb string, ok bool) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || !isMutex(w.Info.TypeOf(sel.X)) {
		return lock{}, "", false
	}
	l, ok = w.lockOf(sel.X)
	return l, sel.Sel.Name, ok
}

func (w *walk) lockOf(e ast.Expr) (lock, bool) {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		v, ok := w.Info.Uses[e].(*types.Var)
		return lock{v, ""}, ok
	case *ast.SelectorExpr:
		v, ok := w.Info.Uses[e.Sel].(*types.Var)
		return lock{v, w.base(e)}, ok
	}
	return lock{}, false
}

// ends reports whether a call doesn't return.
func (w *walk) ends(call *ast.CallExpr, fn *types.Func) bool {
	if ident, ok := call.Fun.(*ast.Ident); ok && ident.Name == "panic" {
		return true
	}
	return fn != nil && (fn.FullName() == "os.Exit" || fn.FullName() == "runtime.Goexit")
}

func (w *walk) ifStmt(s *ast.IfStmt, held state) state {
	if s.Init != nil {
		held = w.stmt(s.Init, held)
	}
	w.expr(s.Cond, held, false)
	yes, no := maps.Clone(held), maps.Clone(held)
	w.tried(s.Cond, yes, no)
	yes = w.block(s.Body.List, yes)
	if s.Else != nil {
		no = w.stmt(s.Else, no)
	}
	return both(yes, no)
}

// tried adds what a TryLock in a condition has locked when it is true, and when
// it is false.
func (w *walk) tried(cond ast.Expr, yes, no state) {
	switch e := ast.Unparen(cond).(type) {
	case *ast.CallExpr:
		if l, verb, ok := w.lockCall(e); ok && strings.HasPrefix(verb, "Try") {
			yes[l] = verb == "TryLock"
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			w.tried(e.X, no, yes)
		}
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND: // true: both are
			w.tried(e.X, yes, state{})
			w.tried(e.Y, yes, state{})
		case token.LOR: // false: both are
			w.tried(e.X, state{}, no)
			w.tried(e.Y, state{}, no)
		}
	}
}

// loop walks the body of a loop: first to learn what each round leaves held, then
// with what is held in every round.
func (w *walk) loop(label string, held state, endless bool, body func(state) state) state {
	l := &loop{label: label, isLoop: true}
	w.loops = append(w.loops, l)
	w.silent++
	again := body(maps.Clone(held))
	w.silent--
	if again = both(again, l.continued); again != nil {
		held = both(held, again)
	}
	l.broken, l.continued = nil, nil
	body(maps.Clone(held))
	w.loops = w.loops[:len(w.loops)-1]
	if endless {
		return l.broken
	}
	return both(held, l.broken)
}

// clauses walks the clauses of a switch or select.
func (w *walk) clauses(label string, body *ast.BlockStmt, held state) state {
	l := &loop{label: label}
	w.loops = append(w.loops, l)
	var after state
	all := false
	for _, s := range body.List {
		within := maps.Clone(held)
		switch c := s.(type) {
		case *ast.CaseClause:
			all = all || c.List == nil
			w.exprs(c.List, within)
			within = w.block(c.Body, within)
		case *ast.CommClause:
			all = true
			if c.Comm != nil {
				within = w.stmt(c.Comm, within)
			}
			within = w.block(c.Body, within)
		}
		after = both(after, within)
	}
	w.loops = w.loops[:len(w.loops)-1]
	after = both(after, l.broken)
	if !all {
		after = both(after, held)
	}
	return after
}

func (w *walk) branch(s *ast.BranchStmt, held state) state {
	for i := len(w.loops) - 1; i >= 0; i-- {
		l := w.loops[i]
		switch {
		case s.Label != nil && l.label != s.Label.Name:
			continue
		case s.Tok == token.BREAK:
			l.broken = both(l.broken, held)
			return nil
		case s.Tok == token.CONTINUE && l.isLoop:
			l.continued = both(l.continued, held)
			return nil
		}
	}
	if s.Tok == token.FALLTHROUGH {
		return held
	}
	return nil
}
