package checks

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const root = "../.."

// TestRepository applies every check to the files that git would commit.
func TestRepository(t *testing.T) {
	files := repository(t)
	if len(files) < 10 {
		t.Fatalf("only %d files: is this the repository?", len(files))
	}
	for _, violation := range Check(files) {
		t.Error(violation)
	}
}

// repository returns what git tracks or would track.
func repository(t *testing.T) []File {
	t.Helper()
	// A clone may belong to another user than the one who tests it.
	list := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var files []File
	for name := range bytes.SplitSeq(bytes.TrimRight(out, "\x00"), []byte{0}) {
		name := string(name)
		info, err := os.Lstat(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if !info.Mode().IsRegular() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody works here at this moment
		}
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{name, text})
	}
	return files
}

// TestLintMirrorsFloors: for each floor below the top, .golangci.yml has one
// depguard rule, for the files of that floor, which denies every package above
// it and none other. With -update it writes the rules.
func TestLintMirrorsFloors(t *testing.T) {
	if *update {
		mirrorFloors(t)
	}
	rules := depguard(t)
	for _, row := range Floors[:F4] {
		name := fmt.Sprintf("f%d", row.Floor)
		rule := rules[name]
		var want []string
		for _, dir := range row.Dirs {
			want = append(want, filesOf(dir))
		}
		if !slices.Equal(rule.Files, want) {
			t.Errorf("rule %s isn't for the floor's files: go test ./deploy/checks -run TestLintMirrorsFloors -update", name)
		}
		for _, other := range Floors {
			for _, pattern := range other.Dirs {
				target := Module + "/" + strings.TrimSuffix(pattern, "/...")
				if rule.denies(target) != (other.Floor > row.Floor) {
					t.Errorf("rule %s: denies %s is %v", name, target, rule.denies(target))
				}
			}
		}
	}
}

// filesOf returns the files of a row of Floors as the linter names them.
func filesOf(dir string) string {
	if top, all := strings.CutSuffix(dir, "/..."); all {
		return "**/" + top + "/**"
	}
	return "**/" + dir + "/*.go"
}

// mirrorFloors writes the rules of Floors into .golangci.yml. A rule goes on to
// the next line that is indented as its name is.
func mirrorFloors(t *testing.T) {
	t.Helper()
	name := filepath.Join(root, ".golangci.yml")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range Floors[:F4] {
		var rule strings.Builder
		rule.WriteString("${1}          files:\n")
		for _, dir := range row.Dirs {
			fmt.Fprintf(&rule, "            - %q\n", filesOf(dir))
		}
		rule.WriteString("          deny:\n")
		for _, pkg := range above(row.Floor) {
			fmt.Fprintf(&rule, "            - {pkg: %s/%s, desc: above F%d}\n", Module, strings.ReplaceAll(pkg, "$", "$$"), row.Floor)
		}
		whole := regexp.MustCompile(fmt.Sprintf(`(?m)^( {8}f%d:.*\n)(?: {9,}.*\n)*`, row.Floor))
		text = whole.ReplaceAll(text, []byte(rule.String()))
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// above returns what the linter denies to a floor: the shortest beginnings that
// packages above it have and none up to it, and else a package's whole name with
// a final $.
func above(floor Floor) (denied []string) {
	var allowed []string
	for _, row := range Floors[:floor+1] {
		allowed = append(allowed, row.Dirs...)
	}
	for _, row := range Floors[floor+1:] {
		for _, dir := range row.Dirs {
			pkg := strings.TrimSuffix(dir, "/...")
			begins := pkg + "$"
			for i := len(pkg); i > 0; i = strings.LastIndex(pkg[:i], "/") {
				if slices.ContainsFunc(allowed, func(other string) bool { return strings.HasPrefix(other, pkg[:i]) }) {
					break
				}
				begins = pkg[:i]
			}
			if !slices.Contains(denied, begins) {
				denied = append(denied, begins)
			}
		}
	}
	return denied
}

// TestLintMirrorsRestrictions: a module that one package may use is denied to
// all others.
func TestLintMirrorsRestrictions(t *testing.T) {
	rules := depguard(t)
	for _, r := range Restrictions {
		if r.Only == nil {
			continue
		}
		name := strings.ReplaceAll(path.Base(r.Import), ".", "-") // the linter takes a dot for a path
		want := []string{"$all", "!$test", "!**/deploy/e2e/**"}
		for _, dir := range r.Only {
			want = append(want, "!**/"+dir+"/*.go")
		}
		if rule := rules[name]; !slices.Equal(rule.Files, want) || !rule.denies(r.Import) {
			t.Errorf("rule %s: %+v, want it for %q", name, rule, want)
		}
	}
}

// A rule is one rule of depguard.
type rule struct {
	Files []string
	Deny  []struct{ Pkg string }
}

// denies reports whether r denies an import path: by a prefix, or with a final
// $ exactly.
func (r rule) denies(target string) bool {
	for _, d := range r.Deny {
		exact, only := strings.CutSuffix(d.Pkg, "$")
		if (only && exact == target) || (!only && strings.HasPrefix(target, d.Pkg)) {
			return true
		}
	}
	return false
}

// depguard returns the rules in .golangci.yml.
func depguard(t *testing.T) map[string]rule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules map[string]rule }
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return config.Linters.Settings.Depguard.Rules
}
