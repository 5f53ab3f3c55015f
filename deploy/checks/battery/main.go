package battery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
)

// Declare makes c the command that runs the battery.
func Declare(c *program.Command) {
	var only []string
	r := &Runner{}
	c.Describe(`Runs the tests of each case of the threat model, and those of each fault that
was found from outside, and prints a line for each.`)
	c.String(&r.Root, "root", ".", "`directory` of the repository")
	c.String(&r.Go, "go", "go", "`program` that runs tests")
	c.Bool(&r.Long, "long", false, "the long form: hours")
	c.Strings(&only, "only", "`cases` to run, such as 37 or found25 (default: all)")
	c.Run(func(ctx context.Context, env *program.Env) error {
		r.Log = os.Stderr
		return r.battery(ctx, env, only)
	})
}

// A line is what is printed of tests that belong together.
type line struct {
	label, what, notBuilt string
	tests                 []Test
}

func (r *Runner) battery(ctx context.Context, env *program.Env, only []string) error {
	lines, err := r.lines(ctx, only)
	if err != nil {
		return err
	}
	var tests []Test
	for _, l := range lines {
		tests = append(tests, l.tests...)
	}
	began := time.Now()
	r.Run(ctx, tests)
	failed := 0
	for _, l := range lines {
		if !r.Report(env.Stdout, l.label, l.what, l.tests, l.notBuilt) {
			failed++
		}
	}
	for _, lost := range r.Lost() {
		fmt.Fprintln(env.Stdout, lost)
	}
	fmt.Fprintf(env.Stdout, "%d lines in %v, %d failed\n", len(lines), time.Since(began).Round(time.Second), failed)
	if failed > 0 || len(r.Lost()) > 0 {
		return errors.New("not all of it has passed")
	}
	return nil
}

// lines returns what is to be run and printed.
func (r *Runner) lines(ctx context.Context, only []string) ([]line, error) {
	readme, err := os.ReadFile(filepath.Join(r.Root, Table))
	if err != nil {
		return nil, err
	}
	cases, err := Parse(string(readme))
	if err != nil {
		return nil, err
	}
	all, err := r.all(ctx)
	if err != nil {
		return nil, err
	}
	var lines []line
	for _, c := range cases {
		lines = append(lines, line{strconv.Itoa(c.Number), c.What, c.NotBuilt, c.Tests})
	}
	for n := 1; n <= Findings; n++ {
		l := line{label: fmt.Sprintf("found%02d", n)}
		for _, t := range all {
			if t.Finding() == n {
				l.tests = append(l.tests, t)
			}
		}
		var names []string
		for _, t := range l.tests {
			names = append(names, strings.TrimPrefix(t.Name, fmt.Sprintf("TestFound%02d", n)))
		}
		if l.what = strings.Join(names, ", "); len(names) == 0 {
			l.notBuilt = "no test has its number"
		}
		lines = append(lines, l)
	}
	return slices.DeleteFunc(lines, func(l line) bool { return len(only) > 0 && !slices.Contains(only, l.label) }), nil
}

// all returns the tests of the repository.
func (r *Runner) all(ctx context.Context) ([]Test, error) {
	list := exec.CommandContext(ctx, r.Go, "list", "-f",
		`{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}`, "./...")
	list.Dir, list.Stderr = r.Root, r.Log
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	root, err := filepath.Abs(r.Root)
	if err != nil {
		return nil, err
	}
	var files []string
	for file := range bytes.Lines(out) {
		name, err := filepath.Rel(root, strings.TrimSpace(string(file)))
		if err != nil {
			return nil, err
		}
		if name != "." {
			files = append(files, filepath.ToSlash(name))
		}
	}
	return All(root, files, os.ReadFile)
}
