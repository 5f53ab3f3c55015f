package loadtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
)

// asProgram makes this test binary the program, with the arguments it holds.
const asProgram = "LOADTEST_AS_PROGRAM"

// TestAsProgram is the program in a process of its own.
func TestAsProgram(t *testing.T) {
	args := os.Getenv(asProgram)
	if args == "" {
		t.Skip("this is no process of its own")
	}
	os.Args = append(os.Args[:1], strings.Split(args, "\n")...)
	program.Main("loadtest", "Loads a fairlead", Declare)
}

// stuckStack is a devstack that says it is ready, ignores SIGTERM and has a child
// that does as well; its relay accepts connections and says nothing.
const stuckStack = `#!/bin/sh
trap '' TERM
while [ $# -gt 0 ]; do [ "$1" = --ready-file ] && READY="$2"; [ "$1" = --state-dir ] && STATE="$2"; shift; done
mkdir -p "$STATE/logs" "$STATE/relay-1"
sh -c 'while :; do echo x >> "$0/relay-1/state"; sleep 0.01; done' "$STATE" &
printf '{"relays":[{"url":"http://%s"}],"session_id":"ses_1","users":{"alice":{"id":"usr_a","token":"a"}}}' > "$READY.part"
mv "$READY.part" "$READY"
echo "$$ $!" > "$PIDS"
while :; do sleep 60; done
`

// started is loadtest with a stack that doesn't end, in a process of its own that
// is in the middle of its run.
type started struct {
	cmd    *exec.Cmd
	temp   string // its TMPDIR
	pids   []int  // of the stack
	stderr *lockedBuffer
	wait   func() (status int)
}

func start(t *testing.T) *started {
	t.Helper()
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { relay.Close() })
	bin, pids := t.TempDir(), filepath.Join(t.TempDir(), "pids")
	script := strings.Replace(stuckStack, "%s", relay.Addr().String(), 1)
	if err := os.WriteFile(filepath.Join(bin, "devstack"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s := &started{temp: t.TempDir(), stderr: &lockedBuffer{}}
	s.cmd = exec.Command(os.Args[0], "-test.run=^TestAsProgram$")
	s.cmd.Env = append(os.Environ(), "TMPDIR="+s.temp, "PIDS="+pids, asProgram+"="+strings.Join([]string{
		"run", "churn", "--local", "--bin", bin, "--report-dir", "", "--progress", "none"}, "\n"))
	s.cmd.Stderr = s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.wait = sync.OnceValue(func() int {
		_ = s.cmd.Wait() // the status says it
		return s.cmd.ProcessState.ExitCode()
	})
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		s.wait()
		for _, pid := range s.pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	conn, err := relay.Accept() // what is asked of it is never answered
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	data, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	var devstack, child int
	if _, err := fmt.Sscan(string(data), &devstack, &child); err != nil {
		t.Fatal(err)
	}
	s.pids = []int{devstack, child}
	return s
}

// interrupt sends a signal and waits until the program says that it came.
func (s *started) interrupt(t *testing.T, said string) {
	t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if !s.stderr.await(said, 10*time.Second) {
		t.Fatalf("the program doesn't say %q: %q", said, s.stderr.String())
	}
}

// left returns what is still there.
func (s *started) left(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.temp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range s.pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && !bytes.Contains(stat, []byte(") Z ")) {
			found = append(found, string(stat))
		}
	}
	return found
}

// A second Ctrl-C ends a run that the first one can't end at once, and leaves
// neither processes nor files behind.
func TestSecondInterrupt(t *testing.T) {
	s := start(t)
	s.interrupt(t, "once more ends it at once")
	begun := time.Now()
	s.interrupt(t, "ending at once")
	if status := s.wait(); status != statusInterrupted {
		t.Errorf("status %d: %s", status, s.stderr.String())
	}
	if took := time.Since(begun); took > hurryWait+3*time.Second {
		t.Errorf("it took %v", took)
	}
	if left := s.left(t); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A third one ends the program as it is.
func TestThirdInterrupt(t *testing.T) {
	s := start(t)
	s.interrupt(t, "once more ends it at once")
	s.interrupt(t, "ending at once")
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if status := s.wait(); status != statusInterrupted {
		t.Errorf("status %d: %s", status, s.stderr.String())
	}
}

// A lockedBuffer is written by one goroutine and searched by another.
type lockedBuffer struct {
	mu      sync.Mutex
	text    bytes.Buffer  // guarded by mu
	changed chan struct{} // guarded by mu: closed by the next write, if not nil
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the buffer holds text.
func (b *lockedBuffer) await(text string, within time.Duration) bool {
	late := time.NewTimer(within)
	defer late.Stop()
	for {
		b.mu.Lock()
		if strings.Contains(b.text.String(), text) {
			b.mu.Unlock()
			return true
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-late.C:
			return false
		}
	}
}
