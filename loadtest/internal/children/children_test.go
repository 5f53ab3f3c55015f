package children

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// shell starts a script that says what it has to with one line, which holds pids.
func shell(t *testing.T, script string) (cmd *exec.Cmd, said []int) {
	t.Helper()
	cmd = exec.Command("sh", "-c", script)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, pid)
	}
	return cmd, said
}

// runs says whether a process is there and no zombie.
func runs(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Everything below this process ends, what ignores SIGTERM with SIGKILL, and what
// is orphaned by the end of its parent as well.
func TestEnd(t *testing.T) {
	polite, said := shell(t, `sleep 60 & echo $!; wait`)
	deaf, more := shell(t, `sh -c 'trap "" TERM; sleep 60 & echo $$ $!; while :; do sleep 60; done'; :`)
	said = append(append(said, more...), polite.Process.Pid, deaf.Process.Pid)
	begun := time.Now()
	if !End(100*time.Millisecond, 10*time.Second) {
		t.Error("something is still there")
	}
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("what is deaf had %v", took)
	}
	for _, pid := range said {
		if runs(t, pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
	_, _ = polite.Wait(), deaf.Wait()
	if !End(time.Hour, time.Second) {
		t.Error("without any there is one")
	}
}

// It doesn't wait longer than it is told to.
func TestEndGivesUp(t *testing.T) {
	cmd, _ := shell(t, `trap "" TERM; echo; while :; do sleep 0.01; done`)
	begun := time.Now()
	if End(time.Hour, 50*time.Millisecond) {
		t.Error("what ignores SIGTERM has ended")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	End(0, 10*time.Second)
	_ = cmd.Wait()
}
