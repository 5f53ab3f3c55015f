package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemons leave session and parent before anybody looks, in the usual ways. Each
// writes its pid to a file named by $1, and stays.
var daemons = map[string]string{
	"forked twice": `setsid sh -c 'sh -c "echo \$\$ >$0.new; mv $0.new $0; exec sleep 1010" & exit' "$1" & wait; sleep 1010`,
	"orphaned":     `sh -c 'setsid sh -c "echo \$\$ >$0.new; mv $0.new $0; exec sleep 1010" & exit' "$1"; sleep 1010`,
	"cli is gone":  `sh -c 'setsid sh -c "echo \$\$ >$0.new; mv $0.new $0; exec sleep 1010" & exit' "$1"`,
}

// startDaemon starts a script of daemons with mark as the user who and returns it
// with the daemon's pid.
func startDaemon(t *testing.T, text string, mark Mark, who *syscall.Credential) (*script, int) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "pid")
	s := startAs(t, "set -- "+file+"; "+text, mark, who)
	late := time.After(time.Minute)
	for {
		if data, err := os.ReadFile(file); err == nil {
			pid, err := strconv.Atoi(string(data[:len(data)-1]))
			if err != nil {
				t.Fatal(err)
			}
			if line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline")); strings.HasPrefix(string(line), "sleep") {
				return s, pid // while it was in exec, it seemed to have no environment
			}
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatal("no daemon")
		}
	}
}

func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	s, ok := Read(pid)
	if !ok {
		t.Fatalf("process %d is gone", pid)
	}
	return s.stopped()
}

// TestDaemon pauses, continues and ends daemons that nothing but their mark ties
// to their program; those with another mark, or with none, are spared.
func TestDaemon(t *testing.T) {
	for name, text := range daemons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, pid := startDaemon(t, text, NewMark(-1, -1), nil)
			_, other := startDaemon(t, text, NewMark(-1, -1), nil)
			for range 3 {
				if err := s.Pause(); err != nil {
					t.Fatal(err)
				}
				if !isStopped(t, pid) || s.running() != 0 {
					t.Fatal("the daemon goes on")
				}
				if isStopped(t, other) {
					t.Fatal("another program's daemon is stopped")
				}
				if s.Continue(); isStopped(t, pid) {
					t.Fatal("the daemon is still stopped")
				}
			}
			for s.Signal(syscall.SIGKILL) > 0 {
				<-time.After(time.Millisecond)
			}
			if left, ok := Read(pid); ok && !left.zombie() {
				t.Errorf("left: %+v", left)
			}
			isStopped(t, other) // is there
		})
	}
}

// confined is set for the process of TestDaemonOfAnotherUser that may not look at
// other users' processes.
const confined = "FAIRLEAD_TEST_CONFINED"

// TestDaemonOfAnotherUser looks at another user's processes with and without the
// capabilities to look at everybody's, which containers don't have.
func TestDaemonOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const uid, gid = 64123, 64124
	s, pid := startDaemon(t, daemons["cli is gone"], NewMark(uid, gid), &syscall.Credential{Uid: uid, Gid: gid})
	<-s.done
	if !slices.ContainsFunc(s.members(), func(m Stat) bool { return m.PID == pid }) {
		t.Error("not found")
	}
	if os.Getenv(confined) != "" {
		if _, err := environ(pid); !errors.Is(err, os.ErrPermission) {
			t.Errorf("not confined: %v", err)
		}
		return
	}
	var out []byte
	var err error
	done := make(chan struct{})
	go func() { // received below
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		for _, c := range []uintptr{unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_PERFMON} {
			if err = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
				return
			}
		}
		child := exec.Command(os.Args[0], "-test.run=^TestDaemonOfAnotherUser$", "-test.v")
		child.Env = append(os.Environ(), confined+"=1")
		out, err = child.CombinedOutput()
	}()
	<-done
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("confined: %v\n%s", err, out)
	}
}

func TestMark(t *testing.T) {
	m := NewMark(-1, -1)
	env := m.Environ([]string{"A=1", "B=2"})
	if len(env) != 3 || len(m.entry) != len(markName)+1+26 || m.UID != os.Getuid() {
		t.Errorf("%q, %+v", env, m)
	}
	for text, want := range map[string]bool{
		m.entry + "\x00A=1\x00": true, "A=1\x00" + m.entry + "\x00": true, "A=1\x00" + m.entry: true,
		"": false, "A=1\x00": false, "X" + m.entry + "\x00": false, m.entry + "X\x00": false, m.entry[:len(m.entry)-1]: false,
	} {
		if slices.Contains(marks([]byte(text)), m.entry) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	if again := NewMark(-1, -1); again.entry == m.entry {
		t.Error("the same mark twice")
	}
	if env := (Mark{}).Environ(nil); env != nil {
		t.Errorf("no mark is %q", env)
	}
}
