package checks

import (
	"slices"
	"strings"
	"testing"
)

// TestChecksCanFail shows each check a file that breaks it, and one that
// doesn't.
func TestChecksCanFail(t *testing.T) {
	importing := func(paths ...string) string {
		return "package p\nimport (\n\"" + strings.Join(paths, "\"\n\"") + "\"\n)\n"
	}
	ours := func(dir string) string { return importing(Module + "/" + dir) }
	for _, row := range []struct {
		name, path, text string
		want             string // part of the one violation; "" for none
	}{
		{"down", "relay/internal/hub/hub.go", ours("relay/internal/turn"), ""},
		{"down to the wire", "relay/internal/hub/hub.go", ours("protocol/jws"), ""},
		{"up", "relay/internal/turn/turn.go", ours("relay/internal/hub"), "F2 is above F1"},
		{"up from a test", "relay/internal/turn/turn_test.go", ours("relay/internal/hub"), "F2 is above F1"},
		{"up to the parent", "relay/internal/gateway/gateway.go", ours("relay"), "F4 is above F3"},
		{"sideways", "relay/internal/hub/hub.go", ours("relay/internal/fleet"), "sideways on F2"},
		{"sideways and meant", "sandbox-agent/internal/executor/x.go", ours("sandbox-agent/internal/ledger"), ""},
		{"sideways and not the other way", "sandbox-agent/internal/ledger/x.go", ours("sandbox-agent/internal/executor"), "sideways on F2"},
		{"sideways in a test", "relay/internal/hub/hub_test.go", ours("relay/internal/fleet"), ""},
		{"sideways on F4", "deploy/devstack/stack.go", ours("deploy/controlplane"), "sideways on F4"},
		{"parent of the same floor", "protocol/jws/jws.go", ours("protocol"), ""},
		{"child of the same floor", "tunnel/dial.go", ours("tunnel/internal/mux"), ""},
		{"sibling", "tunnel/tunneltest/pair.go", ours("tunnel/internal/mux"), "sideways on F1"},
		{"program", "relay/cmd/relay/main.go", importing(Module+"/relay", Module+"/deploy/program"), ""},
		{"unknown importer", "relay/internal/newcomer/x.go", "package newcomer\n", "unknown package: give it a floor in deploy/checks/floors.go"},
		{"unknown target", "relay/relay.go", ours("relay/internal/newcomer"), "unknown package: give it a floor in deploy/checks/floors.go"},
		{"below a leaf", "relay/internal/hub/sub/x.go", "package sub\n", "unknown package"},
		{"below a covered package", "relay/internal/console/build/x.go", "package build\n", ""},

		{"protocol and the library", "protocol/frame.go", importing("encoding/json", "io"), ""},
		{"protocol and others", "protocol/frame.go", importing("golang.org/x/sys/unix"), "standard library only"},
		{"others may", "protocol/jws/jws.go", importing("golang.org/x/sys/unix"), ""},
		{"go-jose in its place", "protocol/jws/jws.go", importing("github.com/go-jose/go-jose/v4"), ""},
		{"go-jose elsewhere", "relay/internal/access/a.go", importing("github.com/go-jose/go-jose/v4"), "one package keeps the closed profile"},
		{"go-jose in a test", "relay/internal/access/a_test.go", importing("github.com/go-jose/go-jose/v4"), ""},
		{"creack/pty in its place", "sandbox-agent/internal/pty/t.go", importing("github.com/creack/pty"), ""},
		{"creack/pty elsewhere", "sandbox-agent/internal/process/p.go", importing("github.com/creack/pty"), "one package starts programs on PTYs"},
		{"creack/pty in deploy/e2e", "deploy/e2e/stack.go", importing("github.com/creack/pty"), ""},
		{"relay of the agent", "relay/relay.go", ours("sandbox-agent"), "they meet on the wire"},
		{"agent of the relay", "sandbox-agent/agent_test.go", ours("relay"), "they meet on the wire"},
		{"both in deploy/e2e", "deploy/e2e/e2e_test.go", importing(Module+"/relay", Module+"/sandbox-agent"), ""},
		{"loadtest as a user", "loadtest/run.go", importing(Module+"/tunnel", Module+"/protocol"), ""},
		{"loadtest as an insider", "loadtest/run_test.go", ours("relay"), "it uses what a user has"},

		{"short main", "relay/cmd/relay/main.go", "package main\nfunc main() {}\n" + strings.Repeat("\n", 27), ""},
		{"long main", "relay/cmd/relay/main.go", "package main\nfunc main() {}\n" + strings.Repeat("\n", 28), "main of 30 lines"},
		{"flags beside main", "relay/cmd/relay/flags.go", "package main\n" + strings.Repeat("\n", 99), ""},
		{"main of another package", "relay/relay.go", "package relay\nfunc main() {}\n" + strings.Repeat("\n", 99), ""},
		{"init", "relay/relay.go", "package relay\nfunc init() {}\n", "init()"},
		{"init in a test", "relay/relay_test.go", "package relay\nfunc init() {}\n", "init()"},
		{"method called init", "relay/relay.go", "package relay\nfunc (r *R) init() {}\n", ""},
		{"sleep", "relay/relay_test.go", "package relay\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "time.Sleep in a test"},
		{"renamed sleep", "relay/relay_test.go", "package relay\nimport x \"time\"\nvar f = x.Sleep\n", "time.Sleep in a test"},
		{"another's sleep", "relay/relay_test.go", "package relay\nimport \"time\"\nvar f = other.Sleep\nvar d = time.Second\n", ""},
		{"sleep in a bubble", "relay/relay_test.go", "package relay\nimport (\n\"time\"\n\"testing/synctest\"\n)\nfunc f() { synctest.Test(nil, func() { time.Sleep(1) }) }\n", ""},
		{"sleep in the code", "relay/relay.go", "package relay\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", ""},
		{"not Go", "relay/relay.go", "package", "expected"},
		{"Go in testdata", "relay/testdata/sub/main.go", importing("github.com/creack/pty") + "func main() {}\n" + strings.Repeat("\n", 99), ""},
		{"machine path in testdata", "relay/testdata/x.go", "package x // /" + "work/x\n", "path of one machine"},
		{"a longer name than testdata", "relay/testdatas/x.go", "package x\n", "unknown package"},

		{"root file", "notes.md", "", "notes.md: may not stand at the root"},
		{"root folder", "internal/x.txt", "", "internal: may not stand at the root"},
		{"dotfile", ".golangci.yml", "", ""},
		{"dot folder", ".ci/run", "", ""},
		{"machine path", "deploy/x.sh", "cd /" + "root/x\n", "deploy/x.sh:1: path of one machine: /" + "root/"},
		{"quoted machine path", "deploy/x.sh", "\n\nX=\"/" + "work/main\"\n", "deploy/x.sh:3"},
		{"somebody's home", "deploy/x.sh", "/" + "Users/jo/x", "path of one machine"},
		{"a longer name", "deploy/x.sh", "cd /" + "workspace/x /var/" + "root/x", ""},
		{"a URL", "README.md", "https://example.com/" + "work/x", ""},
		{"not text", "deploy/x.bin", "\x00 /" + "root/x", ""},
	} {
		got := Check([]File{{row.path, []byte(row.text)}})
		switch {
		case row.want == "" && len(got) != 0:
			t.Errorf("%s: %q", row.name, got)
		case row.want != "" && (len(got) != 1 || !strings.Contains(got[0], row.want)):
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
	}
}

// TestFloorsNameEachPackageOnce: a package on two floors would pass as either.
func TestFloorsNameEachPackageOnce(t *testing.T) {
	var seen []string
	for i, row := range Floors {
		if row.Floor != Floor(i) {
			t.Errorf("row %d is F%d", i, row.Floor)
		}
		for _, pattern := range row.Dirs {
			top := strings.TrimSuffix(pattern, "/...")
			if slices.ContainsFunc(seen, func(other string) bool { return matches(other, top) || matches(pattern, other) }) {
				t.Errorf("%s stands there twice", pattern)
			}
			seen = append(seen, pattern)
		}
	}
}

// TestSidewaysIsSideways: an entry that the floors allow anyway says nothing.
func TestSidewaysIsSideways(t *testing.T) {
	for _, s := range Sideways {
		from, knownFrom := FloorOf(s.From)
		to, knownTo := FloorOf(s.To)
		if !knownFrom || !knownTo || from != to || kin(s.From, s.To) || s.Why == "" {
			t.Errorf("%+v", s)
		}
	}
}

// TestFeaturesNeedNoRow: a folder beside the sandbox's features is one, what is
// below it isn't.
func TestFeaturesNeedNoRow(t *testing.T) {
	if floor, known := FloorOf(Features + "/new"); floor != F2 || !known {
		t.Errorf("a new feature is on F%d, known: %v", floor, known)
	}
	for _, dir := range []string{Features + "/new/below", "relay/internal/new", "new"} {
		if _, known := FloorOf(dir); known {
			t.Errorf("%s has a floor", dir)
		}
	}
}
