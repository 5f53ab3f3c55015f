// Package battery knows which tests prove the cases of the threat model, and
// runs them.
package battery

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// Cases is how many the battery has, numbered from 1.
	Cases = 106
	// Findings is how many faults were found from outside, numbered from 1. Each
	// has tests with its number in their names.
	Findings = 30
	// Table is the file with a line for each case.
	Table = "deploy/e2e/README.md"

	programs  = "deploy/e2e"  // whose tests are of the real programs
	notBuilt  = "not built: " // and the feature, in place of or behind the tests
	tableHead = "| case | what | layer | tests |"

	// weaknesses is how many weaknesses of others' systems have a line of their own,
	// numbered from 1.
	weaknesses   = 26
	weaknessHead = "| weakness | what goes wrong | here | tests |"
)

// A Test is one test function.
type Test struct {
	Dir  string // of its package, from the root
	Name string
}

func (t Test) String() string { return t.Dir + " " + t.Name }

// Case returns the number of the case in t's name, 0 if there is none.
func (t Test) Case() int { return numbered(t.Name, "TestCase") }

// Finding returns the number of the finding in t's name, 0 if there is none.
func (t Test) Finding() int { return numbered(t.Name, "TestFound") }

// A Case is one line of the table.
type Case struct {
	Number   int
	What     string // what comes, and what must come of it
	Layer    string // what its tests run: "programs", "packages", or both
	Tests    []Test
	NotBuilt string // the feature that lacks; empty: none
}

// Parse reads the table of cases in a README.
func Parse(readme string) ([]Case, error) { return parse(readme, tableHead) }

// Weaknesses returns what is wrong with a README's table of weaknesses, given the
// tests that there are.
func Weaknesses(readme string, tests []Test) (found []string, err error) {
	lines, err := parse(readme, weaknessHead)
	for i, w := range lines {
		if w.Number != i+1 {
			found = append(found, fmt.Sprintf("weakness %d stands in the place of %d", w.Number, i+1))
		}
		if len(w.Tests) == 0 {
			found = append(found, fmt.Sprintf("weakness %d has no test", w.Number))
		}
		for _, t := range w.Tests {
			if !slices.Contains(tests, t) && t.Name[0] != '`' { // scripts have files, in backquotes
				found = append(found, fmt.Sprintf("weakness %d names %v, which there isn't", w.Number, t))
			}
		}
	}
	if len(lines) != weaknesses {
		found = append(found, fmt.Sprintf("there are lines for %d weaknesses, want %d", len(lines), weaknesses))
	}
	return found, err
}

// parse reads the table with a head.
func parse(readme, head string) ([]Case, error) {
	_, table, found := strings.Cut(readme, head+"\n|---|---|---|---|\n")
	if !found {
		return nil, fmt.Errorf("no table with the head %q", head)
	}
	var cases []Case
	for line := range strings.Lines(table) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if len(cells) != 4 {
			return nil, fmt.Errorf("%q: %d cells, want 4", line, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		number, err := strconv.Atoi(cells[0])
		if err != nil {
			return nil, fmt.Errorf("%q: no number", line)
		}
		c := Case{Number: number, What: cells[1], Layer: cells[2]}
		if err := c.parseTests(cells[3]); err != nil {
			return nil, fmt.Errorf("case %d: %w", number, err)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

// group is the tests of one package: its directory in backquotes, and names.
var group = regexp.MustCompile("^`([a-z0-9/-]+)` (.+)$")

func (c *Case) parseTests(cell string) error {
	for part := range strings.SplitSeq(cell, "; ") {
		if feature, lacks := strings.CutPrefix(part, notBuilt); lacks {
			c.NotBuilt = feature
			continue
		}
		m := group.FindStringSubmatch(part)
		if m == nil {
			return fmt.Errorf("%q is neither a directory with its tests nor %q", part, notBuilt+"…")
		}
		for name := range strings.SplitSeq(m[2], ", ") {
			c.Tests = append(c.Tests, Test{m[1], name})
		}
	}
	return nil
}

// layer returns what the tests of c run.
func (c *Case) layer() string {
	var layers []string
	for _, t := range c.Tests {
		layer := "packages"
		if t.Dir == programs {
			layer = "programs"
		}
		if !slices.Contains(layers, layer) {
			layers = append(layers, layer)
		}
	}
	slices.Sort(layers)
	slices.Reverse(layers)
	return strings.Join(layers, ", ")
}

// Check returns what is wrong with the table, given the tests that there are.
func Check(cases []Case, tests []Test) (found []string) {
	say := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for i, c := range cases {
		if c.Number != i+1 {
			say("case %d stands in the place of %d", c.Number, i+1)
		}
		if len(c.Tests) == 0 && c.NotBuilt == "" {
			say("case %d has neither a test nor the words %q", c.Number, notBuilt)
		}
		if c.Layer != c.layer() {
			say("case %d is said to be of %q, its tests are of %q", c.Number, c.Layer, c.layer())
		}
		for _, t := range c.Tests {
			if !slices.Contains(tests, t) {
				say("case %d names %v, which there isn't", c.Number, t)
			}
		}
	}
	if len(cases) != Cases {
		say("there are lines for %d cases, want %d", len(cases), Cases)
	}
	for _, t := range tests {
		if n := t.Case(); n > 0 && n <= len(cases) && !slices.Contains(cases[n-1].Tests, t) {
			say("%v is not in the line of its case", t)
		}
	}
	return found
}

// Without returns the numbers of the findings that have no test.
func Without(tests []Test) (numbers []int) {
	has := map[int]bool{}
	for _, t := range tests {
		has[t.Finding()] = true
	}
	for n := 1; n <= Findings; n++ {
		if !has[n] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// numbered returns the number behind prefix in a test's name, 0 if there is none.
func numbered(name, prefix string) int {
	rest, found := strings.CutPrefix(name, prefix)
	if !found {
		return 0
	}
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// Tests returns the tests in a file of Go, whose path is from the root.
func Tests(file string, text []byte) ([]Test, error) {
	if !strings.HasSuffix(file, "_test.go") || slices.Contains(strings.Split(file, "/"), "testdata") {
		return nil, nil
	}
	tree, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var tests []Test
	for _, decl := range tree.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) && f.Name.Name != "TestMain" {
			tests = append(tests, Test{path.Dir(file), f.Name.Name})
		}
	}
	return tests, nil
}
