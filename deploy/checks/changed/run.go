package changed

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Untested are folders whose tests make check leaves to make test: they run the
// real programs.
var Untested = []string{"deploy/e2e"}

// Run does what make check does, by the arguments of the command line, and
// returns the status to exit with. It uses the standard library only, so that a
// change seldom makes it build itself anew.
func Run(args []string, out io.Writer) int {
	flags := flag.NewFlagSet("check", flag.ExitOnError)
	r := runner{out: out, began: time.Now()}
	flags.StringVar(&r.goTool, "go", "go", "`program` that builds and tests")
	flags.StringVar(&r.since, "since", "", "`commit` that the change begins at (default: the last that this branch has in common with main)")
	flags.Parse(args) // exits where it fails
	if err := r.run(); err != nil {
		fmt.Fprintf(out, "check: %v after %s\n", err, seconds(time.Since(r.began)))
		return 1
	}
	fmt.Fprintf(out, "check: good after %s\n", seconds(time.Since(r.began)))
	return 0
}

type runner struct {
	goTool, since string
	out           io.Writer
	began         time.Time
}

func (r *runner) run() error {
	base, files, err := r.files()
	if err != nil {
		return err
	}
	packages, err := r.packages()
	if err != nil {
		return err
	}
	direct, dependent := Concerned(packages, files)
	fmt.Fprintf(r.out, "check: %s changed since %.12s, in %s; %s on them or on every file\n",
		count(len(files), "file"), base, list(direct), count(len(dependent), "package")+" more depend")
	all := append(direct, dependent...)
	built := slices.DeleteFunc(slices.Clone(all), func(dir string) bool {
		return slices.ContainsFunc(packages, func(p Package) bool { return p.Dir == dir && len(p.GoFiles) == 0 })
	})
	tested := slices.DeleteFunc(slices.Clone(all), func(dir string) bool {
		return slices.ContainsFunc(Untested, func(folder string) bool { return strings.HasPrefix(dir+"/", folder+"/") })
	})
	if err := errors.Join(
		r.step("builds "+count(len(built), "package"), append([]string{"build"}, paths(built)...)),
		r.step("vets "+count(len(all), "package")+" with their tests", append([]string{"vet"}, paths(all)...)),
	); err != nil {
		return err
	}
	// Without debug information a test links in half the time; vet has been. Many
	// tests wait, so twice as many run as there are processors.
	atOnce := fmt.Sprintf("-p=%d", 2*runtime.NumCPU())
	return r.step(fmt.Sprintf("tests %s, -short and without the race detector", count(len(tested), "package")),
		append([]string{"test", atOnce, "-short", "-vet=off", "-ldflags=-s -w"}, paths(tested)...))
}

// files returns the commit that the change begins at, and what has changed since,
// committed or not.
func (r *runner) files() (base string, files []string, err error) {
	for _, from := range []string{r.since, "origin/main", "main"} {
		if base == "" && from != "" {
			base, _ = git("merge-base", "HEAD", from)
		}
	}
	if base == "" {
		base = "HEAD" // of a repository without main: what isn't committed
	}
	differ, err := git("diff", "--name-only", "--no-renames", base)
	if err != nil {
		return "", nil, err
	}
	added, err := git("ls-files", "--others", "--exclude-standard")
	return base, append(strings.Fields(differ), strings.Fields(added)...), err
}

func git(args ...string) (string, error) {
	out, err := exec.Command("git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (r *runner) packages() (packages []Package, err error) {
	list := exec.Command(r.goTool, "list", "-json=ImportPath,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	root, err := os.Getwd()
	for from := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		var p Package
		if err = from.Decode(&p); err == nil {
			p.Dir, err = filepath.Rel(root, p.Dir)
			packages = append(packages, p)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return packages, err
}

// step runs the go tool, and says what it does and for how long. Packages that
// pass say nothing.
func (r *runner) step(what string, args []string) error {
	began := time.Now()
	fmt.Fprintf(r.out, "check: %s ", what)
	step := exec.Command(r.goTool, args...)
	said, err := step.CombinedOutput()
	fmt.Fprintf(r.out, "%s (%s of the processors)\n", seconds(time.Since(began)), seconds(step.ProcessState.UserTime()+step.ProcessState.SystemTime()))
	if err != nil {
		for line := range bytes.Lines(said) {
			if !bytes.HasPrefix(line, []byte("ok  \t")) && !bytes.HasPrefix(line, []byte("?   \t")) {
				r.out.Write(line)
			}
		}
		return fmt.Errorf("go %s failed", args[0])
	}
	return nil
}

func paths(dirs []string) (paths []string) {
	for _, dir := range dirs {
		paths = append(paths, "./"+filepath.ToSlash(dir))
	}
	return paths
}

// list names a few directories, or counts many.
func list(dirs []string) string {
	if len(dirs) > 4 {
		return count(len(dirs), "package")
	}
	return strings.Join(dirs, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func seconds(d time.Duration) string { return d.Round(time.Second / 10).String() }
