package battery

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestChecksCanFail gives the check tables that are wrong.
func TestChecksCanFail(t *testing.T) {
	tests := []Test{{"deploy/e2e", "TestCase01A"}, {"tunnel", "TestB"}, {"tunnel", "TestFound02B"}}
	row := func(line string) string { return tableHead + "\n|---|---|---|---|\n" + line + "\n" }
	for line, want := range map[string]string{
		"| 1 | a |  |  |": "neither a directory",
		"| 1 | a | programs | `deploy/e2e` TestCase01A |":                                 "",
		"| 1 | a | programs, packages | `deploy/e2e` TestCase01A; `tunnel` TestB |":       "",
		"| 1 | a | programs | `deploy/e2e` TestCase01A; not built: chat |":                "",
		"| 1 | a |  | not built: chat |":                                                  "is not in the line of its case",
		"| 1 | a | packages | `deploy/e2e` TestCase01A |":                                 `is said to be of "packages"`,
		"| 1 | a | programs | `deploy/e2e` TestCase01A, TestGone |":                       "TestGone, which there isn't",
		"| 1 | a | programs, packages | `tunnel` TestCase01A; `deploy/e2e` TestCase01A |": "tunnel TestCase01A, which there isn't",
		"| 2 | a | programs | `deploy/e2e` TestCase01A |":                                 "stands in the place of 1",
		"| x | a | programs | `deploy/e2e` TestCase01A |":                                 "no number",
		"| 1 | programs | `deploy/e2e` TestCase01A |":                                     "3 cells",
	} {
		cases, err := Parse(row(line))
		found := strings.Join(Check(cases, tests), "\n")
		if err != nil {
			found = err.Error()
		}
		found = strings.TrimSpace(strings.ReplaceAll(found, "there are lines for 1 cases, want 106", ""))
		if want == "" && found != "" || !strings.Contains(found, want) {
			t.Errorf("%s: %q, want %q", line, found, want)
		}
	}
	if _, err := Parse("no table"); err == nil {
		t.Error("no table is one")
	}
	if missing := Without(tests); len(missing) != Findings-1 || slices.Contains(missing, 2) {
		t.Errorf("without a test: %v", missing)
	}
}

// TestRun runs what passes, fails and is skipped, in a module of its own.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test\n\ngo 1.26\n")
	write("a/a_test.go", `package a
import "testing"
func TestGood(t *testing.T) { t.Run("within", func(t *testing.T) {}) }
func TestBad(t *testing.T) { t.Run("within", func(t *testing.T) { t.Error("for a reason") }) }
func TestLater(t *testing.T) { t.Skip("not here") }
`)
	write("b/b_test.go", "package b\nthis is no Go\n")
	var log, out strings.Builder
	r := &Runner{Root: dir, Go: "go", Log: &log}
	good, bad, later, broken := Test{"a", "TestGood"}, Test{"a", "TestBad"}, Test{"a", "TestLater"}, Test{"b", "TestX"}
	r.Run(t.Context(), []Test{good, bad, later, broken, good})
	for _, c := range []struct {
		tests    []Test
		notBuilt string
		passes   bool
		says     string
	}{
		{[]Test{good}, "", true, "  ok"},
		{[]Test{good}, "chat", true, "ok, the rest not built: chat"},
		{nil, "chat", true, "not built: chat"},
		{[]Test{good, bad}, "", false, "FAIL a TestBad"},
		{[]Test{good, later}, "", true, "skipped: a TestLater"},
		{[]Test{broken}, "", false, "FAIL b TestX"},
	} {
		out.Reset()
		if r.Report(&out, "1", "what", c.tests, c.notBuilt) != c.passes || !strings.Contains(out.String(), c.says) {
			t.Errorf("%v: %s", c.tests, out.String())
		}
	}
	if !strings.Contains(log.String(), "for a reason") {
		t.Errorf("what failed is not told:\n%s", log.String())
	}
}
