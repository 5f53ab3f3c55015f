package checks

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// What stands around the figures in the README.
const (
	figuresBegin = "<!-- figures: go test ./deploy/checks -run TestFigures -update -->\n"
	figuresEnd   = "<!-- end of figures -->\n"
)

// TestFigures: the README's tables of sizes are those of the code, wherever
// everything must run.
func TestFigures(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), figuresBegin)
	was, after, ended := strings.Cut(rest, figuresEnd)
	if !found || !ended {
		t.Fatal("the README has no place for figures")
	}
	want := figures(packages(t), Lines(repository(t)))
	if *update && was != want {
		if err := os.WriteFile("README.md", []byte(before+figuresBegin+want+figuresEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		was = want
	}
	if was == want {
		return
	}
	// Branches that are worked on at the same time would all change the same lines.
	say := t.Logf
	if os.Getenv("CI") == "true" {
		say = t.Errorf
	}
	say("the figures in README.md are old: run go test ./deploy/checks -run TestFigures -update; they are\n%s", want)
}

// earlier are the figures of commit 5538454, before the rebuild.
var earlier = struct {
	lines, arrows, functions map[string]int
	methods, fields          []TypeSize
}{
	lines: map[string]int{
		"deploy/checks": 901, "deploy/controlplane": 21409, "deploy/devstack": 1513, "deploy/e2e": 3532, "deploy/program": 2210,
		"loadtest": 20557, "protocol": 7211, "relay": 17285, "sandbox-agent": 49970, "tunnel": 8383,
	},
	arrows: map[string]int{
		"deploy/controlplane": 63, "deploy/devstack": 4, "deploy/e2e": 6, "deploy/program": 4,
		"loadtest": 42, "protocol": 8, "relay": 79, "sandbox-agent": 210, "tunnel": 29,
	},
	functions: map[string]int{
		"deploy/controlplane": 29, "deploy/devstack": 3, "deploy/e2e": 4, "deploy/program": 6,
		"loadtest": 34, "protocol": 4, "relay": 33, "sandbox-agent": 123, "tunnel": 41,
	},
	methods: []TypeSize{
		{"deploy/controlplane.Server", 161, 0}, {"sandbox-agent/internal/screen.Screen", 143, 0},
		{"sandbox-agent/internal/terminal.Terminal", 136, 0}, {"deploy/controlplane/internal/store.Store", 124, 0},
		{"relay/internal/hub.Hub", 77, 0}, {"sandbox-agent/internal/workspace.FS", 66, 0},
		{"sandbox-agent/internal/terminal.Host", 63, 0}, {"relay/internal/hub.feed", 61, 0},
		{"sandbox-agent/internal/mcp.Server", 54, 0}, {"tunnel.Session", 54, 0},
		{"sandbox-agent/internal/screen.painter", 46, 0}, {"sandbox-agent/internal/redact.matcher", 44, 0},
	},
	fields: []TypeSize{
		{"relay/internal/hub.Viewer", 0, 54}, {"relay/internal/hub.Hub", 0, 42}, {"sandbox-agent/internal/screen.Screen", 0, 39},
		{"relay.Relay", 0, 29}, {"relay.Config", 0, 27}, {"sandbox-agent/internal/terminal.Terminal", 0, 27},
		{"tunnel.Session", 0, 27}, {"deploy/controlplane.Server", 0, 26}, {"relay/internal/hub.Metrics", 0, 24},
		{"sandbox-agent.Agent", 0, 24}, {"sandbox-agent/internal/executor.Executor", 0, 24}, {"tunnel/internal/mux.guard", 0, 24},
	},
}

func figures(packages []Package, lines map[string]int) string {
	var b strings.Builder
	sums := map[string]int{}
	for dir, n := range lines {
		sums[folder(dir)] += n
	}
	numbers := map[string]map[string]int{arrowsOf: {}, functionsOf: {}}
	for _, n := range Measure(packages, nil) {
		if of := numbers[n.Sort]; of != nil {
			of[n.Of] = n.N
		}
	}
	b.WriteString("| folder | lines, before | now | arrows, before | now | function fields, before | now |\n|---|---|---|---|---|---|---|\n")
	for _, of := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d |\n", of, thousands(earlier.lines[of]), thousands(sums[of]),
			earlier.arrows[of], numbers[arrowsOf][of], earlier.functions[of], numbers[functionsOf][of])
	}
	total := func(of map[string]int) (sum int) {
		for _, n := range of {
			sum += n
		}
		return sum
	}
	fmt.Fprintf(&b, "| all | %s | %s | %d | %d | %d | %d |\n\n", thousands(total(earlier.lines)), thousands(total(sums)),
		total(earlier.arrows), total(numbers[arrowsOf]), total(earlier.functions), total(numbers[functionsOf]))
	b.WriteString("| most methods, before | | now | | most fields, before | | now | |\n|---|---|---|---|---|---|---|---|\n")
	methods := Largest(packages, 12, func(t TypeSize) int { return t.Methods })
	fields := Largest(packages, 12, func(t TypeSize) int { return t.Fields })
	for i := range methods {
		fmt.Fprintf(&b, "| %s | %d | %s | %d | %s | %d | %s | %d |\n", earlier.methods[i].Name, earlier.methods[i].Methods, methods[i].Name, methods[i].Methods,
			earlier.fields[i].Name, earlier.fields[i].Fields, fields[i].Name, fields[i].Fields)
	}
	return b.String()
}

// thousands rounds to half a thousand.
func thousands(n int) string { return fmt.Sprintf("%.1fk", float64((n+250)/500)/2) }
