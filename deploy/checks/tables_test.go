package checks

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/checks/battery"
)

// TestTablesNameWhatThereIs: each directory in floors.go holds Go files, and each
// import that Sideways allows is one.
func TestTablesNameWhatThereIs(t *testing.T) {
	dirs := map[string]bool{}
	imports := map[[2]string]bool{}
	for _, f := range repository(t) {
		if strings.HasSuffix(f.Path, ".go") && !f.isTestdata() {
			dirs[path.Dir(f.Path)] = true
			for _, m := range importLine.FindAllStringSubmatch(string(f.Text), -1) {
				imports[[2]string{path.Dir(f.Path), m[1]}] = true
			}
		}
	}
	covers := func(pattern string) bool {
		for dir := range dirs {
			if matches(pattern, dir) {
				return true
			}
		}
		return false
	}
	for _, row := range Floors {
		for _, pattern := range row.Dirs {
			if !covers(pattern) {
				t.Errorf("Floors: there is no package %s", pattern)
			}
		}
	}
	for _, s := range Sideways {
		if !imports[[2]string{s.From, Module + "/" + s.To}] {
			t.Errorf("Sideways: %s doesn't import %s", s.From, s.To)
		}
	}
	for _, r := range Restrictions {
		for _, pattern := range slices.Concat(r.Only, r.Never) {
			if !covers(pattern) {
				t.Errorf("Restrictions: there is no package %s", pattern)
			}
		}
	}
}

var (
	importLine = regexp.MustCompile(`(?m)^\s*(?:import )?(?:[\w.]+ )?"(` + regexp.QuoteMeta(Module) + `/[^"]+)"$`)
	link       = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	testName   = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z0-9]\w*$`)
	ourPath    = regexp.MustCompile(`^(?:relay|sandbox-agent|tunnel|protocol|deploy|loadtest)/[\w./-]*\w$`)
)

// TestREADMEsNameWhatThereIs: what a README links to exists; and so do, in the
// rows of its tables, the paths of the repository and the tests in backquotes.
func TestREADMEsNameWhatThereIs(t *testing.T) {
	files := repository(t)
	exists := map[string]bool{".": true}
	var tests []string
	for _, f := range files {
		for name := f.Path; name != "."; name = path.Dir(name) {
			exists[name] = true
		}
		found, err := battery.Tests(f.Path, f.Text)
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range found {
			tests = append(tests, test.Name)
		}
		for _, m := range benchmark.FindAllSubmatch(f.Text, -1) {
			tests = append(tests, string(m[1]))
		}
	}
	for _, f := range files {
		if path.Ext(f.Path) != ".md" {
			continue
		}
		for i, line := range strings.Split(string(f.Text), "\n") {
			for _, wrong := range missing(f.Path, line, exists, tests) {
				t.Error(f.Path + ":" + strconv.Itoa(i+1) + ": " + wrong)
			}
		}
	}
}

var benchmark = regexp.MustCompile(`(?m)^func (Benchmark\w+)\(`)

// missing returns what a line of the README at file names that there isn't.
func missing(file, line string, exists map[string]bool, tests []string) (wrong []string) {
	for _, m := range link.FindAllStringSubmatch(line, -1) {
		if target := path.Join(path.Dir(file), m[1]); !exists[target] && !strings.HasPrefix(target, "..") {
			wrong = append(wrong, "links to "+target+", which there isn't")
		}
	}
	if !strings.HasPrefix(line, "|") {
		return wrong
	}
	for _, m := range quoted.FindAllStringSubmatch(line, -1) {
		switch name := m[1]; {
		case testName.MatchString(name) && !slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(test, name) }):
			wrong = append(wrong, "names "+name+", which there isn't")
		case ourPath.MatchString(name) && !exists[name] && !exists[path.Join(path.Dir(file), name)]:
			wrong = append(wrong, "names "+name+", which there isn't")
		}
	}
	return wrong
}

// TestMissingIsSeen: a link, a path and a test that there isn't are found, others
// are not.
func TestMissingIsSeen(t *testing.T) {
	exists := map[string]bool{"relay/README.md": true, "relay/internal/hub": true, "deploy": true}
	for line, want := range map[string]int{
		"[relay](relay/README.md), [above](#start), [site](https://example.com/x)": 0,
		"[relay](relay/README.txt)":                      1,
		"| `relay/internal/hub` | `TestHub` |":           0,
		"| `relay/internal/hub`, `hub` | `TestH` |":      0,
		"| `relay/internal/bub` | `TestBub` |":           2,
		"`relay/internal/bub` in a sentence":             0,
		"| `relay --flag`, `relay/agent x`, `Testing` |": 0,
	} {
		if got := missing("README.md", line, exists, []string{"TestHub"}); len(got) != want {
			t.Errorf("%s: %q, want %d", line, got, want)
		}
	}
}
