package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// processesOf counts what runs as uid.
func processesOf(uid int) (n int) {
	process.Each(func(s process.Stat) {
		if s.UID == uid {
			n++
		}
	})
	return n
}

// TestDeserted closes a terminal with its last viewer. Its program ignores INT and
// HUP, and so does what it has started, in sessions of its own and stopped: all of
// it lives on for a while, and nothing is left in the end.
func TestDeserted(t *testing.T) {
	t.Parallel()
	h := realHost(t, IsolationUID)
	u := sitDown(t, h, op.PTYCreate{OnDetach: op.DetachClose, Command: `
		trap '' INT HUP; setsid sleep 1101 & sleep 1102 & sh -c 'kill -STOP $$' &
		echo "uid=$(id -u) up"; while :; do sleep 1103; done`})
	uid, err := strconv.Atoi(u.expect(`uid=(\d+) up`))
	must(t, err)
	u.audience(1)
	if processesOf(uid) < 4 {
		t.Fatalf("%d processes of uid %d", processesOf(uid), uid)
	}
	start := time.Now()
	u.audience(0)
	u.wantExit(-1, "SIGKILL")
	if took := time.Since(start); took < 2*time.Second { // TestDetachedDies shows how long at most
		t.Errorf("it was killed after %v", took)
	}
	<-u.terminal.life.gone
	if n := processesOf(uid); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestInterrupted: a program that heeds INT ends by itself, in its own way.
func TestInterrupted(t *testing.T) {
	h := realHost(t, IsolationNone)
	u := sitDown(t, h, op.PTYCreate{OnDetach: op.DetachClose, Command: `trap 'echo saved; exit 7' INT; echo up; while :; do sleep 0.05; done`})
	u.expect("up")
	u.audience(0)
	u.expect("saved")
	u.wantExit(7, "")
}

// TestLazyShell starts a real shell with its first key: before, there is neither a
// process nor a PTY.
func TestLazyShell(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		before := ptys(t)
		u := sitDown(t, h, op.PTYCreate{CreatorID: alice, Spawn: op.SpawnLazy})
		u.Resize(protocol.Resize{Term: u.term, Cols: 111, Rows: 33})
		uid, ok := h.UID(session, u.id)
		if now := ptys(t); now != before {
			t.Errorf("%d PTYs, %d before", now, before)
		}
		if n := processesOf(uid); !ok || h.config.Isolation == IsolationUID && n > 0 {
			t.Errorf("%d processes of uid %d", n, uid)
		}
		u.enter("stty size; echo key=$((6*7))\r")
		u.expect(`33 111\r\nkey=42\r`)
		u.enter("exit 3\r")
		u.wantExit(3, "")
	})
}

// ptys counts the PTYs that this process has open.
func ptys(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	for _, entry := range entries {
		if path, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); err == nil && path == "/dev/ptmx" {
			n++
		}
	}
	return n
}

// TestLazyFolderIsGone: what a program needs may be gone by its first byte.
func TestLazyFolderIsGone(t *testing.T) {
	h := realHost(t, IsolationNone)
	dir := filepath.Join(h.config.Workspace, "gone")
	must(t, os.Mkdir(dir, 0o755))
	u := sitDown(t, h, op.PTYCreate{Spawn: op.SpawnLazy, Dir: "gone"})
	must(t, os.Remove(dir))
	u.Input(protocol.Input{Term: u.term, Seq: 1, Client: "c", Bytes: []byte("x")})
	u.endsSaying("can't be started", 126)
}

// endsSaying reads until the terminal has ended with code, having said what. What
// was typed may be refused.
func (u *user) endsSaying(what string, code int) {
	u.t.Helper()
	for {
		switch m := u.next().(type) {
		case protocol.Data:
			u.seen.Write(m.Bytes)
		case protocol.Exited:
			if m.Code != code || !bytes.Contains(u.seen.Bytes(), []byte(what)) {
				u.t.Errorf("%+v; seen %q", m, u.seen.String())
			}
			return
		}
	}
}
