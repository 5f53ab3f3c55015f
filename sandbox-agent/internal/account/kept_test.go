package account

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// keepers returns pools of two agents with the same homes, with uids of their own
// or not.
func keepers(t *testing.T, own bool) (one, two *Pool) {
	t.Helper()
	if own && os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // reachable by other uids
	must(t, os.Chmod(dir, 0o711))
	pool := func() *Pool {
		return &Pool{Homes: dir, Own: own, FirstUID: 59000, GID: 59000, Log: slog.New(slog.DiscardHandler)} // used by no other test
	}
	return pool(), pool()
}

func owned(t *testing.T, path string) int {
	t.Helper()
	st, err := os.Lstat(path)
	must(t, err)
	return int(st.Sys().(*syscall.Stat_t).Uid)
}

// TestKeptLeftovers: what a killed agent has left running dies when the next one
// begins, and its home is nobody's. What a running agent has stays.
func TestKeptLeftovers(t *testing.T) {
	for _, own := range []bool{true, false} {
		t.Run(strconv.FormatBool(own), func(t *testing.T) {
			first, second := keepers(t, own)
			k, err := first.Keep("ses_1")
			must(t, err)
			left := exec.Command("/bin/sh", "-c", `trap "" INT TERM HUP; while :; do sleep 0.1; done`)
			left.Env = []string{IDVariable + "=" + string(k.ID)}
			left.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: k.Credential()}
			must(t, left.Start())
			ended := make(chan struct{})
			go func() { left.Wait(); close(ended) }() // reports the kill
			second.ClearLeftovers(second.Log)
			if _, ok := process.Read(left.Process.Pid); !ok {
				t.Fatal("what a running agent has is dead")
			}
			if _, err := second.Keep("ses_1"); protocol.KindOf(err) != protocol.KindConflict {
				t.Error(err)
			}
			if err := second.Forget("ses_1"); protocol.KindOf(err) != protocol.KindConflict {
				t.Error(err)
			}
			must(t, os.WriteFile(filepath.Join(k.Home, "login"), nil, 0o600))
			must(t, k.record.Close()) // as when the agent is killed
			if k.lock != nil {
				must(t, k.lock.Close())
			}
			second.ClearLeftovers(second.Log)
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("it is alive")
			}
			if st, err := os.Stat(first.keptOf("ses_1")); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("%v %v", st, err)
			}
			again, err := second.Keep("ses_1")
			must(t, err)
			if _, err := os.Stat(filepath.Join(again.Home, "login")); err != nil || again.ID != k.ID {
				t.Errorf("%v, %s was %s", err, again.ID, k.ID)
			}
			must(t, second.Leave(again))
			must(t, second.Forget("ses_1"))
			if _, err := os.Stat(first.keptOf("ses_1")); !os.IsNotExist(err) {
				t.Error(err)
			}
		})
	}
}

// TestKeptHomeMoves: with another uid all of the home's files get it, also those
// that a crash in between has left with either; what others own stays theirs.
func TestKeptHomeMoves(t *testing.T) {
	first, second := keepers(t, true)
	k, err := first.Keep("ses_1")
	must(t, err)
	for _, name := range []string{"dir/deeper/file", "dir/other", "of root"} {
		path := filepath.Join(k.Home, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o600))
	}
	outside := filepath.Join(first.Homes, "outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	must(t, os.Chown(outside, k.UID, k.GID))
	must(t, os.Symlink(outside, filepath.Join(k.Home, "link")))
	for _, name := range []string{"dir", "dir/deeper", "dir/deeper/file", "dir/other", "link"} {
		must(t, os.Lchown(filepath.Join(k.Home, name), k.UID, k.GID))
	}
	must(t, first.Leave(k))
	taken, err := LockUID(k.UID)
	must(t, err)
	defer taken.Close()
	moved, err := second.Keep("ses_1")
	must(t, err)
	if moved.UID == k.UID || moved.UID < 0 {
		t.Fatalf("uid %d", moved.UID)
	}
	for _, name := range []string{".", "dir", "dir/deeper/file", "dir/other", "link", ".bashrc", Dir} {
		if uid := owned(t, filepath.Join(moved.Home, name)); uid != moved.UID {
			t.Errorf("%s is %d's", name, uid)
		}
	}
	if owned(t, filepath.Join(moved.Home, "of root")) != 0 || owned(t, outside) != k.UID {
		t.Error("what is others' was given away")
	}
	must(t, moved.note(keptNote{ID: moved.ID, UIDs: []int{k.UID, moved.UID}})) // a crash in between
	must(t, os.Lchown(filepath.Join(moved.Home, "dir/other"), k.UID, k.GID))
	must(t, second.Leave(moved))
	again, err := first.Keep("ses_1")
	must(t, err)
	defer first.Leave(again)
	if uid := owned(t, filepath.Join(again.Home, "dir/other")); uid != again.UID {
		t.Errorf("uid %d, want %d", uid, again.UID)
	}
}

// TestKeptHomeIsolated: a home of the time when all ran as the agent's user gets
// a uid of its own.
func TestKeptHomeIsolated(t *testing.T) {
	first, second := keepers(t, true)
	first.Own = false
	k, err := first.Keep("ses_1")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(k.Home, "login"), nil, 0o600))
	must(t, first.Leave(k))
	k, err = second.Keep("ses_1")
	must(t, err)
	defer second.Leave(k)
	if k.UID < 0 || owned(t, k.Home) != k.UID || owned(t, filepath.Join(k.Home, "login")) != k.UID {
		t.Errorf("uid %d, the home is %d's", k.UID, owned(t, k.Home))
	}
}
