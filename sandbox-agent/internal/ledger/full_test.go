package ledger

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// fullDir is set for the process of TestReallyFullDisk that has a small disk.
const fullDir = "FAIRLEAD_TEST_FULL"

// TestReallyFullDisk fills a file system of 256 KiB, which a process of its own
// has alone.
func TestReallyFullDisk(t *testing.T) {
	if dir := os.Getenv(fullDir); dir != "" {
		must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
		fillDisk(t, dir)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestReallyFullDisk$", "-test.v")
	child.Env = append(os.Environ(), fullDir+"="+t.TempDir())
	child.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // whose mounts are private
	out, err := child.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skip("needs a mount namespace")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

func fillDisk(t *testing.T, dir string) {
	state := filepath.Join(dir, "state")
	l := open(t, state)
	generation, err := l.NextGeneration()
	must(t, err)
	begin(t, l, "cmd_before")
	must(t, l.Finish("cmd_before", []byte("made")))
	filler, err := os.Create(filepath.Join(dir, "filler"))
	must(t, err)
	for err == nil {
		_, err = filler.Write(make([]byte, 1024))
	}
	must(t, filler.Close())
	begun := 1
	for ; ; begun++ { // what the last page has room for
		_, err = l.Begin(protocol.CommandID(fmt.Sprintf("cmd_%d", begun)), digest, time.Now().Add(ttl))
		if err != nil {
			break
		}
	}
	wantKind(t, err, protocol.KindUnavailable)
	if !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("refused with %q", err)
	}
	if err := l.Err(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("said %v", err)
	}
	wantPrior(t, l, "cmd_before", StateDone, "made")

	again := open(t, state) // an agent that starts now
	if err := again.Err(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("said %v", err)
	}
	for i := range uint64(20) { // it dials all the same, also when its number gets longer
		if n, err := again.NextGeneration(); err != nil || n != generation+1+i {
			t.Fatalf("generation %d, %v", n, err)
		}
	}
	must(t, os.Remove(filler.Name()))
	must(t, again.Err())
	wantPrior(t, again, "cmd_before", StateDone, "made")
	begin(t, again, protocol.CommandID(fmt.Sprintf("cmd_%d", begun)))
}
