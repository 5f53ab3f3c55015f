package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// pids returns the processes of a stack's programs.
func pids(r Ready) []int {
	all := []int{r.ControlPlane.PID}
	for _, relay := range r.Relays {
		all = append(all, relay.PID)
	}
	for _, sandbox := range r.Sandboxes {
		all = append(all, sandbox.PID)
	}
	return all
}

// alive reports whether a process runs; one that nobody has waited for yet
// doesn't.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

// stands reports whether every thread of a process has stopped.
func stands(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	must(t, err)
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if _, state, _ := strings.Cut(string(stat), ") "); err == nil && !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return len(threads) > 0
}

// await polls until done.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx := within(t)
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !done() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %s", what)
		}
	}
}

// TestTwoOfEach: a stack of two relays and two sandboxes. Each sandbox has a
// session with a terminal; a relay that dies is back on its addresses; the end
// of the stack is the end of all its programs.
func TestTwoOfEach(t *testing.T) {
	s := own(t, "--relays", "2", "--sandboxes", "2")
	if len(s.Ready.Relays) != 2 || len(s.Ready.Sandboxes) != 2 {
		t.Fatalf("%+v", s.Ready)
	}
	awaitText(within(t), t, s.Output, "Ctrl-C ends everything")
	for _, name := range []string{"alice", "bob", "carol"} {
		if link := s.Ready.Relays[0].URL + "/#token=" + s.Ready.Users[name].Token; !strings.Contains(s.Output(), link) {
			t.Errorf("no link for %s in:\n%s", name, s.Output())
		}
	}
	var sessions struct {
		Sandboxes []struct {
			Session protocol.SessionID `json:"session_id"`
			PTY     protocol.PTYID     `json:"pty_id"`
		} `json:"sandboxes"`
	}
	data, err := os.ReadFile(filepath.Join(s.Dir, "ready.json"))
	must(t, err)
	must(t, json.Unmarshal(data, &sessions))
	ctx := within(t)
	for i, sb := range sessions.Sandboxes {
		terminal, err := s.Ready.User("alice").Attach(ctx, sb.Session, sb.PTY, "")
		must(t, err)
		t.Cleanup(terminal.Close)
		must(t, terminal.Type(ctx, "echo sandbox-$((1+"+fmt.Sprint(i)+"))\r"))
		must(t, terminal.Expect(ctx, fmt.Sprintf("sandbox-%d\r\n", i+1)))
	}

	relays := slices.Clone(s.Ready.Relays) // Reload writes into the old ones
	for i, before := range relays {
		must(t, syscall.Kill(before.PID, syscall.SIGKILL))
		killed := time.Now()
		await(t, "another relay", func() bool {
			must(t, s.Reload(time.Second))
			return s.Ready.Relays[i].PID != before.PID
		})
		t.Logf("relay %d was started again after %v", i+1, time.Since(killed).Round(time.Millisecond))
		await(t, "its listeners", func() bool {
			status, _, err := Call(ctx, "GET", before.AdminURL+"/healthz", "", nil)
			return err == nil && status == 200
		})
		t.Logf("relay %d answered after %v", i+1, time.Since(killed).Round(time.Millisecond))
		if now := s.Ready.Relays[i]; now.URL != before.URL || now.Tunnel != before.Tunnel || now.AdminURL != before.AdminURL {
			t.Errorf("relay %d moved: %+v, was %+v", i+1, now, before)
		}
	}
	must(t, s.Stop())
	for _, pid := range pids(s.Ready) {
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "ready.json")); !os.IsNotExist(err) {
		t.Errorf("the ready file is left: %v", err)
	}
}

// TestFound21KilledStack: nothing outlives a devstack, however it ends. The files
// of its terminals go at its end, or when it was killed at the start of another.
func TestFound21KilledStack(t *testing.T) {
	s, err := Start(programs, t.TempDir())
	must(t, err)
	all, killed := pids(s.Ready), filesOf(t, s)
	if _, err := os.Stat(killed); err != nil { // any devstack's start may remove them once it is killed
		t.Fatal(err)
	}
	must(t, s.cmd.Process.Kill())
	<-s.done
	await(t, "the end of its programs", func() bool {
		for _, pid := range all {
			if alive(pid) {
				return false
			}
		}
		return true
	})
	next, err := Start(programs, t.TempDir())
	must(t, err)
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("the next one has left the killed one's files: %v", err)
	}
	ended := filesOf(t, next)
	must(t, next.Stop())
	if _, err := os.Stat(ended); !os.IsNotExist(err) {
		t.Errorf("it left its files: %v", err)
	}
}

// filesOf returns the directory with the workspace and the homes of the stack's
// first sandbox.
func filesOf(t *testing.T, s *Stack) string {
	t.Helper()
	workspace, err := flagOf(s.Ready.Sandboxes[0].PID, "--workspace")
	must(t, err)
	dir := filepath.Dir(workspace)
	if _, err := os.Stat(filepath.Join(dir, "homes")); err != nil {
		t.Fatal(err)
	}
	return dir
}
