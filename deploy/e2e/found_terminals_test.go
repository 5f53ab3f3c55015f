package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// isolated skips a test of what the kernel keeps apart.
func isolated(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: without, terminals run as the agent's own user")
	}
}

var confinement = regexp.MustCompile(`(CapInh|CapPrm|CapBnd|CapAmb|NoNewPrivs):\s+(\w+)`)

// confined reports what a process's status says that it shouldn't.
func confined(status string) (faults []string) {
	found := confinement.FindAllStringSubmatch(status, -1)
	for _, f := range found {
		want := "0000000000000000"
		if f[1] == "NoNewPrivs" {
			want = "1"
		}
		if f[2] != want {
			faults = append(faults, f[1]+" "+f[2])
		}
	}
	if len(found) != 5 {
		faults = append(faults, fmt.Sprintf("only %d of 5 lines", len(found)))
	}
	return faults
}

const showStatus = `grep --color=never -e Cap -e NoNewPrivs /proc/self/status; echo shown-$((40+2))`

// TestFound06ProgramsGainNothing: whatever a terminal's program runs, it gets no
// capability and nobody's privileges by it; so with a coding agent and with the
// session's browser.
func TestFound06ProgramsGainNothing(t *testing.T) {
	isolated(t)
	s := shared(t)
	ctx := within(t)
	id, a := newShell(ctx, t, s)
	must(t, a.Type(ctx, showStatus+"\r"))
	must(t, a.Expect(ctx, "shown-42\r\n"))
	if faults := confined(string(a.Output())); faults != nil {
		t.Errorf("a shell: %v", faults)
	}
	before := len(a.Output())
	status, answer := agentOp(ctx, t, s, "alice", "", id, map[string]any{"name": "status", "command": showStatus})
	if status != http.StatusOK {
		t.Fatalf("starting a coding agent: %d %s", status, answer)
	}
	must(t, a.Await(ctx, "the coding agent", func(output []byte, _ []Message, _ error) bool {
		return strings.Contains(string(output[before:]), "shown-42")
	}))
	if faults := confined(string(a.Output()[before:])); faults != nil {
		t.Errorf("a coding agent: %v", faults)
	}
	if !chromiumInstalled() {
		t.Skip("no Chromium: not tried with a browser")
	}
	// Nobody listens there: it is the browser that is wanted.
	_, _, err := tools(ctx, t, s, "alice").Call(ctx, "browser_navigate", map[string]any{"url": "http://127.0.0.1:1/"})
	must(t, err)
	browsers := 0
	for _, child := range childrenOf(s.Ready.Sandboxes[0].PID) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if err != nil || !strings.Contains(string(line), "--user-data-dir=") {
			continue
		}
		browsers++
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", child))
		must(t, err)
		if faults := confined(string(state)); faults != nil {
			t.Errorf("the browser: %v", faults)
		}
		if strings.Contains(string(line), "--no-sandbox") && exec.Command("unshare", "-U", "true").Run() == nil {
			t.Error("the browser has lost its own sandbox")
		}
	}
	if browsers == 0 {
		t.Error("no browser was started")
	}
}

// childrenOf returns the processes that another has started itself.
func childrenOf(pid int) (children []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if id, err := strconv.Atoi(filepath.Base(dir)); err == nil && fields[1] == strconv.Itoa(pid) {
			children = append(children, id)
		}
	}
	return children
}

// TestFound06WhoNeedsSudo: with --allow-privileges a terminal's programs may gain
// privileges as anywhere else.
func TestFound06WhoNeedsSudo(t *testing.T) {
	isolated(t)
	s := own(t, "--allow-privileges")
	ctx := within(t)
	_, a := newShell(ctx, t, s)
	must(t, a.Type(ctx, showStatus+"\r"))
	must(t, a.Expect(ctx, "shown-42\r\n"))
	for _, f := range confinement.FindAllStringSubmatch(string(a.Output()), -1) {
		if f[1] == "NoNewPrivs" && f[2] != "0" || f[1] == "CapBnd" && f[2] == "0000000000000000" {
			t.Errorf("%s is %s", f[1], f[2])
		}
	}
}

// TestFound17UserExists: a terminal's user has a name, a home and a shell, so
// that ssh, whoami and git work, and git knows on whose behalf.
func TestFound17UserExists(t *testing.T) {
	isolated(t)
	s := shared(t)
	ctx := within(t)
	before, err := os.ReadFile("/etc/passwd")
	must(t, err)
	_, a := newShell(ctx, t, s)
	run := func(command, want string) {
		t.Helper()
		from := len(a.Output())
		must(t, a.Type(ctx, command+"; echo ran-$((40+2))\r"))
		must(t, a.Await(ctx, command, func(output []byte, _ []Message, _ error) bool {
			return strings.Contains(string(output[from:]), "ran-42\r\n")
		}))
		if got := string(a.Output()[from:]); !strings.Contains(got, want) {
			t.Errorf("%s: %q, without %q", command, got, want)
		}
	}
	run(`test "$(id -un)" = "$(whoami)" && echo named-$((1+1))`, "named-2")
	run(`test "$(getent passwd $(id -u) | cut -d: -f6)" = "$HOME" && echo home-$((1+1))`, "home-2")
	run(`ssh -G example.org >/dev/null && echo ssh-$((1+1))`, "ssh-2")
	run(`cd "$(mktemp -d)" && git init -q . && git commit -q --allow-empty -m x && git log -1 --format='by %an %ae.'`, "by alice ")
	run(`git log -1 --format=%ae | grep -q '^[^@ ]*@[^@ ]*$' && echo mail-$((1+1))`, "mail-2")
	after, err := os.ReadFile("/etc/passwd")
	must(t, err)
	for line := range strings.Lines(string(before)) {
		if !strings.Contains(line, ":fairlead") && !strings.Contains(string(after), line) {
			t.Errorf("/etc/passwd has lost %q", line)
		}
	}
}
