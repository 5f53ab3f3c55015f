package main

import (
	"bytes"
	"flag"
	"image/png"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
)

const (
	web     = "../web"
	console = "../../../relay/internal/console/web"
)

// need skips what a machine can't do; where everything must run it fails.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func node(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	need(t, err == nil, "Node.js is missing: apt-get install nodejs")
	return node
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

func packages(t *testing.T) {
	t.Helper()
	_, err := os.Stat(filepath.Join(console, "node_modules/@xterm/xterm"))
	need(t, err == nil, "npm packages are missing: go run ./deploy/extension/build")
}

// TestScripts runs the tests of the TypeScript modules, which stand beside them.
func TestScripts(t *testing.T) {
	t.Parallel()
	node := node(t)
	var tests []string
	err := filepath.WalkDir(filepath.Join(web, "src"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".test.ts") {
			tests = append(tests, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	options, err := options(console)
	if err != nil {
		t.Fatal(err)
	}
	options.EntryPoints, options.Outdir, options.Outbase = tests, t.TempDir(), web
	options.OutExtension, options.Platform, options.Write = map[string]string{".js": ".mjs"}, api.PlatformNode, true
	result := api.Build(options)
	if err := bundle.Failed(result.Errors); err != nil {
		t.Fatal(err)
	}
	var built []string
	for _, file := range result.OutputFiles {
		built = append(built, file.Path)
	}
	if len(tests) == 0 || len(built) != len(tests) {
		t.Fatalf("%d of %d tests built", len(built), len(tests))
	}
	run(t, node, append([]string{"--test", "--test-concurrency=8"}, built...)...)
}

// TestTypes checks the types, which esbuild only strips.
func TestTypes(t *testing.T) {
	t.Parallel()
	node := node(t)
	packages(t)
	run(t, node, filepath.Join(console, "node_modules/typescript/bin/tsc"), "--project", web)
}

// TestBuild builds into a copy, so that it changes nothing that is embedded, and
// looks for what a strict policy wouldn't let run.
func TestBuild(t *testing.T) {
	t.Parallel()
	packages(t)
	dir := t.TempDir()
	full, err := filepath.Abs(web)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(full, filepath.Join(dir, "web")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dist"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := build(dir, console); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"panel.html", "panel.js", "panel.css", "worker.js", "content.js", "welcome.html", "welcome.js", "welcome.css"} {
		data, err := os.ReadFile(filepath.Join(dir, "dist/panel", name))
		if err != nil {
			t.Error(err)
		}
		for _, forbidden := range []string{"innerHTML=", "new Function(", "eval(", "<script>", "<style>", " style=\"", "https://cdn"} {
			if strings.Contains(string(data), forbidden) {
				t.Errorf("%s has %s", name, forbidden)
			}
		}
	}
}

var update = flag.Bool("update", false, "write the list of methods anew")

// TestMethods compares the extension's list of methods with the one list.
func TestMethods(t *testing.T) {
	t.Parallel()
	path := filepath.Join(web, "src/pages/methods.ts")
	if *update {
		if err := os.WriteFile(path, methods(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, methods()) {
		t.Errorf("%s isn't what protocol/op allows (%v): go test ./deploy/extension/build -run TestMethods -update", path, err)
	}
}

// TestIcon looks at where the mark is, and isn't.
func TestIcon(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		x, y float64
		want bool
	}{{3.755, 12, true}, {12, 12, true}, {22, 12, true}, {18, 7, true}, {19.7, 12, true}, {13.5, 6.5, false}, {0.5, 0.5, false}, {22, 7, false}} {
		if got := marked(test.x, test.y); got != test.want {
			t.Errorf("at %v, %v: %v", test.x, test.y, got)
		}
	}
	data, err := icon(16)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := png.Decode(bytes.NewReader(data)); err != nil || m.Bounds().Dx() != 16 {
		t.Errorf("%v (%v)", m, err)
	}
}
