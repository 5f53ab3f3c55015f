package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// loadtest builds the harness into the directory of the programs, and returns
// where it is.
func loadtest(t *testing.T) string {
	t.Helper()
	must(t, build(filepath.Join("..", ".."), programs, []string{"./loadtest/cmd/loadtest"}))
	return filepath.Join(programs, "loadtest")
}

// smallFanout is the least that shows whether every byte gets to every viewer.
var smallFanout = []string{
	"run", "fanout", "--local", "--viewers", "20", "--blocks", "1", "--no-baseline", "--duration", "2s", "--slo", "lost_bytes==0",
	"--progress", "none", "--report-dir", "",
}

// runLoadtest runs the harness and returns what it says and its exit code.
func runLoadtest(t *testing.T, program string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(within(t), program, args...)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// TestLoadtestPasses: the harness finds nothing wrong with these programs, and
// leaves a report.
func TestLoadtestPasses(t *testing.T) {
	program := loadtest(t)
	dir := t.TempDir()
	results, page := filepath.Join(dir, "result.json"), filepath.Join(dir, "report.html")
	out, code := runLoadtest(t, program, append(smallFanout, "--json", results, "--html", page)...)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, out)
	}
	data, err := os.ReadFile(results)
	must(t, err)
	if !json.Valid(data) {
		t.Errorf("%s", data)
	}
	html, err := os.ReadFile(page)
	must(t, err)
	for _, part := range []string{"lost_bytes", "<svg", "run fanout"} {
		if !bytes.Contains(html, []byte(part)) {
			t.Errorf("the report has no %q", part)
		}
	}
}

// TestLoadtestFindsBrokenHubs: relays whose hub changes or drops something are
// found out.
func TestLoadtestFindsBrokenHubs(t *testing.T) {
	program := loadtest(t)
	file, err := filepath.Abs(filepath.Join("..", "..", "relay", "internal", "replay", "replay.go"))
	must(t, err)
	source, err := os.ReadFile(file)
	must(t, err)
	const frame = "s.frames = AppendBinaryFrame(s.frames, p[:n])"
	const loop = "\tfor len(p) > 0 {\n\t\ts := r.last()"
	const one = "offset <= 20_000 && offset+uint64(len(p)) > 20_000" // the chunk with this byte, however large
	for name, fault := range map[string][2]string{
		"a byte changes":     {frame, "p[n/2] ^= 1; " + frame},
		"a byte is dropped":  {frame, "cut := n; if n > 500 { cut-- }; s.frames = AppendBinaryFrame(s.frames, p[:cut])"},
		"a chunk is dropped": {loop, "\tif " + one + " { r.head += uint64(len(p)); return nil }\n" + loop},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.Count(string(source), fault[0]) != 1 {
				t.Fatalf("%s has no %q", file, fault[0])
			}
			bin := t.TempDir()
			broken, overlay := filepath.Join(bin, "replay.go"), filepath.Join(bin, "overlay.json")
			must(t, os.WriteFile(broken, []byte(strings.Replace(string(source), fault[0], fault[1], 1)), 0o600))
			data, err := json.Marshal(map[string]map[string]string{"Replace": {file: broken}})
			must(t, err)
			must(t, os.WriteFile(overlay, data, 0o600))
			for _, name := range []string{"devstack", "controlplane", "sandbox-agent"} {
				must(t, os.Link(filepath.Join(programs, name), filepath.Join(bin, name))) // devstack looks where it really is
			}
			must(t, build(filepath.Join("..", ".."), bin, []string{"./relay/cmd/relay"}, "-overlay", overlay))
			out, code := runLoadtest(t, program, append(smallFanout, "--bin", bin)...)
			if code != 1 {
				t.Errorf("exit %d: %s", code, out)
			}
		})
	}
}

// TestLoadtestPageCommands: in a real browser's tabs commands run once and in
// order, and the harness leaves no browser behind.
func TestLoadtestPageCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a stack and a Chromium of its own")
	}
	needsExtension(t)
	findChromium(t)
	program := loadtest(t)
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	out, code := runLoadtest(t, program, "run", "page-commands", "--local", "--blocks", "1", "--duration", "500ms", "--warmup", "100ms", "--asleep", "1", "--burst", "40",
		"--slo", "lost_commands==0", "--slo", "doubled_commands==0", "--slo", "disordered_commands==0", "--progress", "none", "--report-dir", "")
	if code != 0 || !strings.Contains(out, "asleep_command_p50") || !strings.Contains(out, "burst") {
		t.Errorf("exit %d: %s", code, out)
	}
	left, err := os.ReadDir(temporary)
	must(t, err)
	for _, entry := range left {
		t.Errorf("left behind: %s", entry.Name())
	}
}
