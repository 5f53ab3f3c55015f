package account

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
	homes := t.TempDir()
	as := &Pool{Homes: homes, Own: true, FirstUID: first, GID: first}
	start := func(pty protocol.PTYID) (Account, *exec.Cmd) {
		a, err := as.Acquire(pty)
		must(t, err)
		must(t, a.WritePrivate(EnvFile, []byte("export CANARY=value\n")))
		cmd := exec.Command("sleep", "1007")
		cmd.Env = []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)}}
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
	defer as.Release(live)
	must(t, os.Mkdir(filepath.Join(homes, "no-terminal"), 0o700))
	must(t, os.Chown(filepath.Join(homes, "no-terminal"), dead.UID, -1))
	must(t, os.MkdirAll(filepath.Join(homes, "pty_others", Dir), 0o700)) // of root

	(&Pool{Homes: homes, Own: true, FirstUID: first, GID: first}).ClearLeftovers(slog.New(slog.DiscardHandler))
	if _, err := left.Process.Wait(); err != nil {
		t.Error(err)
	}
	if s, ok := process.Read(running.Process.Pid); !ok || s.UID != live.UID {
		t.Error("another agent's process was ended")
	}
	for name, want := range map[string]bool{"pty_dead": false, "pty_live": true, "no-terminal": true, "pty_others": true} {
		if _, err := os.Stat(filepath.Join(homes, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLeftoverValues: where terminals run as the agent's user, homes may be
// another agent's, and only the values of an earlier life go.
func TestLeftoverValues(t *testing.T) {
	homes := t.TempDir()
	as := &Pool{Homes: homes}
	a, err := as.Acquire("pty_1")
	must(t, err)
	must(t, a.WritePrivate(EnvFile, []byte("export CANARY=value\n")))
	must(t, a.WritePrivate(CredentialsFile, []byte("{}")))
	as.ClearLeftovers(slog.New(slog.DiscardHandler))
	for _, name := range []string{EnvFile, CredentialsFile} {
		if _, err := os.Stat(filepath.Join(a.Home, Dir, name)); !os.IsNotExist(err) {
			t.Errorf("%s stays: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(a.Home, ".bashrc")); err != nil {
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
