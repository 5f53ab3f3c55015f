package locks

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"testing"
)

var (
	fset   = token.NewFileSet()
	source = importer.ForCompiler(fset, "source", nil)
)

// check returns the lines of a package's body that Check objects to.
func check(t *testing.T, body string) (lines []int) {
	t.Helper()
	tree, err := parser.ParseFile(fset, "p.go", head+body, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}
	config := types.Config{Importer: source}
	pkg, err := config.Check("p", fset, []*ast.File{tree}, info)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Check(Package{fset, []*ast.File{tree}, pkg, info}) {
		lines = append(lines, v.Pos.Line-strings.Count(head, "\n"))
	}
	return lines
}

// head declares what the bodies work on.
const head = `package p
import "sync"
var _ sync.Mutex

type T struct {
	free int

	// Guarded by mu.
	mu sync.RWMutex
	a  int
	m  map[int]int

	other int
	b     int // of *T; guarded by mu: always
	parts []*part
}

// A part has no mutex.
type part struct {
	// Guarded by T.mu.
	n int
	t *T
}

// need changes a. The caller
// holds mu.
func (t *T) need() { t.a++ }

// fall is called with mu held.
func (p *part) fall() { p.n++ }

// drop is need for a caller that holds mu, which it gives up.
func (t *T) drop() { t.a++; t.mu.Unlock() }

func newT() *T { return &T{} }
func use(...any) {}
`

// TestCheck: each line that ends in "bad" is objected to, and no other.
func TestCheck(t *testing.T) {
	for name, body := range map[string]string{
		"held":               "func f(t *T) {\nt.mu.Lock()\nt.a = 1\nt.mu.Unlock()\nt.a = 2 // bad\n}",
		"until the end":      "func f(t *T) int {\nt.mu.Lock()\ndefer t.mu.Unlock()\nreturn t.a\n}",
		"not guarded":        "func f(t *T) {\nt.free, t.other = 1, 2\nt.b = 3 // bad\n}",
		"of another value":   "func f(t, u *T) {\nt.mu.Lock()\nu.a = 1 // bad\n}",
		"for reading":        "func f(t *T) {\nt.mu.RLock()\nuse(t.a)\nt.a = 1 // bad\nt.m[1] = 2 // bad\nt.a++ // bad\ndelete(t.m, 1) // bad\n}",
		"one way":            "func f(t *T, x bool) {\nif x {\nt.mu.Lock()\n}\nt.a = 1 // bad\n}",
		"a way that leaves":  "func f(t *T, x bool) {\nt.mu.Lock()\nif x {\nt.mu.Unlock()\nreturn\n}\nt.a = 1\n}",
		"panic leaves":       "func f(t *T, x bool) {\nif x {\npanic(1)\n} else {\nt.mu.Lock()\n}\nt.a = 1\n}",
		"switch":             "func f(t *T, x int) {\nt.mu.Lock()\nswitch x {\ncase 1:\nt.mu.Unlock()\ncase 2:\nt.a = 1\n}\nt.a = 2 // bad\n}",
		"switch that leaves": "func f(t *T, x int) {\nt.mu.Lock()\nswitch x {\ncase 1:\nt.mu.Unlock()\nreturn\ndefault:\nt.a = 1\n}\nt.a = 2\n}",
		"select":             "func f(t *T, c chan int) {\nselect {\ncase <-c:\nt.mu.Lock()\ncase c <- t.a: // bad\nt.mu.Lock()\n}\nt.a = 2\n}",
		"loop":               "func f(t *T) {\nt.mu.Lock()\nfor t.a > 0 {\nt.mu.Unlock()\nuse()\nt.mu.Lock()\nt.a--\n}\nt.a = 1\n}",
		"second round":       "func f(t *T) {\nt.mu.Lock()\nfor range 3 {\nt.a++ // bad\nt.mu.Unlock()\n}\n}",
		"break":              "func f(t *T) {\nfor {\nt.mu.Lock()\nif t.a > 0 {\nbreak\n}\nt.mu.Unlock()\n}\nt.a = 1\n}",
		"break that is free": "func f(t *T) {\nfor {\nt.mu.Lock()\nif t.a > 0 {\nt.mu.Unlock()\nbreak\n}\nt.mu.Unlock()\n}\nt.a = 1 // bad\n}",
		"continue":           "func f(t *T) {\nt.mu.Lock()\nfor range 3 {\nt.a++ // bad\nif t.free > 0 {\nt.mu.Unlock()\ncontinue\n}\n}\n}",
		"label":              "func f(t *T) {\nall:\nfor {\nfor {\nt.mu.Lock()\nbreak all\n}\n}\nt.a = 1\n}",
		"tried":              "func f(t *T) {\nif !t.mu.TryLock() {\nt.a = 1 // bad\nreturn\n}\nt.a = 1\n}",
		"tried among others": "func f(t *T, x bool) {\nif !x || !t.mu.TryLock() {\nreturn\n}\nt.a = 1\nif x && t.mu.TryRLock() {\nuse(t.a)\n}\n}",
		"caller":             "func f(t *T) {\nt.need() // bad\nt.mu.Lock()\nt.need()\n}",
		"caller of another":  "func f(t, u *T) {\nt.mu.Lock()\nu.need() // bad\n}",
		"caller's own":       "// g is called with mu held.\nfunc (t *T) g(u *T) {\nt.need()\nt.a++\nu.a++ // bad\n}",
		"part":               "func f(t *T, p *part) {\np.n++ // bad\np.fall() // bad\nt.mu.Lock()\np.n++\np.fall()\n}",
		"gives up":           "func f(t *T) {\nt.mu.Lock()\nt.drop()\nt.a = 1 // bad\nt.drop() // bad\n}",
		"goroutine":          "func f(t *T) {\nt.mu.Lock()\ngo func() {\nt.a = 1 // bad\n}()\ngo t.need() // bad\n}",
		"group":              "func f(t *T, w *sync.WaitGroup) {\nt.mu.Lock()\nw.Go(func() {\nt.a = 1 // bad\n})\n}",
		"literal":            "func f(t *T) {\nt.mu.Lock()\nuse(func() { t.a = 1 })\nt.mu.Unlock()\nuse(func() {\nt.a = 1 // bad\n})\n}",
		"new value":          "func f() *T {\nt := &T{a: 1}\nt.a = 2\nt.need()\nu := newT()\nu.m[1] = 2\nvar v T\nv.a = 1\nuse(u, &v)\nreturn t\n}",
		"new no more":        "func f(old *T) {\nt := &T{}\nt = old\nt.a = 1 // bad\n}",
		"embedded":           "type U struct{ T }\nfunc (u *U) f() {\nu.a = 1 // bad\nu.mu.Lock()\nu.a = 1\nu.T.a = 2\nu.need()\n}",
		"names none":         "type U struct {\nn int // guarded by lock bad\n}\n// f is called with lock held.\nfunc (u *U) f() {} // bad",
		"whose":              "type U struct {\nn int // guarded by the T's mu\n}\nfunc f(u *U, t *T) {\nu.n = 1 // bad\nt.mu.Lock()\nu.n = 1\n}",
		"all but one":        "// A U is small. Guarded by T.mu, but for n.\ntype U struct {\nn int\nk int\n}\nfunc f(u *U) {\nu.n = 1\nu.k = 1 // bad\n}",
		"methods":            "// An I does. Its methods are called with T.mu held.\ntype I interface{ do() }\nfunc f(i I, t *T) {\ni.do() // bad\nt.mu.Lock()\ni.do()\n}",
		"of the package":     "var mu sync.Mutex\n// f does. The caller holds mu.\nfunc f() {}\nfunc g() {\nf() // bad\nmu.Lock()\nf()\n}",
		"parameter":          "// g changes t, of which t.mu is held.\nfunc g(n int, t *T) { t.a = n }\nfunc f(t, u *T) {\nt.mu.Lock()\ng(1, t)\ng(1, u) // bad\n}",
		"receiver by name":   "// g does. t.mu is held.\nfunc (t *T) g() { t.a = 1 }\nfunc f(t *T) {\nt.g() // bad\nt.mu.Lock()\nt.g()\n}",
		"two":                "type U struct {\nx, y sync.Mutex\na int // guarded by x\nb int // guarded by y\n}\n// g is called with x and y held.\nfunc (u *U) g() { u.a, u.b = 1, 2 }\nfunc f(u *U) {\nu.x.Lock()\nu.g() // bad\nu.y.Lock()\nu.g()\n}",
		"called back":        "// g does. do is called with mu held, other is not.\nfunc (t *T) g(do, other func()) {}\nfunc f(t, u *T) {\nt.g(func() { t.a = 1 }, func() {\nt.a = 2 // bad\n})\nu.g(func() {\nt.a = 1 // bad\n}, nil)\n}",
		"static":             "// A U is. All but what is static is guarded by T.mu.\ntype U struct {\n// Static after construction.\na int\nb int\n\nc int\n}\nfunc f(u *U) {\nu.a, u.b = 1, 2\nu.c = 3 // bad\n}",
		"deferred":           "func f(t *T) {\nt.mu.Lock()\ndefer func() {\nt.a = 1\nt.mu.Unlock()\n}()\nt.a = 2\n}",
	} {
		var want []int
		for i, line := range strings.Split(body, "\n") {
			if strings.HasSuffix(line, "bad") {
				want = append(want, i+1)
			}
		}
		if got := check(t, body); !slices.Equal(got, want) {
			t.Errorf("%s: lines %v, want %v", name, got, want)
		}
	}
}
