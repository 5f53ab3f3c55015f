package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPurePackages: what make test runs without the race detector exists and has
// neither a goroutine nor a lock.
func TestPurePackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	pure := regexp.MustCompile(`(?m)^PURE := ((?:.*\\\n)*.*)$`).FindStringSubmatch(string(text))
	if pure == nil {
		t.Fatal("the Makefile has no PURE")
	}
	dirs := strings.Fields(strings.ReplaceAll(pure[1], "\\\n", " "))
	if len(dirs) < 10 {
		t.Errorf("only %q are pure", dirs)
	}
	all := packages(t)
	for _, dir := range dirs {
		i := slices.IndexFunc(all, func(p Package) bool { return p.Dir == dir })
		if i < 0 {
			t.Errorf("PURE: there is no package %s", dir)
			continue
		}
		for _, what := range concurrency(all[i]) {
			t.Errorf("PURE: %s: %s", dir, what)
		}
	}
}

// TestConcurrencyIsSeen: each way to run two things at once is found.
func TestConcurrencyIsSeen(t *testing.T) {
	for body, want := range map[string]string{
		"func f() { go f() }":                         "go statement",
		"import \"sync\"\nvar once sync.Once":         "imports sync",
		"import \"sync/atomic\"\nvar n atomic.Int64":  "imports sync/atomic",
		"import \"time\"\nvar _ = time.AfterFunc":     "time.AfterFunc",
		"import \"time\"\nfunc f() { time.Sleep(1) }": "",
	} {
		p := fake(t, "x", map[string]string{"a.go": "package x\n" + body})
		if got := strings.Join(concurrency(p), "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
