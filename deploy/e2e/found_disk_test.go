package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// onAFullDisk starts an agent on a copy of the state directory, which is a file
// system of 1 MiB that is full. It returns the directory as we see it, whatever
// is mounted there, and a function that makes room.
func onAFullDisk(t *testing.T, state string) (dir string, makeRoom func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("mounting a small disk needs root")
		}
		t.Skip("mounting a small disk needs root")
	}
	mount, files := t.TempDir(), terminalFiles(t)
	const script = `set -e
mount -t tmpfs -o size=1m tmpfs "$1"
cp -a "$2/." "$1"
dd if=/dev/zero of="$1/filler" bs=1k 2>/dev/null || true
"$3" --state-dir "$1" --status-file "$1/status.json" --workspace "$4/workspace" --homes "$4/homes" \
	--broker-listen 127.0.0.1:0 --egress-listen 127.0.0.1:0 --mcp-listen 127.0.0.1:0 &
if read -r room; then
	rm "$1/filler"
	read -r end || true
fi
kill $!
wait`
	sh := exec.Command("sh", "-c", script, "sh", mount, state, filepath.Join(programs, "sandbox-agent"), files)
	sh.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	output := &lockedBuffer{}
	sh.Stdout, sh.Stderr = output, output
	orders, err := sh.StdinPipe()
	must(t, err)
	must(t, sh.Start())
	t.Cleanup(func() {
		orders.Close()
		sh.Wait()
		if t.Failed() {
			t.Logf("the agent:\n%s", output)
		}
	})
	return filepath.Join("/proc", strconv.Itoa(sh.Process.Pid), "root", mount), func() {
		_, err := orders.Write([]byte("room\n"))
		must(t, err)
	}
}

// agentStatus is what a status file says; none: the zero value.
type agentStatus struct {
	Ready    bool               `json:"ready"`
	Problems []protocol.Problem `json:"problems"`
}

func readStatus(t *testing.T, dir string) (s agentStatus, there bool) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "status.json"))
	if err != nil {
		return s, false
	}
	must(t, json.Unmarshal(data, &s))
	return s, true
}

// TestFound26FullDiskAtStart: an agent was killed and starts on a full disk. Its
// status file never says what the killed one said; it registers and tells its
// relay, serves what needs no disk, refuses commands, and is as ever when there
// is room.
func TestFound26FullDiskAtStart(t *testing.T) {
	s := own(t)
	ctx := within(t)
	key, alice, state := signer(t, s), s.Ready.User("alice"), s.Ready.Sandboxes[0].StateDir
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	must(t, syscall.Kill(s.Ready.Sandboxes[0].PID, syscall.SIGKILL))
	health := func() string {
		_, body, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].AdminURL+"/healthz", "", nil)
		must(t, err)
		return string(body)
	}
	await(t, "the relay to miss the agent", func() bool { return !strings.Contains(health(), `"primary":true`) })
	if was, _ := readStatus(t, state); !was.Ready {
		t.Fatal("a killed agent has changed its status file")
	}
	mount, makeRoom := onAFullDisk(t, state)
	await(t, "the agent at its relay", func() bool { return strings.Contains(health(), `"name":"ledger"`) })
	if now, there := readStatus(t, mount); there && (now.Ready || len(now.Problems) == 0) {
		t.Errorf("the status file says %+v on a full disk", now)
	}
	// Nothing below writes, so it works.
	files := alice.Base + "/sessions/" + string(s.Ready.SessionID) + "/files?path=/"
	if status, body, err := Call(ctx, http.MethodGet, files, grant, nil); err != nil || status != http.StatusOK {
		t.Errorf("files: %d %s %v", status, body, err)
	}
	run := func() (int, protocol.ExecutionCallback) {
		cmd := command(s, protocol.NewPTYID())
		token, err := key.SignCommand(cmd)
		must(t, err)
		return post(ctx, t, s, envelope(cmd, token))
	}
	if status, callback := run(); callback.Error == nil || callback.Error.Name != protocol.KindInternal.Name() {
		t.Errorf("a command that can't be recorded: %d %+v", status, callback)
	}
	makeRoom()
	await(t, "a status file that says ready", func() bool {
		now, _ := readStatus(t, mount)
		return now.Ready && len(now.Problems) == 0
	})
	if status, callback := run(); callback.Status != protocol.StatusOK {
		t.Errorf("a command when there is room: %d %+v", status, callback)
	}
}
