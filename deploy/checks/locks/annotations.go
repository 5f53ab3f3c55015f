package locks

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// The sentences that name a mutex: "mu", "feed.mu", "the ledger's mu".
var (
	mutexName  = `(?:the (\w+)'s )?(\w+(?:\.\w+)?)`
	guardedBy  = regexp.MustCompile(`\b[Gg]uarded by ` + mutexName)
	callerHas  = regexp.MustCompile(`\b[Tt]he caller holds ` + mutexName)
	calledWith = regexp.MustCompile(`\b(?:[Cc]alled|is \w+) with ` + mutexName + `(?: and \w+)? held`)
	andWith    = regexp.MustCompile(`\b[Cc]alled with \w+ and ` + mutexName + ` held`)
	callsBack  = regexp.MustCompile(`\b(\w+)(?:, which)? is called with ` + mutexName + ` held`)
	isHeld     = regexp.MustCompile(`\b()(\w+\.\w+) is held\b`) // of the receiver or a parameter, by its name
	givesUp    = regexp.MustCompile(`\bfor a caller that holds ` + mutexName + `, which it (?:gives up|releases)`)
	allMethods = regexp.MustCompile(`\b[Ii]ts methods are called with ` + mutexName + ` held`)
	exceptFor  = regexp.MustCompile(`\bbut for ([\w, ]+)`)
)

// A typeDoc is what the comment of a type says of all its fields and methods.
type typeDoc struct {
	fields, methods string
	except          []string
}

func readAnnotations(p Package) *annotations {
	a := &annotations{
		Package: p, fields: map[*types.Var]guard{}, functions: map[*types.Func][]guard{},
		releases: map[*types.Func]bool{}, callbacks: map[*types.Func][]callback{}, docs: map[*types.TypeName]*typeDoc{},
	}
	a.eachType(a.readType)
	a.eachType(a.readInterface)
	for _, file := range p.Files {
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				a.readFunc(fn)
			}
		}
	}
	return a
}

func (a *annotations) eachType(read func(name *types.TypeName, doc string, expr ast.Expr)) {
	for _, file := range a.Files {
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, s := range decl.Specs {
				if spec, ok := s.(*ast.TypeSpec); ok {
					doc := text(spec.Doc)
					if doc == "" && len(decl.Specs) == 1 {
						doc = text(decl.Doc)
					}
					if name, ok := a.Info.Defs[spec.Name].(*types.TypeName); ok {
						read(name, doc, spec.Type)
					}
				}
			}
			return true
		})
	}
}

// readType reads the comments of a struct. A comment that begins with "Guarded
// by" holds for the lines up to the next empty one, any other for its field.
func (a *annotations) readType(name *types.TypeName, doc string, expr ast.Expr) {
	d := &typeDoc{methods: find(allMethods, doc)}
	a.docs[name] = d
	tree, ok := expr.(*ast.StructType)
	if !ok {
		return
	}
	d.fields = find(guardedBy, doc)
	if m := exceptFor.FindStringSubmatch(doc); m != nil {
		d.except = strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' })
	}
	heading, last := "", 0
	for _, field := range tree.Fields.List {
		first := a.Fset.Position(field.Pos()).Line
		if field.Doc != nil {
			first = a.Fset.Position(field.Doc.Pos()).Line
		}
		if first > last+1 {
			heading = d.fields
		}
		last = a.Fset.Position(field.End()).Line
		own := find(guardedBy, text(field.Comment))
		if own == "" {
			own = find(guardedBy, text(field.Doc))
			switch first, _, _ := strings.Cut(text(field.Doc), " "); first {
			case "Guarded":
				heading = own
			case "Static", "Owned":
				heading = ""
			}
		}
		if own == "" {
			own = heading
		}
		if own != "" {
			a.guardField(name, field, own, d.except)
		}
	}
}

func (a *annotations) guardField(owner *types.TypeName, field *ast.Field, mutex string, except []string) {
	for _, ident := range field.Names {
		v, ok := a.Info.Defs[ident].(*types.Var)
		if !ok || synchronised(v.Type()) || slices.Contains(except, v.Name()) {
			continue
		}
		g, ok := a.resolve(owner, mutex)
		if !ok {
			a.report(ident.Pos(), "%s is guarded by %s, which names no mutex", v.Name(), mutex)
			continue
		}
		a.fields[v] = g
	}
}

// readInterface notes what holds for the methods of an interface.
func (a *annotations) readInterface(name *types.TypeName, _ string, expr ast.Expr) {
	methods := a.docs[name].methods
	tree, ok := expr.(*ast.InterfaceType)
	if !ok || methods == "" {
		return
	}
	for _, m := range tree.Methods.List {
		for _, ident := range m.Names {
			if fn, ok := a.Info.Defs[ident].(*types.Func); ok {
				a.require(fn, name, methods)
			}
		}
	}
}

func (a *annotations) readFunc(decl *ast.FuncDecl) {
	fn, ok := a.Info.Defs[decl.Name].(*types.Func)
	if !ok {
		return
	}
	owner := receiver(fn)
	doc := text(decl.Doc)
	if mutex := find(givesUp, doc); mutex != "" {
		a.releases[fn] = true
		a.require(fn, owner, mutex)
	}
	doc = a.readCallbacks(fn, owner, doc)
	for _, sentence := range []*regexp.Regexp{callerHas, calledWith, andWith, isHeld} {
		for _, m := range sentence.FindAllStringSubmatch(doc, -1) {
			if !a.requireOfParameter(fn, join(m)) {
				a.require(fn, owner, join(m))
			}
		}
	}
	if d := a.docs[owner]; owner != nil && d != nil && d.methods != "" {
		a.require(fn, owner, d.methods)
	}
}

func (a *annotations) require(fn *types.Func, owner *types.TypeName, mutex string) {
	if mutex == "no" || mutex == "nothing" { // "The caller holds no feed."
		return
	}
	g, ok := a.resolve(owner, mutex)
	if !ok {
		a.report(fn.Pos(), "%s is called with %s held, which names no mutex", fn.Name(), mutex)
		return
	}
	if !slices.Contains(a.functions[fn], g) {
		a.functions[fn] = append(a.functions[fn], g)
	}
}

// readCallbacks notes which functions fn calls with a mutex held, and returns doc
// without those sentences.
func (a *annotations) readCallbacks(fn *types.Func, owner *types.TypeName, doc string) string {
	return callsBack.ReplaceAllStringFunc(doc, func(sentence string) string {
		m := callsBack.FindStringSubmatch(sentence)
		for i := range fn.Signature().Params().Len() {
			if fn.Signature().Params().At(i).Name() != m[1] {
				continue
			}
			if g, ok := a.resolve(owner, join(m[1:])); ok {
				a.callbacks[fn] = append(a.callbacks[fn], callback{i, g})
				return ""
			}
		}
		return sentence
	})
}

// requireOfParameter is require for "u.mu" where u is the receiver or a parameter.
func (a *annotations) requireOfParameter(fn *types.Func, mutex string) bool {
	of, name, _ := strings.Cut(mutex, ".")
	if recv := fn.Signature().Recv(); recv != nil && recv.Name() == of {
		a.require(fn, namedOf(recv.Type()), name)
		return true
	}
	for i := range fn.Signature().Params().Len() {
		param := fn.Signature().Params().At(i)
		if v, path := a.promoted(namedOf(param.Type()), name); param.Name() == of && v != nil {
			a.functions[fn] = append(a.functions[fn], guard{v, true, path, i + 1})
			return true
		}
	}
	return false
}

// resolve finds the mutex that a comment at owner names. A plain name is a field
// of owner; or the mutex of that name which guards owner's fields; or that of the
// one type which has an owner in it; or a variable of the package. "feed.mu" is
// a field of owner's field feed, or of the type feed.
func (a *annotations) resolve(owner *types.TypeName, name string) (guard, bool) {
	if of, field, qualified := strings.Cut(name, "."); qualified {
		mutex := a.mutexOf(a.typeNamed(owner, of), field)
		return guard{mutex: mutex}, mutex != nil
	}
	if mutex, path := a.promoted(owner, name); mutex != nil {
		return guard{mutex, true, path, 0}, true
	}
	if owner != nil {
		for _, of := range []func(*types.TypeName, string) *types.Var{a.guardOf, a.holderOf} {
			if mutex := of(owner, name); mutex != nil {
				return guard{mutex: mutex}, true
			}
		}
	}
	v, ok := a.Types.Scope().Lookup(name).(*types.Var)
	return guard{mutex: v}, ok && isMutex(v.Type())
}

// mutexOf returns the mutex of that name among the fields of owner, promoted ones
// too.
func (a *annotations) mutexOf(owner *types.TypeName, name string) *types.Var {
	mutex, _ := a.promoted(owner, name)
	return mutex
}

// promoted is mutexOf that also returns the embedded fields on the way.
func (a *annotations) promoted(owner *types.TypeName, name string) (mutex *types.Var, path string) {
	if owner == nil {
		return nil, ""
	}
	found, index, _ := types.LookupFieldOrMethod(owner.Type(), true, a.Types, name)
	if v, ok := found.(*types.Var); ok && isMutex(v.Type()) {
		return v, embedded(owner.Type(), index)
	}
	return nil, ""
}

// embedded returns the fields that a selection passes by before its last one.
func embedded(t types.Type, index []int) (path string) {
	for _, i := range index[:len(index)-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		s, ok := t.Underlying().(*types.Struct)
		if !ok {
			return path
		}
		path += "." + s.Field(i).Name()
		t = s.Field(i).Type()
	}
	return path
}

// typeNamed returns the type of owner's field of that name, or the type of that
// name in any letter case.
func (a *annotations) typeNamed(owner *types.TypeName, name string) *types.TypeName {
	if owner != nil {
		if s, ok := owner.Type().Underlying().(*types.Struct); ok {
			for f := range s.Fields() {
				if f.Name() == name {
					return namedOf(f.Type())
				}
			}
		}
	}
	scope := a.Types.Scope()
	for _, other := range scope.Names() {
		if t, ok := scope.Lookup(other).(*types.TypeName); ok && strings.EqualFold(other, name) {
			return t
		}
	}
	return nil
}

// guardOf returns the one mutex of that name which guards fields of owner.
func (a *annotations) guardOf(owner *types.TypeName, name string) (mutex *types.Var) {
	s, ok := owner.Type().Underlying().(*types.Struct)
	if !ok {
		return nil
	}
	for f := range s.Fields() {
		if g := a.fields[f]; g.mutex != nil && g.mutex.Name() == name {
			if mutex != nil && mutex != g.mutex {
				return nil
			}
			mutex = g.mutex
		}
	}
	return mutex
}

// holderOf returns the mutex of that name in the one type that has an owner in
// it.
func (a *annotations) holderOf(owner *types.TypeName, name string) (mutex *types.Var) {
	scope := a.Types.Scope()
	for _, other := range scope.Names() {
		t, ok := scope.Lookup(other).(*types.TypeName)
		if !ok {
			continue
		}
		s, ok := t.Type().Underlying().(*types.Struct)
		if !ok || a.mutexOf(t, name) == nil {
			continue
		}
		for f := range s.Fields() {
			if slices.Contains(parts(f.Type()), owner) {
				if m := a.mutexOf(t, name); mutex != nil && mutex != m {
					return nil
				} else {
					mutex = m
				}
			}
		}
	}
	return mutex
}

// parts returns the named types that t is made of: itself, or what a pointer, a
// slice or a map of it has.
func parts(t types.Type) []*types.TypeName {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		return []*types.TypeName{t.Obj()}
	case *types.Pointer:
		return parts(t.Elem())
	case *types.Slice:
		return parts(t.Elem())
	case *types.Array:
		return parts(t.Elem())
	case *types.Map:
		return append(parts(t.Key()), parts(t.Elem())...)
	}
	return nil
}

func namedOf(t types.Type) *types.TypeName {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Obj()
	}
	return nil
}

func receiver(fn *types.Func) *types.TypeName {
	if recv := fn.Signature().Recv(); recv != nil {
		return namedOf(recv.Type())
	}
	return nil
}

// isMutex reports whether t is one of package sync's, or a pointer to one.
func isMutex(t types.Type) bool {
	n := namedOf(t)
	return n != nil && n.Pkg() != nil && n.Pkg().Path() == "sync" && (n.Name() == "Mutex" || n.Name() == "RWMutex")
}

// synchronised reports whether t needs no mutex.
func synchronised(t types.Type) bool {
	n := namedOf(t)
	return n != nil && n.Pkg() != nil && (n.Pkg().Path() == "sync/atomic" || n.Pkg().Path() == "sync")
}

// text returns a comment as one line.
func text(doc *ast.CommentGroup) string {
	return strings.Join(strings.Fields(doc.Text()), " ")
}

// find returns the mutex that a sentence in doc names: "mu", or "feed.mu" also
// for "the feed's mu"; "" without such a sentence.
func find(sentence *regexp.Regexp, doc string) string {
	return join(sentence.FindStringSubmatch(doc))
}

func join(m []string) string {
	switch {
	case m == nil:
		return ""
	case m[1] != "":
		return m[1] + "." + m[2]
	}
	return m[2]
}
