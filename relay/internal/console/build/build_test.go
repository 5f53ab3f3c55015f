package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"github.com/fairlead/fairlead/deploy/program/bundle"
)

const web = "../web"

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

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// testFiles are the tests of the TypeScript modules, which stand beside them.
func testFiles(t *testing.T) []string {
	t.Helper()
	var tests []string
	for _, dir := range []string{"core", "src"} {
		err := filepath.WalkDir(filepath.Join(web, dir), func(path string, _ fs.DirEntry, err error) error {
			if strings.HasSuffix(path, ".test.ts") {
				tests = append(tests, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tests
}

// TestScripts runs the tests of the TypeScript modules that need no browser.
func TestScripts(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	need(t, err == nil, "Node.js is missing: apt-get install nodejs")
	tests := testFiles(t)
	dir := t.TempDir()
	result := api.Build(api.BuildOptions{
		EntryPoints:  tests,
		Outdir:       dir,
		Outbase:      web,
		OutExtension: map[string]string{".js": ".mjs"},
		Bundle:       true,
		Platform:     api.PlatformNode,
		Format:       api.FormatESModule,
		Write:        true,
		LogLevel:     api.LogLevelSilent,
	})
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
	run(t, node, append([]string{"--test", "--test-concurrency=8"}, built...)...) // they wait a lot
}

// TestTypes checks the types, which esbuild only strips.
func TestTypes(t *testing.T) {
	t.Parallel()
	node, compiler := tsc(t)
	run(t, node, compiler, "--project", web)
}

// TestBuild builds into a copy, so that it changes nothing that is embedded.
func TestBuild(t *testing.T) {
	t.Parallel()
	_, err := os.Stat(filepath.Join(web, "node_modules/@xterm/xterm"))
	need(t, err == nil, "npm packages are missing: go run ./relay/internal/console/build")
	dir := t.TempDir()
	full, err := filepath.Abs(web)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(full, filepath.Join(dir, "web")); err != nil {
		t.Fatal(err)
	}
	if err := build(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main-*.js", "main-*.css", "icon-*.svg"} {
		if files, err := filepath.Glob(filepath.Join(dir, "dist/assets", name)); err != nil || len(files) != 1 {
			t.Errorf("%s are %v (%v), want one", name, files, err)
		}
	}
	parts, err := filepath.Glob(filepath.Join(dir, "dist/assets/part-*.js"))
	if err != nil || len(parts) == 0 {
		t.Errorf("parts are %v (%v): the player is to be loaded when it is needed", parts, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "dist/index.html")); err != nil {
		t.Error(err)
	}
}
