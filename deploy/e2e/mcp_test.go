package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// want fails unless a tool call succeeds with a text that holds part.
func (c *ToolClient) want(ctx context.Context, t *testing.T, part, tool string, arguments map[string]any) string {
	t.Helper()
	text, failed, err := c.Call(ctx, tool, arguments)
	if err != nil || failed || !strings.Contains(text, part) {
		t.Fatalf("%s %v: %q failed=%v %v", tool, arguments, text, failed, err)
	}
	return text
}

func tools(ctx context.Context, t *testing.T, s *Stack, user string) *ToolClient {
	t.Helper()
	c, err := s.Ready.User(user).Tools(ctx, s.Ready.SessionID)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

// TestTools calls tools of every sort through the relay and as a program of a
// terminal.
func TestTools(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "")
	a := attach(t, s, "alice", id)
	must(t, a.Type(ctx, "echo ready-$((40+2))\r"))
	must(t, a.Expect(ctx, "ready-42\r\n"))
	must(t, a.Say(ctx, Message{"type": "revoke_control"}))
	_, err := a.ExpectMessage(ctx, protocol.ServerControlRevoked, nil)
	must(t, err)

	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, id)
	must(t, err)
	local, err := LocalTools(ctx, credentials)
	must(t, err)
	defer local.Close()
	for _, c := range []*ToolClient{local, tools(ctx, t, s, "alice")} {
		names, err := c.List(ctx)
		must(t, err)
		for _, name := range []string{
			"terminal_list", "terminal_read", "terminal_send", "terminal_run", "file_read", "file_write", "file_list",
			"browser_navigate", "browser_screenshot", "task_create", "memory_set", "create_note", "list_items",
		} {
			if !slices.Contains(names, name) {
				t.Errorf("no tool %s in %v", name, names)
			}
		}
		if i := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, "github_") }); i >= 0 {
			t.Errorf("%s with nothing attached", names[i])
		}
		c.want(ctx, t, "ready-42", "terminal_read", map[string]any{"pty_id": id})
	}
	c := tools(ctx, t, s, "alice")
	c.want(ctx, t, "", "file_write", map[string]any{"path": "tools.txt", "content": "by a tool"})
	local.want(ctx, t, "by a tool", "file_read", map[string]any{"path": "tools.txt"})
	run := c.want(ctx, t, "sum-3", "terminal_run", map[string]any{"pty_id": id, "command": "echo sum-$((1+2)); (exit 7)"})
	if !strings.Contains(run, "7") {
		t.Errorf("terminal_run: no exit code in %q", run)
	}
	must(t, a.Expect(ctx, "sum-3\r\n")) // people see it
	c.want(ctx, t, "", "task_create", map[string]any{"title": "caulk the deck"})
	local.want(ctx, t, "caulk the deck", "task_list", map[string]any{})
	local.want(ctx, t, "", "memory_set", map[string]any{"key": "harbour", "value": "Ostende"})
	c.want(ctx, t, "Ostende", "memory_get", map[string]any{"key": "harbour"})
	local.want(ctx, t, "", "create_note", map[string]any{"text": "made in a terminal"})
	c.want(ctx, t, "made in a terminal", "list_items", map[string]any{})

	if _, err := s.Ready.User("carol").Tools(ctx, s.Ready.SessionID); err == nil || !strings.Contains(err.Error(), "403") {
		t.Errorf("a viewer uses tools: %v", err)
	}
	if text, failed, err := c.Call(ctx, "file_read", map[string]any{"path": "../../etc/passwd"}); err != nil || !failed {
		t.Errorf("outside of the workspace: %q %v", text, err)
	}
}

// TestToolsNeedTheSecret: a terminal's tools are its own programs' alone.
func TestToolsNeedTheSecret(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	mine, err := Credentials(s.Ready.Sandboxes[0].PID, s.Ready.PTYID)
	must(t, err)
	others, err := Credentials(s.Ready.Sandboxes[0].PID, newPTY(t, s, ""))
	must(t, err)
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
	for _, tt := range []struct {
		what   string
		status int
		change func(*http.Request)
	}{
		{"right", 200, func(*http.Request) {}},
		{"no secret", 403, func(r *http.Request) { r.Header.Del(protocol.MCPSecretHeader) }},
		{"another terminal's", 403, func(r *http.Request) { r.Header.Set(protocol.MCPSecretHeader, others.Secret) }},
		{"for another terminal", 403, func(r *http.Request) { r.URL.RawQuery = "pty_id=" + string(others.PTYID) }},
		{"for none", 400, func(r *http.Request) { r.URL.RawQuery = "" }},
		{"evil host", 403, func(r *http.Request) { r.Host = "evil.example" }},
		{"evil origin", 403, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		{"plain text", 415, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }},
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, mine.URL+"?pty_id="+string(mine.PTYID), strings.NewReader(initialize))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set(protocol.MCPSecretHeader, mine.Secret)
		tt.change(req)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s", tt.what, resp.Status)
		}
	}
}

// TestToolSessionOutlivesTheRelay: the MCP session is the agent's, so a relay's
// death costs a client no more than a request.
func TestToolSessionOutlivesTheRelay(t *testing.T) {
	s := own(t)
	ctx := within(t)
	c := tools(ctx, t, s, "alice")
	c.want(ctx, t, "", "terminal_list", map[string]any{})
	pid := s.Ready.Relays[0].PID
	killRelay(t, s)
	awaitRelay(ctx, t, s, 0, pid)
	var text string
	await(t, "a call in the same session", func() bool {
		var err error
		text, _, err = c.Call(ctx, "terminal_list", map[string]any{})
		return err == nil
	})
	if !strings.Contains(text, string(s.Ready.PTYID)) {
		t.Errorf("terminal_list: %q", text)
	}
}

// TestAgentStopped: what a stop hook reports is shown to everybody, and only the
// terminal's own programs can report it.
func TestAgentStopped(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	id := newPTY(t, s, "")
	a, c := attach(t, s, "alice", id), attach(t, s, "carol", id)
	for _, term := range []*Terminal{a, c} { // who comes later is told otherwise
		_, err := term.ExpectMessage(ctx, protocol.ServerAttached, nil)
		must(t, err)
	}
	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, id)
	must(t, err)
	at := strings.TrimSuffix(credentials.URL, "/mcp") + "/ptys/" + string(id) + "/agent-stopped"
	report := map[string]string{"agent": "claude-code", "lastMessage": "All done, captain.", "reason": "complete"}
	if status, _, err := Call(ctx, http.MethodPost, at, "", report); err != nil || status != http.StatusForbidden {
		t.Errorf("without the secret: %d %v", status, err)
	}
	if status, answer, err := Call(ctx, http.MethodPost, at, "", report, protocol.MCPSecretHeader, credentials.Secret); err != nil || status != http.StatusNoContent {
		t.Fatalf("with it: %d %s %v", status, answer, err)
	}
	for _, term := range []*Terminal{a, c} {
		m, err := term.ExpectMessage(ctx, protocol.ServerAgentStopped, nil)
		must(t, err)
		if m["agent"] != "claude-code" || m["lastMessage"] != "All done, captain." || m["reason"] != "complete" {
			t.Errorf("%v", m)
		}
	}
	late := attach(t, s, "bob", id)
	m, err := late.ExpectMessage(ctx, protocol.ServerControlState, nil)
	must(t, err)
	if last, _ := m["last_turn"].(map[string]any); last["lastMessage"] != "All done, captain." {
		t.Errorf("who comes later is told %v", m["last_turn"])
	}
}

// TestIntegration connects an account by OAuth, attaches it to a terminal whose
// program listens, calls the provider, and detaches it.
func TestIntegration(t *testing.T) {
	hub := NewFakeGitHub()
	defer hub.Close()
	setup, err := hub.Setup(t.TempDir())
	must(t, err)
	s := own(t, "--integrations", setup)
	ctx := within(t)
	account, err := hub.Connect(ctx, s.Ready.User("alice"))
	must(t, err)
	github, err := s.GitHubAt(ctx, "alice", account, s.Ready.PTYID)
	must(t, err)
	credentials, err := Credentials(s.Ready.Sandboxes[0].PID, s.Ready.PTYID)
	must(t, err)
	program, err := LocalTools(ctx, credentials)
	must(t, err)
	defer program.Close()
	heard, err := program.Listen(ctx)
	must(t, err)
	began := time.Now()
	must(t, github.Attach(ctx))
	awaitChange(ctx, t, heard)
	t.Logf("tools/list_changed after %s", time.Since(began).Round(time.Millisecond))
	names, err := program.List(ctx)
	must(t, err)
	if !slices.Contains(names, "github_list_repos") {
		t.Errorf("attached, and no github_list_repos in %v", names)
	}
	program.want(ctx, t, "octo/quay", "github_list_repos", map[string]any{})
	if text, failed, err := program.Call(ctx, "github_create_issue", map[string]any{"owner": "octo", "repo": "quay", "title": "x"}); err != nil || !failed || strings.Contains(text, hub.Token) {
		t.Errorf("a change under a policy that reads: %q %v", text, err)
	}

	must(t, github.Detach(ctx))
	awaitChange(ctx, t, heard)
	if names, err = program.List(ctx); err != nil || slices.Contains(names, "github_list_repos") {
		t.Errorf("detached: %v %v", names, err)
	}
	nowhere(t, s.Dir, hub.Token)
}

func awaitChange(ctx context.Context, t *testing.T, heard <-chan string) {
	t.Helper()
	for {
		select {
		case message, open := <-heard:
			if !open {
				t.Fatal("the stream has ended")
			}
			if strings.Contains(message, "notifications/tools/list_changed") {
				return
			}
		case <-ctx.Done():
			t.Fatal("no tools/list_changed")
		}
	}
}

// TestBrowserTools drives the sandbox's Chromium at a page of the sandbox, and
// looks at its picture as a viewer does.
func TestBrowserTools(t *testing.T) {
	findChromium(t)
	s := own(t)
	ctx := within(t)
	_, port := startWebapp(t, s)
	c := tools(ctx, t, s, "alice")
	c.want(ctx, t, "", "browser_navigate", map[string]any{"url": fmt.Sprintf("http://127.0.0.1:%d/", port)})
	c.want(ctx, t, "", "browser_get_title", map[string]any{})
	c.want(ctx, t, "42", "browser_evaluate", map[string]any{"script": "6*7"})
	result, err := c.Request(ctx, "tools/call", map[string]any{"name": "browser_screenshot", "arguments": map[string]any{}})
	must(t, err)
	if !bytes.Contains(result, []byte(`"type":"image"`)) {
		t.Errorf("browser_screenshot: %.200s", result)
	}
	if text, failed, err := c.Call(ctx, "browser_navigate", map[string]any{"url": "file:///etc/passwd"}); err != nil || !failed {
		t.Errorf("file: %q %v", text, err)
	}
	carol := s.Ready.User("carol")
	grant, err := carol.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/sessions/%s/browser/frames", carol.Base, s.Ready.SessionID), nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+grant)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	var seen []byte
	for piece := make([]byte, 4<<10); !bytes.Contains(seen, []byte("\xff\xd8\xff")); { // a JPEG begins
		n, err := resp.Body.Read(piece)
		if seen = append(seen, piece[:n]...); err != nil {
			t.Fatalf("%s %.100q: %v", resp.Status, seen, err)
		}
	}
	var status op.BrowserStatus
	must(t, call(ctx, http.StatusOK, &status, http.MethodGet, fmt.Sprintf("%s/sessions/%s/browser", carol.Base, s.Ready.SessionID), grant, nil))
	if status.State != "running" || !strings.Contains(status.URL, fmt.Sprint(port)) {
		t.Errorf("%+v", status)
	}
}
