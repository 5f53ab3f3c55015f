package process

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
)

var sets = regexp.MustCompile(`(Cap\w+|NoNewPrivs):\s+(\w+)`)

// rights returns what a process's status says of its rights, by name.
func rights(t *testing.T, status []byte) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, m := range sets.FindAllSubmatch(status, -1) {
		found[string(m[1])] = string(m[2])
	}
	if len(found) != 6 {
		t.Fatalf("%q", status)
	}
	return found
}

// TestConfined: a program of another user has no rights and gains none by a
// program that would give it root's; ours are as they were.
func TestConfined(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	suid := filepath.Join(dir, "cat") // as sudo is
	text, err := os.ReadFile("/bin/cat")
	if err == nil {
		err = os.WriteFile(suid, text, 0o755)
	}
	if err == nil {
		err = os.Chmod(suid, 0o755|os.ModeSetuid)
	}
	if err != nil {
		t.Fatal(err)
	}
	ours := func() map[string]string {
		status, err := os.ReadFile("/proc/thread-self/status")
		if err != nil {
			t.Fatal(err)
		}
		return rights(t, status)
	}
	before := ours()
	run := func(start func(*exec.Cmd) error) map[string]string {
		t.Helper()
		var out bytes.Buffer
		cmd := &exec.Cmd{
			Path: suid, Args: []string{"cat", "/proc/self/status"}, Dir: "/", Stdout: &out,
			SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 2999, Gid: 2999}},
		}
		if err := start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v, %s", err, out.Bytes())
		}
		return rights(t, out.Bytes())
	}
	if free := run((*exec.Cmd).Start); free["CapEff"] == "0000000000000000" {
		t.Skipf("nobody gains anything here: %v", free) // mounted nosuid
	}
	confined := run(StartConfined)
	for name, set := range confined {
		want := "0000000000000000"
		if name == "NoNewPrivs" {
			want = "1"
		}
		if set != want {
			t.Errorf("%s is %s", name, set)
		}
	}
	for range 20 { // whatever thread this goroutine gets
		if now := ours(); !slices.Equal([]string{now["CapBnd"], now["CapEff"], now["NoNewPrivs"]}, []string{before["CapBnd"], before["CapEff"], before["NoNewPrivs"]}) {
			t.Fatalf("ours were %v, are %v", before, now)
		}
		run((*exec.Cmd).Start)
	}
}
