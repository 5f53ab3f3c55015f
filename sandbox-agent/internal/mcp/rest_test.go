package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

func TestPlainRoutes(t *testing.T) {
	w := newWorld(t)
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	for _, by := range []struct{ prefix, grant, who string }{{"", "", "program of pty_1"}, {"/relay", "ann", "usr_ann"}} {
		header := map[string]string{"X-Test-Grant": by.grant}
		status, answer, _ := w.do(t, request{method: "GET", path: by.prefix + toolsPath, header: header})
		var list protocol.ToolList
		if err := json.Unmarshal([]byte(answer), &list); err != nil || status != 200 || len(list.Tools) != len(w.shelf.tools) {
			t.Errorf("tools: %d %s", status, answer)
		}
		for _, tt := range []struct {
			body   string
			status int
			answer string
		}{
			{`{"name":"whoami"}`, 200, `{"content":[{"type":"text","text":"` + by.who + `"}]}`},
			{`{"name":"echo","arguments":{"text":"x"}}`, 200, `{"content":[{"type":"text","text":"{\"text\":\"x\"}"}]}`},
			{`{"name":"echo","arguments":{"no":"x"}}`, 200, `{"content":[{"type":"text","text":"unknown arguments: \"no\""}],"isError":true}`},
			{`{"name":"echo","arguments":[]}`, 200, `{"content":[{"type":"text","text":"the arguments must be an object"}],"isError":true}`},
			{`{"name":"leak_error"}`, 200, `{"content":[{"type":"text","text":"no: ***************"}],"isError":true}`},
			{`{"name":"picture"}`, 200, `{"content":[{"type":"image","data":"cG5n","mimeType":"image/png"}]}`},
			{`{"name":"none"}`, 404, `{"error":true,"message":"there is no tool \"none\" here"}`},
			{`{"name":`, 400, `{"error":true,"message":"the body is not the JSON object that is wanted here"}`},
			{strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000), 400, `{"error":true,"message":"the body nests deeper than 100"}`},
			{`{"name":"` + strings.Repeat("x", 5<<20) + `"}`, 413, `{"error":true,"message":"the body has more than 4194304 bytes"}`},
		} {
			status, answer, _ := w.do(t, request{method: "POST", path: by.prefix + callPath, body: tt.body, header: header})
			if status != tt.status || strings.TrimSpace(answer) != tt.answer {
				t.Errorf("%.60s: %d %s", tt.body, status, answer)
			}
		}
		header["Content-Type"] = "text/plain"
		if status, _, _ := w.do(t, request{method: "POST", path: by.prefix + callPath, body: `{"name":"whoami"}`, header: header}); status != 415 {
			t.Errorf("text/plain: %d", status)
		}
		status, answer, _ = w.do(t, request{method: "GET", path: by.prefix + "/sessions/ses_1/mcp/items?pty_id=pty_1", header: header})
		if status != 200 || strings.TrimSpace(answer) != `{"items":[]}` {
			t.Errorf("items: %d %s", status, answer)
		}
	}
}

func TestAgentReports(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("é", protocol.MaxLastMessage)
	for _, tt := range []struct {
		route, body string
		status      int
		told        string
	}{
		{"agent-stopped", `{"agent":"claude-code","lastMessage":"done","reason":"interrupted"}`, 204, "stopped ses_1 pty_1 claude-code interrupted done"},
		{"agent-stopped", `{}`, 204, "stopped ses_1 pty_1 unknown complete "},
		{"agent-stopped", `{"reason":"bored","lastMessage":"` + leak + `"}`, 204, "stopped ses_1 pty_1 unknown unknown ***************"},
		{"agent-stopped", `{"lastMessage":"x` + long + `"}`, 204, "stopped ses_1 pty_1 unknown complete " + strings.Repeat("é", protocol.MaxLastMessage/2)},
		{"agent-stopped", `{"agent":"` + long + `"}`, 400, ""},
		{"agent-stopped", `[]`, 400, ""},
		{"agent-started", `{"agent":"codex"}`, 204, "started pty_1 codex"},
		{"agent-started", `{}`, 400, ""},
		{"agent-ready", `{"agent":"codex"}`, 409, "ready pty_1 codex"},
	} {
		w.told = nil
		status, answer, _ := w.do(t, request{method: "POST", path: "/sessions/ses_1/ptys/pty_1/" + tt.route, body: tt.body})
		want := []string{tt.told}
		if tt.told == "" {
			want = nil
		}
		if status != tt.status || !slices.Equal(w.told, want) {
			t.Errorf("%s %.60s: %d %s, told %q", tt.route, tt.body, status, answer, w.told)
		}
		for _, told := range w.told {
			if !utf8.ValidString(told) {
				t.Errorf("told %q", told)
			}
		}
	}
	status, answer, header := w.do(t, request{method: "GET", path: "/sessions/ses_1/ptys/pty_1/scrollback"})
	if status != 200 || answer != "$ ls\n" || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Errorf("scrollback: %d %q", status, answer)
	}
}

// openSessions notes what it learns.
type openSessions []string

func (o *openSessions) AgentSession(session protocol.SessionID, pty protocol.PTYID, agent, native string) {
	*o = append(*o, fmt.Sprint(session, " ", pty, " ", agent, " ", native))
}

// TestAgentSessions: which session a coding agent has open is learned, whether or
// not it is the one in front of the terminal.
func TestAgentSessions(t *testing.T) {
	var open openSessions
	w := newWorld(t, func(o *Options) { o.Sessions = &open })
	for _, r := range [][2]string{
		{"agent-ready", `{"agent":"claude-code","session":"a"}`}, // 409
		{"agent-started", `{"agent":"claude-code","session":"b"}`}, {"agent-started", `{"agent":"claude-code"}`}, {"agent-started", `{"session":"c"}`},
		{"agent-stopped", `{"agent":"codex","session":"d"}`},
	} {
		w.do(t, request{method: "POST", path: "/sessions/ses_1/ptys/pty_1/" + r[0], body: r[1]})
	}
	if want := []string{"ses_1 pty_1 claude-code a", "ses_1 pty_1 claude-code b", "ses_1 pty_1 codex d"}; !slices.Equal(open, want) {
		t.Errorf("%q", open)
	}
}

func TestArguments(t *testing.T) {
	var s schemas
	open := `{"type":"object"}`
	closed := `{"type":"object","properties":{"a":{"type":"string"},"n":{"type":["integer","null"]},"b":{"type":"boolean"},"l":{"type":"array"},"o":{"type":"object"},"f":{"type":"number"},"any":{}},"required":["a"]}`
	extra := `{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":{"type":"string"}}`
	for _, tt := range []struct{ schema, args, want string }{
		{open, ``, ""}, {open, `null`, ""}, {open, `{"x":1}`, ""}, {open, `7`, "the arguments must be an object"}, {open, `{`, "the arguments must be an object"},
		{closed, `{"a":"x","n":3,"b":true,"l":[],"o":{},"f":1.5,"any":[1]}`, ""}, {closed, `{"a":"x","n":null}`, ""}, {closed, `{"a":"x","n":3.0}`, ""},
		{closed, `{}`, "missing arguments: a"}, {closed, `{"a":null}`, `argument a must be "string"`}, {closed, `{"a":"x","n":1e99}`, `argument n must be ["integer","null"]`},
		{closed, `{"a":"x","b":"true"}`, `argument b must be "boolean"`}, {closed, `{"a":"x","A":1}`, `unknown arguments: "A"`},
		{extra, `{"z":"x"}`, ""}, {`{"additionalProperties":false}`, `{"z":"x"}`, `unknown arguments: "z"`}, {`7`, `{"z":1}`, ""},
	} {
		_, err := s.check(json.RawMessage(tt.schema), json.RawMessage(tt.args))
		if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
			t.Errorf("check(%s, %s) = %v, want %s", tt.schema, tt.args, err, tt.want)
		}
	}
	for i := range 2 * maxSchemas {
		s.check(json.RawMessage(fmt.Sprintf(`{"title":"%d"}`, i)), nil)
	}
	if len(s.decoded) > maxSchemas {
		t.Errorf("%d schemas are kept", len(s.decoded))
	}
}
