package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// The sandbox accepts no connection from outside: no socket of the agent's
// waits on anything but loopback.
func TestAgentListensNowhere(t *testing.T) {
	s := shared(t)
	out, err := exec.Command("ss", "-Hltnup").Output()
	if err != nil {
		t.Fatalf("ss (Debian: iproute2): %v", err)
	}
	mine := fmt.Sprintf("pid=%d,", s.Ready.Sandboxes[0].PID)
	relays := fmt.Sprintf("pid=%d,", s.Ready.Relays[0].PID)
	sawRelay := false
	for line := range strings.Lines(string(out)) {
		sawRelay = sawRelay || strings.Contains(line, relays)
		if !strings.Contains(line, mine) {
			continue
		}
		local, err := netip.ParseAddrPort(strings.Fields(line)[4])
		if err != nil || !local.Addr().IsLoopback() {
			t.Errorf("the agent listens: %s", line)
		}
	}
	if !sawRelay {
		t.Fatalf("ss does not even show the relay:\n%s", out)
	}
}

// terminalFiles makes a directory for workspaces and homes, which terminals'
// users can reach.
func terminalFiles(t *testing.T) string {
	t.Helper()
	files, err := os.MkdirTemp(openTemp, tempName())
	must(t, err)
	must(t, os.Chmod(files, 0o711)) // terminals run under users of their own
	t.Cleanup(func() { os.RemoveAll(files) })
	return files
}

// startAgent runs another agent on a state directory.
func startAgent(t *testing.T, stateDir string, flags ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	files := terminalFiles(t)
	return runAgent(t, append([]string{"--state-dir", stateDir,
		"--workspace", filepath.Join(files, "workspace"), "--homes", filepath.Join(files, "homes")}, flags...)...)
}

// runAgent runs an agent with these arguments until the test ends.
func runAgent(t *testing.T, args ...string) (*exec.Cmd, *lockedBuffer) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, "sandbox-agent"), args...)
	output := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = output, output
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
	})
	return cmd, output
}

// awaitText polls until text appears in what read returns.
func awaitText(ctx context.Context, t *testing.T, read func() string, text string) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for !strings.Contains(read(), text) {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatalf("waiting for %q in:\n%s", text, read())
		}
	}
}

// copyState copies the state directory of the stack's agent, which goes on
// writing: what it is about to put in place may be gone while we look.
func copyState(t *testing.T, s *Stack) (dir string) {
	t.Helper()
	await(t, "a copy of the state", func() bool {
		dir = filepath.Join(t.TempDir(), "copy")
		err := os.CopyFS(dir, os.DirFS(s.Ready.Sandboxes[0].StateDir))
		if !errors.Is(err, fs.ErrNotExist) {
			must(t, err)
		}
		return err == nil
	})
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	}))
	return dir
}

func TestSecondCopyOfASandbox(t *testing.T) {
	s := own(t)
	ctx := within(t)
	_, output := startAgent(t, copyState(t, s))
	awaitText(ctx, t, output.String, "connected")
	// The older one ends and says why.
	awaitText(ctx, t, func() string { return s.Logs("sandbox-agent-1") }, "another copy of sandbox "+string(s.Ready.Sandboxes[0].ID)+" took over")
	awaitText(ctx, t, s.Output, "sandbox-agent-1")
	// The newer one is in use.
	a := attach(t, s, "alice", newPTY(t, s, ""))
	must(t, a.Type(ctx, "echo second-$((1+1))\r"))
	must(t, a.Expect(ctx, "second-2\r\n"))
}

func TestSameSandboxWithAnotherKey(t *testing.T) {
	s := own(t)
	ctx := within(t)
	a := attach(t, s, "alice", s.Ready.PTYID)
	must(t, a.Type(ctx, "echo before-$((1))\r"))
	must(t, a.Expect(ctx, "before-1\r\n"))

	dir := t.TempDir()
	public, err := exec.Command(filepath.Join(programs, "sandbox-agent"), "keygen", "--state-dir", dir).Output()
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "pub.json"), public, 0o600))
	out, err := exec.Command(filepath.Join(programs, "controlplane"), "enrol", "--replace",
		"--state-dir", filepath.Join(s.Dir, "controlplane"), "--sandbox", string(s.Ready.Sandboxes[0].ID),
		"--device-key", filepath.Join(dir, "pub.json"), "--ca", filepath.Join(s.Dir, "ca.pem"),
		"--server-name", "controlplane.fairlead.internal", "--relay", s.Ready.Relays[0].Tunnel,
		"--relay-ca", filepath.Join(s.Dir, "ca.pem"), "--out", filepath.Join(dir, "enrolment.json")).CombinedOutput()
	if err != nil {
		t.Fatalf("enrol: %v: %s", err, out)
	}
	_, output := startAgent(t, dir)
	awaitText(ctx, t, output.String, "another key")
	// The incumbent noticed nothing.
	must(t, a.Type(ctx, "echo after-$((1))\r"))
	must(t, a.Expect(ctx, "after-1\r\n"))
	for _, m := range a.Messages() {
		if m.Type() == protocol.ServerWaiting {
			t.Error("the incumbent's terminal was interrupted")
		}
	}
}

// killRelay ends the first relay as a crash does.
func killRelay(t *testing.T, s *Stack) {
	t.Helper()
	must(t, syscall.Kill(s.Ready.Relays[0].PID, syscall.SIGKILL))
}

func TestRelayComesBackAfterKill(t *testing.T) {
	s := own(t)
	ctx := within(t)
	a := attach(t, s, "alice", s.Ready.PTYID)
	must(t, a.Type(ctx, "echo before-$((1))\r"))
	must(t, a.Expect(ctx, "before-1\r\n"))
	m, err := a.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	since := fmt.Sprintf("%s:%d", m["epoch"], uint64(m["offset"].(float64))+uint64(len(a.Output())))
	killRelay(t, s)
	_, err = a.ExpectClose(ctx)
	must(t, err)

	var again *Terminal
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for again == nil {
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("the terminal did not come back")
		}
		if again, err = s.Ready.User("alice").Attach(ctx, s.Ready.SessionID, s.Ready.PTYID, since); err != nil {
			again = nil
		}
	}
	t.Cleanup(again.Close)
	// The lease outlived the relay: alice types at once.
	must(t, again.Type(ctx, "echo after-$((1))\r"))
	must(t, again.Expect(ctx, "after-1\r\n"))
	if bytes.Contains(again.Output(), []byte("before-1")) {
		t.Errorf("bytes came twice: %q", again.Output())
	}
}

func TestStartErrorsAreOneLine(t *testing.T) {
	s := shared(t)
	dir := t.TempDir()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer busy.Close()
	config := filepath.Join(dir, "relay.yaml")
	must(t, os.WriteFile(config, []byte("listn: 127.0.0.1:0\n"), 0o600))
	garbled := filepath.Join(dir, "garbled.pem")
	must(t, os.WriteFile(garbled, []byte("no key"), 0o600))
	secret := filepath.Join(dir, "secret")
	must(t, os.WriteFile(secret, []byte("0123456789abcdef"), 0o600))
	relayDir := filepath.Join(s.Dir, "relay-1")
	relay := func(extra ...string) []string {
		return append([]string{
			"relay", "--listen", "127.0.0.1:0", "--tunnel-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
			"--tunnel-cert", filepath.Join(relayDir, "tunnel.pem"), "--tunnel-key", filepath.Join(relayDir, "tunnel-key.pem"),
			"--control-plane-url", "http://127.0.0.1:1", "--control-plane-connect", "127.0.0.1:1", "--credential-file", secret,
		}, extra...)
	}
	cases := []struct {
		name string
		args []string
		says string
	}{
		{"busy port", relay("--listen", busy.Addr().String()), busy.Addr().String()},
		{"busy admin port", relay("--admin-listen", busy.Addr().String()), busy.Addr().String()},
		{"missing key", relay("--tunnel-key", filepath.Join(dir, "none.pem")), "none.pem"},
		{"garbled key", relay("--tunnel-key", garbled), "garbled.pem"},
		{"missing secret", relay("--credential-file", filepath.Join(dir, "none")), filepath.Join(dir, "none")},
		{"unknown configuration key", relay("--config", config), "listn"},
		{"unknown flag", relay("--no-such-flag"), "no-such-flag"},
		{"plain HTTP beyond loopback", relay("--listen", "0.0.0.0:0"), "--cert"},
		{"devstack's busy port", []string{"devstack", "--listen", busy.Addr().String(), "--state-dir", filepath.Join(dir, "stack")}, busy.Addr().String()},
		{"agent without enrolment", []string{"sandbox-agent", "--state-dir", filepath.Join(dir, "agent")}, "enrolment"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(within(t), filepath.Join(programs, c.args[0]), c.args[1:]...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if err == nil || !strings.HasPrefix(stderr.String(), c.args[0]+": error: ") {
				t.Fatalf("%v (%T): %s", err, exit, stderr.String())
			}
			first, rest, _ := strings.Cut(stderr.String(), "\n")
			if !strings.Contains(first, c.says) {
				t.Errorf("%q does not name %q", first, c.says)
			}
			if rest != "" && !strings.HasPrefix(rest, c.args[0]+": hint: ") {
				t.Errorf("more than one line: %q", stderr.String())
			}
		})
	}
}
