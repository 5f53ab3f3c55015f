package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// A ShellFrame is one to a client of the shell socket.
type ShellFrame struct {
	Type, Data, Message, URL string
	AutoOpen                 bool
}

// A ShellClient is one of the shell socket, as seed 002's web client is.
type ShellClient struct {
	*websocket.Conn
	t   testing.TB
	ctx context.Context
}

// dialShell opens a shell socket.
func dialShell(ctx context.Context, t testing.TB, s *Stack, user string) *ShellClient {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var ticket struct {
		Ticket string `json:"ticket"`
	}
	must(t, call(ctx, http.StatusOK, &ticket, http.MethodPost, u.Base+"/chat-session", grant, nil))
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(u.Base, "http")+"/shell?token="+ticket.Ticket, &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {u.Base}},
	})
	must(t, err)
	conn.SetReadLimit(-1)
	t.Cleanup(func() { conn.CloseNow() })
	return &ShellClient{conn, t, ctx}
}

// Send sends a frame.
func (c *ShellClient) Send(frame map[string]any) {
	c.t.Helper()
	text, err := json.Marshal(frame)
	must(c.t, err)
	must(c.t, c.Write(c.ctx, websocket.MessageText, text))
}

// Plain asks for the shell of a command, as the web client does.
func (c *ShellClient) Plain(command string) {
	c.t.Helper()
	c.Send(map[string]any{
		"type": "init", "projectPath": "", "sessionId": nil, "hasSession": false, "provider": op.PlainShell,
		"cols": 90, "rows": 31, "initialCommand": command, "isPlainShell": true,
	})
}

// Until returns what comes until ok is true of a frame: that frame, and all output.
func (c *ShellClient) Until(what string, ok func(f ShellFrame, output string) bool) (f ShellFrame, output string) {
	c.t.Helper()
	for {
		_, data, err := c.Read(c.ctx)
		if err != nil {
			c.t.Fatalf("%s: %v behind %q", what, err, output)
		}
		f = ShellFrame{}
		must(c.t, json.Unmarshal(data, &f))
		if output += f.Data; ok(f, output) {
			return f, output
		}
	}
}

// Expect returns the output up to want.
func (c *ShellClient) Expect(want string) string {
	c.t.Helper()
	_, output := c.Until(want, func(_ ShellFrame, output string) bool { return strings.Contains(output, want) })
	return output
}

// Complains returns the message of the next error.
func (c *ShellClient) Complains() string {
	c.t.Helper()
	f, _ := c.Until("an error", func(f ShellFrame, _ string) bool { return f.Type == "error" })
	return f.Message
}

// TestShell: seed 002's shell socket over the real programs. It is a terminal like
// any other, outlives a relay, and tells how it ended while nobody watched.
func TestShell(t *testing.T) {
	ctx := within(t)
	s := own(t)
	before := openPorts(t, s, -1)
	c := dialShell(ctx, t, s, "alice")
	c.Send(map[string]any{"type": "init", "provider": "claude", "projectPath": "/etc"})
	if got := c.Complains(); got != op.ShellBadPath {
		t.Errorf("%q", got)
	}
	c.Send(map[string]any{"type": "init", "provider": "claude", "sessionId": "$(touch /tmp/owned)", "hasSession": true})
	if got := c.Complains(); got != op.ShellBadSession {
		t.Errorf("%q", got)
	}
	const command = `echo "$TERM $COLORTERM $FORCE_COLOR $(stty size)"; while read -r line; do echo "got <$line> é"; [ "$line" = link ] && echo 'Open this URL: https://example.com/in?a=1 now'; [ "$line" = go ] && { sleep 1; echo last words; exit 3; }; done`
	c.Plain(command)
	c.Expect("xterm-256color truecolor 3 31 90")
	if opened := newPorts(t, s, -1, before); len(opened) > 0 {
		t.Errorf("a shell opens %v", opened)
	}
	c.Send(map[string]any{"type": "input", "data": "ünö $(id)\r"})
	c.Expect("got <ünö $(id)> é")
	c.Send(map[string]any{"type": "input", "data": "link\r"})
	if f, _ := c.Until("an address", func(f ShellFrame, _ string) bool { return f.Type == "auth_url" }); f.URL != "https://example.com/in?a=1" || !f.AutoOpen {
		t.Errorf("%+v", f)
	}

	shell := &op.Shell{Provider: op.PlainShell, InitialCommand: command, Plain: true}
	id := shell.PTYID(s.Ready.SessionID)
	if info := terminalInfo(t, ctx, s, id); info.OnDetach != "30m" || info.Command != command {
		t.Errorf("%+v", info)
	}
	must(t, attach(t, s, "alice", id).Expect(ctx, "got <link>")) // as the console shows it
	watcher := dialShell(ctx, t, s, "carol")
	watcher.Plain(command)
	if output := watcher.Expect("got <link>"); !strings.Contains(output, "Reconnected") {
		t.Errorf("no banner: %q", output)
	}
	watcher.Send(map[string]any{"type": "input", "data": "nothing of this\r"})
	if got := watcher.Complains(); !strings.Contains(got, "Nothing was typed") {
		t.Errorf("%q", got)
	}

	pid := s.Ready.Relays[0].PID
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, t, s, 0, pid)
	c = dialShell(ctx, t, s, "alice")
	c.Plain(command)
	if output := c.Expect("got <link>"); strings.Contains(output, "nothing of this") {
		t.Errorf("typed: %q", output)
	}
	c.Send(map[string]any{"type": "input", "data": "go\r"})
	c.Expect("got <go>")
	c.CloseNow()
	for terminalInfo(t, ctx, s, id).Exited == nil {
	}
	c = dialShell(ctx, t, s, "alice")
	c.Plain(command)
	if output := c.Expect("Process exited with code 3"); !strings.Contains(output, "last words") {
		t.Errorf("%q", output)
	}
	c.Plain(command)
	if output := c.Expect("truecolor"); strings.Contains(output, "last words") {
		t.Errorf("the next one: %q", output)
	}
}

// TestShellNonsense: what is no shell is refused by the routes that make terminals.
func TestShellNonsense(t *testing.T) {
	ctx, s := within(t), shared(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	shell := func(change map[string]any) map[string]any {
		made := map[string]any{"provider": "claude", "session_id": "a", "has_session": true}
		for name, value := range change {
			made[name] = value
		}
		return made
	}
	for name, body := range map[string]map[string]any{
		"an id of shell text":  {"shell": shell(map[string]any{"session_id": "$(id)"})},
		"an option":            {"shell": shell(map[string]any{"session_id": "--help"})},
		"no provider":          {"shell": shell(map[string]any{"provider": ""})},
		"another provider":     {"shell": shell(map[string]any{"provider": "bash"})},
		"an unknown member":    {"shell": shell(map[string]any{"argv": []string{"id"}})},
		"a member's type":      {"shell": shell(map[string]any{"plain": "yes"})},
		"no object":            {"shell": "claude"},
		"a command beside it":  {"shell": shell(nil), "command": "id"},
		"an id beside it":      {"shell": shell(nil), "pty_id": "pty_mine"},
		"outside of workspace": {"shell": shell(map[string]any{"project_path": "../.."})},
	} {
		status, answer, err := Call(ctx, http.MethodPost, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, body)
		must(t, err)
		if status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, status, answer)
		}
		ask := map[string]any{"kind": "pty.create", "shell": body["shell"]}
		target := map[string]any{"sessionId": s.Ready.SessionID}
		if body["command"] != nil {
			ask["command"] = body["command"]
		}
		if body["pty_id"] != nil {
			target["ptyId"] = body["pty_id"]
		}
		status, answer, err = Call(ctx, http.MethodPost, alice.Base+"/commands", alice.Token, map[string]any{"target": target, "op": ask})
		must(t, err)
		var outcome struct {
			Status string
			Error  *protocol.ErrorBody
		}
		if status != http.StatusBadRequest && (json.Unmarshal(answer, &outcome) != nil || outcome.Status != "error") {
			t.Errorf("%s, by a command: %d %s", name, status, answer)
		}
	}
}

// BenchmarkShell: a key and its echo by the shell socket, beside the same by the
// terminal's own. The ratio of the medians is to be 1.3 at most.
func BenchmarkShell(b *testing.B) {
	s, ctx := own(b), b.Context()
	plain := attachEcho(b, s)
	c := dialShell(ctx, b, s, "alice")
	c.Plain("stty raw -echo; echo ready; exec cat")
	c.Expect("ready")
	var direct, shell []time.Duration
	const rounds = 200
	for b.Loop() {
		for range rounds {
			timed(b, &direct, func() error {
				err := plain.Write(ctx, websocket.MessageBinary, []byte("x"))
				for err == nil {
					var kind websocket.MessageType
					if kind, _, err = plain.Read(ctx); kind == websocket.MessageBinary {
						break
					}
				}
				return err
			})
			timed(b, &shell, func() error {
				err := c.Write(ctx, websocket.MessageText, []byte(`{"type":"input","data":"x"}`))
				if err == nil {
					_, _, err = c.Read(ctx)
				}
				return err
			})
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(direct, 0.5)), "terminal-p50-ms")
	b.ReportMetric(millis(quantile(shell, 0.5)), "p50-ms")
	b.ReportMetric(float64(quantile(shell, 0.5))/float64(quantile(direct, 0.5)), "p50-ratio")
}
