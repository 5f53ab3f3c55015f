package terminal

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// TestEarlierLife: what ran under the uid of an agent that was killed, whatever it
// did to its environment, ends before the uid is used again; its home goes, with
// the values in it. What another agent uses stays, and so does a folder that is
// no terminal's.
func TestEarlierLife(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const first = 61000 // used by no other test
	dir := t.TempDir()
	as := &accounts{homes: dir, own: true, firstUID: first, gid: first}
	start := func(pty protocol.PTYID) (account, *exec.Cmd) {
		a, err := as.acquire(pty)
		must(t, err)
		must(t, writePrivate(a, envFile, []byte("export CANARY=value\n")))
		cmd := exec.Command("sleep", "1007")
		cmd.Env = []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}}
		must(t, cmd.Start())
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return a, cmd
	}
	dead, left := start("pty_dead")
	must(t, dead.lock.Close()) // as the kernel does for a killed agent
	live, running := start("pty_live")
	defer as.release(live)
	must(t, os.Mkdir(filepath.Join(dir, "no-terminal"), 0o700))
	must(t, os.Chown(filepath.Join(dir, "no-terminal"), dead.uid, -1))
	must(t, os.MkdirAll(filepath.Join(dir, "pty_others", envDir), 0o700)) // of root

	(&accounts{homes: dir, own: true, firstUID: first, gid: first}).clearLeftovers(slog.New(slog.DiscardHandler))
	if _, err := left.Process.Wait(); err != nil {
		t.Error(err)
	}
	if s, ok := process.Read(running.Process.Pid); !ok || s.UID != live.uid {
		t.Error("another agent's process was ended")
	}
	for name, want := range map[string]bool{"pty_dead": false, "pty_live": true, "no-terminal": true, "pty_others": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLeftoverValues: where terminals run as the agent's user, homes may be
// another agent's, and only the values of an earlier life go.
func TestLeftoverValues(t *testing.T) {
	dir := t.TempDir()
	as := &accounts{homes: dir}
	a, err := as.acquire("pty_1")
	must(t, err)
	must(t, writePrivate(a, envFile, []byte("export CANARY=value\n")))
	must(t, writePrivate(a, credentialsFile, []byte("{}")))
	as.clearLeftovers(slog.New(slog.DiscardHandler))
	for _, name := range []string{envFile, credentialsFile} {
		if _, err := os.Stat(filepath.Join(a.home, envDir, name)); !os.IsNotExist(err) {
			t.Errorf("%s stays: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(a.home, ".bashrc")); err != nil {
		t.Error(err)
	}
}

// must stops the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
