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

// TestLeaksAreLookedFor: a package of the relay or of the agent that starts a
// goroutine, and has tests, has them fail when one is left.
func TestLeaksAreLookedFor(t *testing.T) {
	looked := 0
	for _, p := range packages(t) {
		if top, _, _ := strings.Cut(p.Dir, "/"); top != "relay" && top != "sandbox-agent" && top != "tunnel" && top != "protocol" {
			continue
		}
		found := starts(p)
		paths, err := filepath.Glob(filepath.Join(root, p.Dir, "*_test.go"))
		if err != nil || len(found) == 0 || len(paths) == 0 {
			continue
		}
		looks := false
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			looks = looks || strings.Contains(string(text), "goleak.VerifyTestMain(") || strings.Contains(string(text), "goleak.Find(")
		}
		if looked++; !looks {
			t.Errorf("%s: no TestMain with goleak: %s", p.Dir, found[0])
		}
	}
	if looked < 30 {
		t.Errorf("only %d packages start a goroutine", looked)
	}
}

// TestStartsAreSeen: each way to start a goroutine is found.
func TestStartsAreSeen(t *testing.T) {
	for body, want := range map[string]string{
		"func f() { go f() }": "go statement",
		"import \"sync\"\nfunc f() { var g sync.WaitGroup; g.Go(f) }":             "(*sync.WaitGroup).Go",
		"import \"sync\"\nvar g sync.WaitGroup\nfunc f() { h := g.Go; h(f) }":     "(*sync.WaitGroup).Go",
		"import \"sync\"\nfunc f() { var mu sync.Mutex; mu.Lock(); mu.Unlock() }": "",
	} {
		p := fake(t, "x", map[string]string{"a.go": "package x\n" + body})
		if got := strings.Join(starts(p), "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
