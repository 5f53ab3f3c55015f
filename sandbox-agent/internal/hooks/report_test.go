package hooks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// A reported request is what an agent's listener got.
type reported struct{ path, secret, body string }

// listener is an agent that answers a report.
func listener(t *testing.T, secret string) (url string, got *[]reported) {
	t.Helper()
	got = new([]reported)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*got = append(*got, reported{r.Method + " " + r.URL.Path, r.Header.Get(protocol.MCPSecretHeader), string(body)})
		if r.Header.Get(protocol.MCPSecretHeader) != secret || r.Header.Get("Content-Type") != "application/json" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// environ returns a Getenv.
func environ(vars map[string]string, more ...string) func(string) string {
	vars = maps.Clone(vars)
	for i := 0; i < len(more); i += 2 {
		vars[more[i]] = more[i+1]
	}
	return func(name string) string { return vars[name] }
}

func variables(url, secret string) map[string]string {
	return map[string]string{
		"FAIRLEAD_MCP_URL": url + "/sessions/s1/mcp", "FAIRLEAD_MCP_SECRET": secret,
		"FAIRLEAD_SESSION_ID": "s1", "FAIRLEAD_PTY_ID": "p1",
	}
}

const transcript = `{"message":{"role":"user","content":"do it"}}
{"message":{"role":"assistant","content":[{"type":"thinking","text":"hm"},{"type":"text","text":"first"}]}}
{"message":{"role":"assistant","content":[{"type":"text","text":"all"},{"type":"text","text":"done"}]}}
{"isSidechain":true,"message":{"role":"assistant","content":[{"type":"text","text":"a subagent"}]}}
{"message":{"role":"user","content":[]}}
not JSON
`

func TestReport(t *testing.T) {
	name := filepath.Join(t.TempDir(), "transcript.jsonl")
	if err := os.WriteFile(name, []byte(transcript), 0o600); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("ö", protocol.MaxLastMessage) + "end"
	for _, c := range []struct {
		agent, event, stdin, input string
		args                       []string
		path, said, reason         string
		session                    string
	}{
		{agent: "claude", event: "ready", path: "agent-ready"},
		{agent: "claude", event: "start", stdin: `{"prompt":"secret"}`, path: "agent-started"},
		{agent: "claude", event: "ready", stdin: `{"session_id":"n-1","source":"startup"}`, path: "agent-ready", session: "n-1"},
		{agent: "claude", event: "start", stdin: `{"session_id":"n-1","prompt":"secret"}`, path: "agent-started", session: "n-1"},
		{agent: "claude", event: "start", stdin: `{"session_id":"../n 1"}`, path: "agent-started"},
		{agent: "codex", event: "stop", args: []string{`{"type":"agent-turn-complete","thread-id":"n-2"}`}, path: "agent-stopped", reason: "complete", session: "n-2"},
		{agent: "opencode", event: "start", input: `{"session_id":"ses_3"}`, path: "agent-started", session: "ses_3"},
		{agent: "claude", event: "stop", stdin: `{"last_assistant_message":"hi"}`, path: "agent-stopped", said: "hi", reason: "complete"},
		{agent: "claude", event: "stop", stdin: `{"transcript_path":` + quote(name) + `}`, path: "agent-stopped", said: "all\ndone", reason: "complete"},
		{agent: "claude", event: "ask", stdin: `{"message":"May I?","transcript_path":` + quote(name) + `}`, path: "agent-stopped", said: "May I?", reason: "complete"},
		{agent: "claude", event: "fail", stdin: `{"last_assistant_message":"oh"}`, path: "agent-stopped", said: "oh", reason: "error"},
		{agent: "claude", event: "stop", stdin: `garbage`, path: "agent-stopped", reason: "complete"},
		{agent: "claude", event: "stop", stdin: `{"transcript_path":"/dev/zero"}`, path: "agent-stopped", reason: "complete"},
		{agent: "droid", event: "stop", stdin: `{"transcript_path":"/nowhere"}`, path: "agent-stopped", reason: "complete"},
		{agent: "gemini", event: "stop", stdin: `{"prompt_response":" said \n"}`, path: "agent-stopped", said: "said", reason: "complete"},
		{agent: "codex", event: "stop", args: []string{`{"type":"agent-turn-complete","last-assistant-message":"codex says"}`}, path: "agent-stopped", said: "codex says", reason: "complete"},
		{agent: "opencode", event: "interrupt", input: `{"last_assistant_message":"half"}`, path: "agent-stopped", said: "half", reason: "interrupted"},
		{agent: "openclaw", event: "stop", input: `{"last_assistant_message":` + quote(long) + `}`, path: "agent-stopped", said: clip(long), reason: "complete"},
	} {
		url, got := listener(t, "sesame")
		o := ReportOptions{
			Agent: c.agent, Event: c.event, Args: c.args, Stdin: strings.NewReader(c.stdin),
			Getenv: environ(variables(url, "sesame"), "FAIRLEAD_HOOK_INPUT", c.input),
		}
		if err := Report(t.Context(), o); err != nil {
			t.Errorf("%s %s: %v", c.agent, c.event, err)
			continue
		}
		if len(*got) != 1 || (*got)[0].path != "POST /sessions/s1/ptys/p1/"+c.path || (*got)[0].secret != "sesame" {
			t.Errorf("%s %s: %+v", c.agent, c.event, *got)
			continue
		}
		var body protocol.AgentStoppedReport
		if err := json.Unmarshal([]byte((*got)[0].body), &body); err != nil {
			t.Fatal(err)
		}
		if body.LastMessage != c.said || string(body.Reason) != c.reason || body.Agent == "" || body.Session != c.session || strings.Contains((*got)[0].body, "secret") {
			t.Errorf("%s %s: %s", c.agent, c.event, (*got)[0].body)
		}
	}
}

func TestClip(t *testing.T) {
	long := clip(strings.Repeat("ö", protocol.MaxLastMessage) + "e")
	if len(long) > protocol.MaxLastMessage || !utf8.ValidString(long) || !strings.HasSuffix(long, "öe") {
		t.Errorf("%d bytes, ends in %q", len(long), long[len(long)-4:])
	}
	if got := clip("a\xffb"); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}

// TestCredentials: the environment first, then the file that the agent writes
// anew when it starts, which also completes what a coding agent has taken out.
func TestCredentials(t *testing.T) {
	url, got := listener(t, "new")
	home := t.TempDir()
	text, err := json.Marshal(protocol.MCPCredentials{URL: url + "/sessions/s1/mcp", SessionID: "s1", PTYID: "p1", Secret: "new"})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, ".fairlead"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, credentialsFile), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, getenv := range map[string]func(string) string{
		"an old secret": environ(variables(url, "old"), "HOME", home),
		"another port":  environ(variables("http://127.0.0.1:1", "old"), "HOME", home),
		"no secret":     environ(variables(url, ""), "HOME", home),
		"the file":      environ(map[string]string{}, "HOME", home),
	} {
		*got = nil
		if err := Report(t.Context(), ReportOptions{Agent: "claude", Event: "start", Getenv: getenv}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if n := len(*got); n == 0 || (*got)[n-1].secret != "new" {
			t.Errorf("%s: %+v", what, *got)
		}
	}
}

// TestReportRefuses: nothing is sent to another machine, and no error has the
// secret in it.
func TestReportRefuses(t *testing.T) {
	url, got := listener(t, "other")
	for what, o := range map[string]ReportOptions{
		"another machine":  {Agent: "claude", Event: "stop", Getenv: environ(variables("http://192.0.2.1:80", "sesame"))},
		"a name":           {Agent: "claude", Event: "stop", Getenv: environ(variables("http://localhost.example:80", "sesame"))},
		"a user":           {Agent: "claude", Event: "stop", Getenv: environ(variables("http://127.0.0.1@192.0.2.1", "sesame"))},
		"https":            {Agent: "claude", Event: "stop", Getenv: environ(variables("https://127.0.0.1:1", "sesame"))},
		"a malformed URL":  {Agent: "claude", Event: "stop", Getenv: environ(variables("http://127.0.0.1:x\x7f", "sesame"))},
		"nothing":          {Agent: "claude", Event: "stop", Getenv: environ(map[string]string{})},
		"a wrong secret":   {Agent: "claude", Event: "stop", Getenv: environ(variables(url, "sesame"))},
		"an unknown agent": {Agent: "nobody", Event: "stop", Getenv: environ(variables(url, "sesame"))},
		"an unknown event": {Agent: "claude", Event: "lunch", Getenv: environ(variables(url, "sesame"))},
		"another notify":   {Agent: "codex", Event: "stop", Args: []string{`{"type":"approval-requested"}`}, Getenv: environ(variables(url, "sesame"))},
	} {
		*got = nil
		err := Report(t.Context(), o)
		if err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %v", what, err)
		}
		if len(*got) > 0 && what != "a wrong secret" {
			t.Errorf("%s: %+v", what, *got)
		}
	}
}

// silent is a standard input that nobody closes.
type silent struct{ closed chan struct{} }

func (s silent) Read([]byte) (int, error) { <-s.closed; return 0, io.EOF }

// stuck is an agent that never answers.
type stuck struct{}

func (stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestReportEnds: a report takes 5 s at most, whatever it waits for.
func TestReportEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := silent{make(chan struct{})}
		defer close(in.closed)
		for what, o := range map[string]ReportOptions{
			"an open input":   {Agent: "claude", Event: "stop", Stdin: in},
			"a stuck agent":   {Agent: "claude", Event: "start"},
			"neither of them": {Agent: "claude", Event: "stop", Stdin: in},
		} {
			o.Getenv = environ(variables("http://127.0.0.1:9", "sesame"))
			o.Client = &http.Client{Transport: stuck{}}
			began := time.Now()
			err := Report(context.Background(), o)
			if took := time.Since(began); took > reportTimeout || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v after %v", what, err, took)
			}
		}
	})
}
