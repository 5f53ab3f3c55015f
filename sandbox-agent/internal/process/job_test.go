package process

import (
	"strconv"
	"syscall"
	"testing"
)

// TestSignalJob: all of a job get a signal, whether its leader lives or not, and no
// other group of the session or of another one.
func TestSignalJob(t *testing.T) {
	const trap = `trap 'echo got' USR1; echo here; while :; do sleep 0.01; done`
	for name, text := range map[string]string{
		"leader": `trap 'echo got' USR1; (` + trap + `) & wait; while :; do wait; done`,
		// The first of the pipeline leads the job. It has ended, and the second is an orphan.
		"orphan": `(` + trap + `) & exit`,
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, text)
			if got := s.line(); got != "here" {
				t.Fatal(got)
			}
			if name == "orphan" {
				<-s.done
			}
			other := start(t, "echo here; exec sleep 1000")
			other.line()
			if n := SignalJob(syscall.SIGUSR1, s.leader, other.leader); n != 0 {
				t.Errorf("%d of another session", n)
			}
			if n := SignalJob(syscall.SIGUSR1, other.leader, s.leader); n != 0 {
				t.Errorf("%d for another session", n)
			}
			if n := SignalJob(syscall.SIGUSR1, s.leader, s.leader); n == 0 {
				t.Error("nobody")
			}
			for range map[string]int{"leader": 2, "orphan": 1}[name] {
				if got := s.line(); got != "got" {
					t.Error(got)
				}
			}
		})
	}
	for _, group := range []int{-1, 0, 1, 1 << 29} {
		if n := SignalJob(syscall.SIGKILL, group, group); n != 0 {
			t.Error(strconv.Itoa(group), n)
		}
	}
}

// BenchmarkSignalJob is what a key like Ctrl-C costs that comes as a command.
func BenchmarkSignalJob(b *testing.B) {
	cmd := Command([]string{"sleep", "1000"})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for b.Loop() {
		SignalJob(syscall.SIGWINCH, cmd.Process.Pid, cmd.Process.Pid)
	}
}
