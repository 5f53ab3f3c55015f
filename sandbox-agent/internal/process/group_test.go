package process

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A script is a real program in a session of its own, which the test's end
// kills with all it started.
type script struct {
	*Group
	t    *testing.T
	cmd  *exec.Cmd
	out  *bufio.Reader
	done chan struct{}

	ended *os.ProcessState // once done is closed
}

func start(t *testing.T, text string) *script {
	t.Helper()
	return startAs(t, text, Mark{}, nil)
}

// startAs starts text with mark as the user who, nil: our own.
func startAs(t *testing.T, text string, mark Mark, who *syscall.Credential) *script {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", text)
	cmd.Env = mark.Environ(cmd.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: who}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &script{Group: NewGroup(cmd.Process.Pid, mark), t: t, cmd: cmd, out: bufio.NewReader(out), done: make(chan struct{})}
	s.members() // so that those who leave are known
	go func() { // the cleanup waits for it
		defer close(s.done)
		s.ended, _ = cmd.Process.Wait()
	}()
	t.Cleanup(func() {
		for range 100 {
			if s.Signal(syscall.SIGKILL) == 0 {
				break
			}
			<-time.After(5 * time.Millisecond)
		}
		<-s.done
	})
	return s
}

func (s *script) Done() <-chan struct{} { return s.done }

// line waits for a line of output.
func (s *script) line() string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// running counts those of the group that are not stopped.
func (s *script) running() (n int) {
	for _, m := range s.members() {
		if !m.stopped() {
			n++
		}
	}
	return n
}

// TestGroup stops and continues a program whose children are in groups and
// sessions of their own, and all of which fork.
func TestGroup(t *testing.T) {
	s := start(t, `
		busy='while :; do /bin/true; done'
		sh -c "$busy" & setsid sh -c "$busy & setsid sh -c '$busy' & wait" &
		set -m; sh -c "$busy" & set +m
		echo up; wait`)
	s.line()
	for len(s.members()) < 7 {
		<-time.After(time.Millisecond)
	}
	for range 5 {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
		before := s.members()
		if n := s.running(); n != 0 || len(before) < 6 {
			t.Fatalf("%d of %d run", n, len(before))
		}
		<-time.After(20 * time.Millisecond)
		if after := s.members(); len(after) != len(before) {
			t.Errorf("%d processes became %d while stopped", len(before), len(after))
		}
		s.Continue()
		if n := s.running(); n < 6 {
			t.Fatalf("%d run", n)
		}
	}
}

// TestForkedWhileStopped stops a program that does nothing but fork.
func TestForkedWhileStopped(t *testing.T) {
	s := start(t, `echo up; f() { sleep 1007 & /bin/true; }; i=0; while [ $i -lt 300 ]; do f; i=$((i+1)); done; wait`)
	s.line()
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if n := s.running(); n != 0 {
		t.Errorf("%d run", n)
	}
}

// TestContinueTellsWhoSeemsToRun: a process may be about to stop and not show it.
func TestContinueTellsWhoSeemsToRun(t *testing.T) {
	s := start(t, `trap 'echo continued' CONT; echo up; while :; do sleep 0.01; done`)
	s.line()
	s.Continue()
	if got := s.line(); got != "continued" {
		t.Errorf("it says %q", got)
	}
}

// TestParentHasEnded: who left the session and lost its parent is known from
// before.
func TestParentHasEnded(t *testing.T) {
	s := start(t, `setsid sh -c 'echo $$; sleep 1008' & wait $!`)
	pid, err := strconv.Atoi(s.line())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.members()); n < 2 {
		t.Fatalf("%d processes", n)
	}
	if err := syscall.Kill(s.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	if stat, ok := Read(pid); !ok || !stat.stopped() {
		t.Errorf("%+v, %v", stat, ok)
	}
}

func TestStopPrograms(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		script string
		paused bool
		by     syscall.Signal // ends it
		least  time.Duration
	}{
		"obedient":         {`echo up; exec sleep 1009`, false, syscall.SIGINT, 0},
		"obedient, paused": {`echo up; exec sleep 1009`, true, syscall.SIGINT, 0},
		"without SIGINT":   {`trap '' INT; echo up; exec sleep 1009`, false, syscall.SIGTERM, interrupts * interruptEvery},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.script)
			s.line()
			if tt.paused {
				if err := s.Pause(); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			if err := Stop(t.Context(), s, tt.paused); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took < tt.least {
				t.Errorf("took %v", took)
			}
			if status := s.ended.Sys().(syscall.WaitStatus); status.Signal() != tt.by {
				t.Errorf("ended by %v, want %v", status.Signal(), tt.by)
			}
		})
	}
}

func TestSignalSparesUs(t *testing.T) {
	if n := Signal(syscall.SIGKILL, func(s Stat) bool { return s.PID == 1 || s.PID == syscall.Getpid() }); n != 0 {
		t.Errorf("%d signalled", n)
	}
	if n := Signal(0, func(s Stat) bool { return s.PID == syscall.Getppid() }); n != 1 && syscall.Getppid() != 1 {
		t.Errorf("%d found", n)
	}
}

func TestParse(t *testing.T) {
	const tail = " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99"
	status := []byte("Name:\tx\nUid:\t2001\t0\t0\t0\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000040000\n")
	got, ok := parse(7, []byte("7 (a) b) S 1 5 4"+tail), status)
	if want := (Stat{PID: 7, Parent: 1, Group: 5, Session: 4, UID: 2001, started: 99, state: 'S', stopPending: true}); !ok || got != want {
		t.Fatalf("%+v, %v", got, ok)
	}
	for _, bad := range []string{"", "7 (x", "7 (x) S 1", "7 (x) S 1 a b" + tail, "7 (x) S 1 5 4"} {
		if _, ok := parse(7, []byte(bad), status); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, bad := range []string{"", "\nUid:\t1\t", "\nUid:\tx\nSigPnd:\t0\nShdPnd:\t0\n"} {
		if _, ok := parse(7, []byte("7 (a) S 1 5 4"+tail), []byte(bad)); ok {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("7 (a) b) S 1 5 4 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 99"), []byte("\nUid:\t2001\t0\nSigPnd:\t0\nShdPnd:\t0\n"))
	f.Fuzz(func(t *testing.T, stat, status []byte) {
		if s, ok := parse(7, stat, status); ok && s.PID != 7 {
			t.Fatal("another process")
		}
	})
}
