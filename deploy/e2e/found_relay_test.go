package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A loneRelay is a relay that a test has started beside those of its stack.
type loneRelay struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	ended  chan error
}

// startRelay starts a relay with the flags of the stack's first one, but for
// those that are given: a value of "-" leaves a flag out.
func startRelay(t *testing.T, s *Stack, change map[string]string) *loneRelay {
	t.Helper()
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.Ready.Relays[0].PID))
	must(t, err)
	flags := map[string]string{}
	words := strings.Split(strings.Trim(string(line), "\x00"), "\x00")[1:]
	for i := 0; i < len(words); i++ {
		name, value, joined := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		if !joined {
			if i+1 < len(words) && !strings.HasPrefix(words[i+1], "--") {
				i++
				value = words[i]
			} else {
				value = "true"
			}
		}
		flags[name] = value
	}
	for name, value := range map[string]string{
		"listen": "127.0.0.1:0", "tunnel-listen": "127.0.0.1:0", "admin-listen": "127.0.0.1:0",
		"tunnel-websocket-listen": "off", "preview-listen": "-", "preview-origin": "-", "ready-file": "-", "public-origins": "-",
	} {
		flags[name] = value
	}
	for name, value := range change {
		flags[name] = value
	}
	var args []string
	for name, value := range flags {
		if value != "-" {
			args = append(args, "--"+name+"="+value)
		}
	}
	r := &loneRelay{cmd: exec.Command(filepath.Join(programs, "relay"), args...), output: &lockedBuffer{}, ended: make(chan error, 1)}
	r.cmd.Stdout, r.cmd.Stderr = r.output, r.output
	must(t, r.cmd.Start())
	go func() { r.ended <- r.cmd.Wait() }()
	t.Cleanup(func() {
		r.cmd.Process.Signal(syscall.SIGTERM)
		<-r.ended
		if t.Failed() {
			t.Logf("relay:\n%s", r.output)
		}
	})
	return r
}

// says waits for a text in the relay's log.
func (r *loneRelay) says(t *testing.T, text string) {
	t.Helper()
	until(t, 30*time.Second, func() bool { return strings.Contains(r.output.String(), text) })
	if !strings.Contains(r.output.String(), text) {
		t.Fatalf("the relay doesn't say %q", text)
	}
}

// readiness returns the status and the text of /readyz.
func (r *loneRelay) readiness(ctx context.Context, t *testing.T) (status int, text string) {
	t.Helper()
	until(t, 30*time.Second, func() bool {
		for _, port := range listeners(t, r.cmd.Process.Pid) {
			code, body, err := Call(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz", port), "", nil)
			if err == nil && (code == http.StatusOK && bytes.Contains(body, []byte(`"ready"`)) || code == http.StatusServiceUnavailable) {
				status, text = code, string(body)
				return true
			}
		}
		return false
	})
	return status, text
}

// secretFile returns a file with a secret in it.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(secret), 0o600))
	return file
}

// TestFound19ARelayThatIsRefusedSaysSo: with its reason, at once, and it isn't
// ready; neither is one whose address the control plane doesn't take.
func TestFound19ARelayThatIsRefusedSaysSo(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	t.Run("of nobody", func(t *testing.T) {
		r := startRelay(t, s, map[string]string{"credential-file": secretFile(t, "rc_0123456789012345678901234567890123456789"), "relay-id": "-"})
		r.says(t, "not registered at the control plane")
		r.says(t, "status 401")
		status, text := r.readiness(ctx, t)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, "not registered") {
			t.Errorf("/readyz: %d %s", status, text)
		}
		if strings.Contains(r.output.String(), "relay ready") {
			t.Error("it says that it is ready")
		}
	})
	t.Run("of another relay", func(t *testing.T) {
		r := startRelay(t, s, map[string]string{"relay-id": "rl_other"})
		r.says(t, "status 403: the credential is another relay's")
		if status, text := r.readiness(ctx, t); status != http.StatusServiceUnavailable || !strings.Contains(text, "another relay's") {
			t.Errorf("/readyz: %d %s", status, text)
		}
	})
	t.Run("at an address that nobody may use", func(t *testing.T) {
		r := startRelay(t, s, map[string]string{"advertise-url": "http://192.0.2.1:80"})
		r.says(t, "status 400: url: want https, or http on loopback")
		if status, text := r.readiness(ctx, t); status != http.StatusServiceUnavailable || !strings.Contains(text, "want https") {
			t.Errorf("/readyz: %d %s", status, text)
		}
	})
}

// TestFound19TheRelaysLife: its credential is made, changed and taken back on the
// command line, where nobody reads it, and says which relay it is. Behind a
// balancer, on all addresses, it is registered and reached.
func TestFound19TheRelaysLife(t *testing.T) {
	s := own(t)
	ctx := within(t)
	state := filepath.Join(s.Dir, "controlplane")
	file := filepath.Join(t.TempDir(), "credential")
	id := strings.TrimSpace(run(t, "relay", "add", "--state-dir", state, "--credential-out", file))
	if !strings.HasPrefix(id, "rl_") {
		t.Fatalf("added %q", id)
	}
	info, err := os.Stat(file)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the credential's file has mode %v", info.Mode())
	}
	r := startRelay(t, s, map[string]string{
		"credential-file": file, "relay-id": "-", "listen": "0.0.0.0:0", "behind-proxy": "true", "public-origins": "https://relay.example",
	})
	r.says(t, "relay ready")
	r.says(t, id)
	if status, text := r.readiness(ctx, t); status != http.StatusOK {
		t.Errorf("/readyz: %d %s", status, text)
	}
	list := run(t, "relay", "list", "--state-dir", state)
	if !strings.Contains(list, id) || !strings.Contains(list, "https://relay.example") {
		t.Errorf("list:\n%s", list)
	}
	// A command for pages goes to all relays: this one is found, and answers.
	alice := s.Ready.User("alice")
	status, body, err := Call(ctx, http.MethodPost, alice.Base+"/commands", alice.Token, map[string]any{
		"target": map[string]any{"sessionId": s.Ready.SessionID, "extensionId": "ekklpckfabcdefghijklmnopabcdefgh", "tabId": 1}, "ttlMs": 1000,
		"op": map[string]any{"kind": "cdp.send", "method": "Page.reload"},
	})
	must(t, err)
	if status != http.StatusOK {
		t.Errorf("a command for pages: %d %s", status, body)
	}
	if log := s.Logs("controlplane"); strings.Contains(log, "relay="+id+" status=403") || strings.Contains(log, "relay="+id+" err") {
		t.Errorf("a command doesn't get there (%d %s):\n%s", status, body, log)
	}
	old, err := os.ReadFile(file)
	must(t, err)
	fresh := strings.TrimSpace(run(t, "relay", "rotate", "--state-dir", state, id))
	if !strings.HasPrefix(fresh, id+".") || fresh == strings.TrimSpace(string(old)) {
		t.Errorf("rotated into %d bytes", len(fresh))
	}
	late := startRelay(t, s, map[string]string{"credential-file": file, "relay-id": "-"})
	late.says(t, "status 401")
	again := startRelay(t, s, map[string]string{"credential-file": secretFile(t, fresh), "relay-id": "-"})
	again.says(t, "relay ready")
	run(t, "relay", "remove", "--state-dir", state, id)
	gone := startRelay(t, s, map[string]string{"credential-file": secretFile(t, fresh), "relay-id": "-"})
	gone.says(t, "status 401")
	if list := run(t, "relay", "list", "--state-dir", state); strings.Contains(list, id) {
		t.Errorf("list:\n%s", list)
	}
	for _, text := range []string{s.Logs("controlplane"), r.output.String(), again.output.String()} {
		if strings.Contains(text, strings.TrimPrefix(fresh, id+".")) {
			t.Error("a credential is in a log")
		}
	}
}

// run runs the control plane's program and returns what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(programs, "controlplane"), args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("controlplane %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// boardOf returns the name of the session's dashboard: other tests make more of
// them.
func boardOf(t *testing.T, state, session string) string {
	t.Helper()
	for _, line := range strings.Split(run(t, "dashboard", "list", "--state-dir", state, "--user", "alice"), "\n")[1:] {
		if f := strings.Fields(line); len(f) > 1 && strings.Contains(run(t, "session", "list", "--state-dir", state, "--dashboard", f[0]), session) {
			return f[1]
		}
	}
	t.Fatal("the session is in no dashboard")
	return ""
}

// TestFound19CommandLine: a session is made and ended by names, and what isn't a
// command or a flag may have been another.
func TestFound19CommandLine(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	state := filepath.Join(s.Dir, "controlplane")
	board := boardOf(t, state, string(s.Ready.SessionID))
	id := strings.TrimSpace(run(t, "session", "create", "--state-dir", state, "--user", "alice", "--dashboard", board))
	alice := s.Ready.User("alice")
	var me struct {
		Sessions []struct {
			ID string `json:"id"`
		} `json:"sessions"`
	}
	must(t, call(ctx, http.StatusOK, &me, http.MethodGet, alice.Base+"/auth/me", alice.Token, nil))
	if !slices.ContainsFunc(me.Sessions, func(s struct {
		ID string `json:"id"`
	}) bool {
		return s.ID == id
	}) {
		t.Errorf("session %q is none of %v", id, me.Sessions)
	}
	run(t, "session", "delete", "--state-dir", state, "--user", "alice", "--session", id)
	if list := run(t, "session", "list", "--state-dir", state, "--dashboard", board); !regexp.MustCompile(id + ` +ended`).MatchString(list) {
		t.Errorf("sessions:\n%s", list)
	}
	for _, c := range []struct{ program, line, want string }{
		{"controlplane", "sesion list", `did you mean "session"?`},
		{"controlplane", "session crate", `did you mean "create"?`},
		{"relay", "--lisen 127.0.0.1:0", "did you mean --listen?"},
		{"sandbox-agent", "--state-dri x", "did you mean --state-dir?"},
	} {
		out, err := exec.Command(filepath.Join(programs, c.program), strings.Fields(c.line)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s %s: %v\n%s", c.program, c.line, err, out)
		}
	}
}

// TestFound19DefaultPorts: programs that are started on one machine without a
// word about ports don't want the same.
func TestFound19DefaultPorts(t *testing.T) {
	address := regexp.MustCompile(`--([a-z-]*listen) .*\(default "?[a-z0-9.]*:(\d+)"?\)`)
	taken := map[string]string{}
	for _, program := range []string{"relay", "controlplane", "sandbox-agent"} {
		out, err := exec.Command(filepath.Join(programs, program), "--help").CombinedOutput()
		must(t, err)
		found := address.FindAllStringSubmatch(string(out), -1)
		if len(found) == 0 {
			t.Errorf("%s has no address by default:\n%s", program, out)
		}
		for _, f := range found {
			flag := program + " --" + f[1]
			if other := taken[f[2]]; other != "" {
				t.Errorf("port %s is that of %s and of %s", f[2], other, flag)
			}
			taken[f[2]] = flag
		}
	}
	t.Log(taken)
}
