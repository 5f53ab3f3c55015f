package checks

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/deploy/checks/locks"
)

// What a type and a package may have. The list of those that have more names
// each with its number.
const (
	maxMethods = 60
	maxFields  = 30
	maxLines   = 4000
)

// The sorts of numbers in the list.
const (
	methodsOf   = "methods"   // of a type with more than maxMethods
	fieldsOf    = "fields"    // of a struct with more than maxFields
	linesOf     = "lines"     // of a package with more than maxLines, in hundreds, rounded up, without tests
	functionsOf = "functions" // fields that are functions, in the structs of a top folder
	arrowsOf    = "arrows"    // pairs of files in one package that refer to each other, of a top folder
	locksOf     = "locks"     // lines of a package that don't keep what comments say of its mutexes
)

// A Number is one line of the list: nothing may have more than it says.
type Number struct {
	Sort string
	Of   string // a type with the directory of its package, a package, or a folder
	N    int
}

func (n Number) String() string { return fmt.Sprintf("%-9s %5d  %s", n.Sort, n.N, n.Of) }

// ParseNumbers reads the list. Empty lines and those that begin with # say
// nothing.
func ParseNumbers(list string) (numbers []Number, err error) {
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%q: want a sort, a number and a name", line)
		}
		n, err := strconv.Atoi(fields[1])
		if err != nil {
			return nil, fmt.Errorf("%q: no number", line)
		}
		numbers = append(numbers, Number{fields[0], fields[2], n})
	}
	return numbers, nil
}

// Ratchet returns how the numbers that were measured differ from the list: what
// rose, and what fell without the list.
func Ratchet(list, measured []Number) (rose, fell []string) {
	find := func(in []Number, n Number) (int, bool) {
		i := slices.IndexFunc(in, func(other Number) bool { return other.Sort == n.Sort && other.Of == n.Of })
		if i < 0 {
			return 0, false
		}
		return in[i].N, true
	}
	for _, m := range measured {
		allowed, known := find(list, m)
		switch {
		case !known:
			rose = append(rose, fmt.Sprintf("%s: %d %s, which the list doesn't know", m.Of, m.N, m.Sort))
		case m.N > allowed:
			rose = append(rose, fmt.Sprintf("%s: %d %s, at most %d by the list", m.Of, m.N, m.Sort, allowed))
		case m.N < allowed:
			fell = append(fell, fmt.Sprintf("%s: %d %s, %d by the list", m.Of, m.N, m.Sort, allowed))
		}
	}
	for _, l := range list {
		if _, there := find(measured, l); !there {
			fell = append(fell, fmt.Sprintf("%s: too few %s for a line in the list, or it doesn't exist", l.Of, l.Sort))
		}
	}
	return rose, fell
}

// Lowered returns the list with what fell, and without what no longer belongs
// there. What rose stays as it was.
func Lowered(list, measured []Number) []Number {
	var lowered []Number
	for _, l := range list {
		for _, m := range measured {
			if m.Sort == l.Sort && m.Of == l.Of {
				lowered = append(lowered, Number{l.Sort, l.Of, min(l.N, m.N)})
			}
		}
	}
	return lowered
}

// Measure returns the numbers of the packages that belong in the list, sorted.
func Measure(packages []Package, lines map[string]int) []Number {
	var numbers []Number
	folders := map[Number]int{}
	for _, p := range packages {
		for _, t := range Types(p) {
			if t.Methods > maxMethods {
				numbers = append(numbers, Number{methodsOf, t.Name, t.Methods})
			}
			if t.Fields > maxFields {
				numbers = append(numbers, Number{fieldsOf, t.Name, t.Fields})
			}
		}
		folders[Number{Sort: functionsOf, Of: folder(p.Dir)}] += functionFields(p)
		folders[Number{Sort: arrowsOf, Of: folder(p.Dir)}] += len(arrows(p))
		if n := len(locks.Check(p.Package)); n > 0 {
			numbers = append(numbers, Number{locksOf, p.Dir, n})
		}
	}
	for dir, n := range lines {
		if n > maxLines {
			numbers = append(numbers, Number{linesOf, dir, (n + 99) / 100 * 100})
		}
	}
	for number, n := range folders {
		if number.N = n; n > 0 {
			numbers = append(numbers, number)
		}
	}
	slices.SortFunc(numbers, func(a, b Number) int {
		return cmp.Or(strings.Compare(a.Sort, b.Sort), strings.Compare(a.Of, b.Of))
	})
	return numbers
}

// folder returns the part of the tree that dir belongs to.
func folder(dir string) string {
	top, rest, _ := strings.Cut(dir, "/")
	if top == "deploy" {
		next, _, _ := strings.Cut(rest, "/")
		return path.Join(top, next)
	}
	return top
}

// A TypeSize is how large a type is.
type TypeSize struct {
	Name            string // with the directory of its package
	Methods, Fields int
}

// Types returns the named types of a package.
func Types(p Package) (sizes []TypeSize) {
	scope := p.Types.Scope()
	for _, name := range scope.Names() {
		t, ok := scope.Lookup(name).(*types.TypeName)
		if !ok || t.IsAlias() {
			continue
		}
		size := TypeSize{Name: p.Dir + "." + name}
		if named, ok := t.Type().(*types.Named); ok {
			size.Methods = named.NumMethods()
		}
		if s, ok := t.Type().Underlying().(*types.Struct); ok {
			size.Fields = s.NumFields()
		}
		sizes = append(sizes, size)
	}
	return sizes
}

// functionFields counts the fields of p's structs that are functions.
func functionFields(p Package) (n int) {
	for _, file := range p.Files {
		ast.Inspect(file, func(node ast.Node) bool {
			s, ok := node.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				if _, is := p.Info.TypeOf(field.Type).Underlying().(*types.Signature); is {
					n += max(1, len(field.Names))
				}
			}
			return true
		})
	}
	return n
}

// An Arrow is a pair of files that refer to each other: one of the two
// references runs back up, whichever file is drawn above.
type Arrow struct{ A, B string }

// arrows returns the pairs of p's files that refer to each other's types,
// functions, methods, fields, variables or constants.
func arrows(p Package) (pairs []Arrow) {
	refers := map[Arrow]bool{}
	name := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	for _, file := range p.Files {
		from := name(file.Pos())
		ast.Inspect(file, func(n ast.Node) bool {
			if ident, ok := n.(*ast.Ident); ok {
				if obj := p.Info.Uses[ident]; obj != nil && obj.Pkg() == p.Types && obj.Pos().IsValid() {
					refers[Arrow{from, name(obj.Pos())}] = true
				}
			}
			return true
		})
	}
	for a := range refers {
		if a.A < a.B && refers[Arrow{a.B, a.A}] {
			pairs = append(pairs, a)
		}
	}
	return pairs
}

// Lines returns the lines of each package in files, without tests.
func Lines(files []File) map[string]int {
	lines := map[string]int{}
	for _, f := range files {
		if strings.HasSuffix(f.Path, ".go") && !f.isTest() && !f.isTestdata() {
			lines[path.Dir(f.Path)] += strings.Count(string(f.Text), "\n")
		}
	}
	return lines
}

// Largest returns the n types with the most of what size counts.
func Largest(packages []Package, n int, size func(TypeSize) int) []TypeSize {
	var all []TypeSize
	for _, p := range packages {
		all = append(all, Types(p)...)
	}
	slices.SortFunc(all, func(a, b TypeSize) int {
		return cmp.Or(size(b)-size(a), strings.Compare(a.Name, b.Name))
	})
	return all[:min(n, len(all))]
}
