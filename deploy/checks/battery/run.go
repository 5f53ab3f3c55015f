package battery

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Long are the flags of the long form, by package. What takes no flag is whole as
// it is.
var Long = map[string][]string{
	"tunnel":                          {"-tunnel.lossy=10m"},
	"relay/internal/hub":              {"-hub.ops=100000"},
	"relay/internal/turn":             {"-turn.rounds=1000000"},
	"sandbox-agent/internal/terminal": {"-terminal.ops=100000", "-terminal.revokes=1000000"},
	"sandbox-agent/internal/executor": {"-attempts=100000"},
	"sandbox-agent/internal/link":     {"-attempts=100000"},
	"sandbox-agent/internal/ledger":   {"-kills=200"},
	"sandbox-agent/internal/redact":   {"-redact.mib=100"},
	"sandbox-agent/internal/files/workspace": {
		"-workspace.race=60s",
	},
	"deploy/e2e": {
		"-security.long", "-chaos.kills=1000", "-flow.rate=8000", "-flow.viewers=99", "-typing.keys=10000", "-typing.cuts=100", "-join.viewers=1000", "-approvals.kills=100",
	},
}

// Timeouts of one package. They end what hangs, also on a machine that is slow.
const (
	shortTimeout = 30 * time.Minute
	longTimeout  = 6 * time.Hour
)

// A Runner runs tests, the packages' and the programs' at the same time.
type Runner struct {
	Root string // of the repository
	Go   string
	Long bool
	Log  io.Writer // what failed said

	mu      sync.Mutex
	results map[Test]result // guarded by mu
	lost    []string        // guarded by mu: packages that could not be tested
}

type result struct {
	action string // "pass", "fail" or "skip"
	took   time.Duration
}

// Run runs tests, each once.
func (r *Runner) Run(ctx context.Context, tests []Test) {
	r.mu.Lock()
	r.results = map[Test]result{}
	r.mu.Unlock()
	byDir := map[string][]string{}
	for _, t := range tests {
		if !slices.Contains(byDir[t.Dir], t.Name) {
			byDir[t.Dir] = append(byDir[t.Dir], t.Name)
		}
	}
	var all sync.WaitGroup
	all.Go(func() { r.runPackage(ctx, programs, byDir[programs]) })
	all.Go(func() {
		for dir, names := range byDir {
			if dir != programs {
				r.runPackage(ctx, dir, names)
			}
		}
	})
	all.Wait()
}

func (r *Runner) runPackage(ctx context.Context, dir string, names []string) {
	if len(names) == 0 {
		return
	}
	timeout, flags := shortTimeout, []string(nil)
	if r.Long {
		timeout, flags = longTimeout, Long[dir]
	}
	args := append([]string{"test", "-json", "-count=1", "-timeout", timeout.String(), "-run", "^(" + strings.Join(names, "|") + ")$", "./" + dir}, flags...)
	cmd := exec.CommandContext(ctx, r.Go, args...)
	cmd.Dir, cmd.Stderr = r.Root, r.Log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		r.lose(dir, err)
		return
	}
	failed := r.read(out, dir)
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && (!errors.As(err, &exit) || !failed) {
		r.lose(dir, err)
	}
}

func (r *Runner) lose(dir string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, fmt.Sprintf("%s: %v", dir, err))
}

// event is what go test -json says.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// read notes what became of each test, and copies what failed ones said.
func (r *Runner) read(from io.Reader, dir string) (failed bool) {
	said := map[string]string{}
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			top, _, _ := strings.Cut(e.Test, "/")
			switch e.Action {
			case "output":
				said[top] += e.Output
			case "pass", "fail", "skip":
				failed = failed || e.Action == "fail"
				r.note(Test{dir, e.Test}, e, said[top])
			}
		}
		if err != nil {
			return failed
		}
	}
}

func (r *Runner) note(t Test, e event, said string) {
	if t.Name == "" || strings.Contains(t.Name, "/") {
		if t.Name == "" && e.Action == "fail" {
			io.WriteString(r.Log, said) // of no test: it doesn't build, or panicked
		}
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[t] = result{e.Action, time.Duration(e.Elapsed * float64(time.Second))}
	if e.Action == "fail" {
		fmt.Fprintf(r.Log, "\n%v:\n%s\n", t, said)
	}
}

// Report prints a line for tests that belong together, and reports whether all of
// them have passed.
func (r *Runner) Report(out io.Writer, label, what string, tests []Test, notBuilt string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict, good := "ok", true
	var took time.Duration
	for _, t := range tests {
		res, ran := r.results[t]
		took += res.took
		switch {
		case !ran || res.action == "fail":
			verdict, good = "FAIL "+t.String(), false
		case res.action == "skip" && good:
			verdict = "skipped: " + t.String()
		}
	}
	switch {
	case len(tests) == 0:
		verdict = "not built: " + notBuilt
	case notBuilt != "" && good:
		verdict += ", the rest not built: " + notBuilt
	}
	seconds := ""
	if len(tests) > 0 {
		seconds = fmt.Sprintf("%.1f s", took.Seconds())
	}
	fmt.Fprintf(out, "%-9s %-58.58s %8s  %s\n", label, what, seconds, verdict)
	return good
}

// Lost returns what could not be tested.
func (r *Runner) Lost() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// All returns the tests in the repository at root, whose files list names.
func All(root string, list []string, read func(string) ([]byte, error)) (tests []Test, err error) {
	for _, file := range list {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := read(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			return nil, err
		}
		found, err := Tests(file, text)
		if err != nil {
			return nil, err
		}
		tests = append(tests, found...)
	}
	return tests, nil
}
