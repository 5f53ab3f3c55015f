package checks

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/deploy/checks/locks"
)

var (
	update = flag.Bool("update", false, "write what fell into the list")
	raise  = flag.Bool("raise", false, "with -update: what rose, too; the commit says why it must")
)

const listFile = "ratchet.txt"

// listHead stands above the list.
const listHead = `# What is larger than it should be. A number may only fall, and falls here, too:
# go test ./deploy/checks -run TestRatchet -update. README.md says what is counted.
`

// TestRatchet: no number is above the list's, and none is below it.
func TestRatchet(t *testing.T) {
	packages := packages(t)
	measured := Measure(packages, Lines(repository(t)))
	text, err := os.ReadFile(listFile)
	if err != nil {
		t.Fatal(err)
	}
	list, err := ParseNumbers(string(text))
	if err != nil {
		t.Fatalf("%s: %v", listFile, err)
	}
	if *update {
		if list = Lowered(list, measured); *raise {
			list = measured
		}
		write(t, list)
	}
	rose, fell := Ratchet(list, measured)
	for _, line := range rose {
		t.Errorf("%s: %s", listFile, line)
	}
	for _, line := range fell {
		t.Errorf("%s: %s: run go test ./deploy/checks -run TestRatchet -update", listFile, line)
	}
}

// TestLocks prints what doesn't keep the comments about mutexes, which
// TestRatchet counts.
func TestLocks(t *testing.T) {
	for _, p := range packages(t) {
		for _, v := range locks.Check(p.Package) {
			t.Log(v)
		}
	}
}

func write(t *testing.T, list []Number) {
	t.Helper()
	var b strings.Builder
	b.WriteString(listHead)
	sort := ""
	for _, n := range list {
		if n.Sort != sort {
			b.WriteString("\n")
			sort = n.Sort
		}
		fmt.Fprintln(&b, n)
	}
	if err := os.WriteFile(listFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// loaded is the repository's packages, type-checked once for all tests.
var loaded = sync.OnceValues(func() ([]Package, error) { return Load(root) })

func packages(t *testing.T) []Package {
	t.Helper()
	packages, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 50 {
		t.Fatalf("only %d packages: is this the repository?", len(packages))
	}
	return packages
}

// TestRatchetCanFail: a number that rises fails, and so does one that falls
// without the list, or a line for what there isn't.
func TestRatchetCanFail(t *testing.T) {
	list, err := ParseNumbers("# a comment\n\nmethods 70 a.T\narrows 3 a\nfields 31 gone.T\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		measured   []Number
		rose, fell string
	}{
		"exact":  {[]Number{{"methods", "a.T", 70}, {"arrows", "a", 3}, {"fields", "gone.T", 31}}, "", ""},
		"rises":  {[]Number{{"methods", "a.T", 71}, {"arrows", "a", 3}, {"fields", "gone.T", 31}}, "a.T: 71 methods, at most 70", ""},
		"falls":  {[]Number{{"methods", "a.T", 69}, {"arrows", "a", 3}, {"fields", "gone.T", 31}}, "", "a.T: 69 methods, 70 by the list"},
		"gone":   {[]Number{{"methods", "a.T", 70}, {"arrows", "a", 3}}, "", "gone.T: too few fields"},
		"new":    {[]Number{{"methods", "a.T", 70}, {"arrows", "a", 3}, {"fields", "gone.T", 31}, {"lines", "b", 4100}}, "b: 4100 lines, which", ""},
		"others": {[]Number{{"methods", "b.T", 70}, {"arrows", "a", 3}, {"fields", "gone.T", 31}}, "b.T: 70 methods, which", "a.T: too few methods"},
	} {
		rose, fell := Ratchet(list, row.measured)
		for _, c := range []struct {
			got  []string
			want string
		}{{rose, row.rose}, {fell, row.fell}} {
			if got := strings.Join(c.got, "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
	for _, wrong := range []string{"methods 1", "methods one a.T"} {
		if _, err := ParseNumbers(wrong); err == nil {
			t.Errorf("%q is a line", wrong)
		}
	}
	lowered := Lowered(list, []Number{{"methods", "a.T", 60}, {"arrows", "a", 4}})
	if want := []Number{{"methods", "a.T", 60}, {"arrows", "a", 3}}; !slices.Equal(lowered, want) {
		t.Errorf("lowered to %v, want %v", lowered, want)
	}
}

// TestMeasure counts in a package that is made up.
func TestMeasure(t *testing.T) {
	p := fake(t, "relay/x", map[string]string{
		"a.go": `package x
type T struct { f func(); g, h handler; n int; b }
type handler func()
func (t *T) A() { below(t) }
`,
		"b.go": `package x
type b struct{}
func below(t *T) { _ = t.n; alone() }
func (T) B() {}
`,
		"c.go": "package x\nfunc alone() {}\n",
	})
	sizes := Types(p)
	if want := (TypeSize{"relay/x.T", 2, 5}); !slices.Contains(sizes, want) {
		t.Errorf("%+v, want %+v among them", sizes, want)
	}
	if n := functionFields(p); n != 3 {
		t.Errorf("%d fields are functions, want 3", n)
	}
	if pairs := arrows(p); !slices.Equal(pairs, []Arrow{{"a.go", "b.go"}}) {
		t.Errorf("%v refer to each other", pairs)
	}
	lines := Lines([]File{{"relay/x/a.go", []byte("1\n2\n")}, {"relay/x/a_test.go", []byte("3\n")}, {"relay/x/b.go", []byte("4\n")}, {"relay/testdata/c.go", []byte("5\n")}})
	if len(lines) != 1 || lines["relay/x"] != 3 {
		t.Errorf("lines %v", lines)
	}
	numbers := Measure([]Package{p}, map[string]int{"relay/x": 4001, "relay/y": 4000})
	want := []Number{{arrowsOf, "relay", 1}, {functionsOf, "relay", 3}, {linesOf, "relay/x", 4100}}
	if !slices.Equal(numbers, want) {
		t.Errorf("%v, want %v", numbers, want)
	}
}
