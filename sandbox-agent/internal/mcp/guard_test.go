package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/peer"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`
	listTools  = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	toolsPath  = "/sessions/ses_1/mcp/tools?pty_id=pty_1"
	callPath   = "/sessions/ses_1/mcp/tools/call?pty_id=pty_1"
	secret     = protocol.MCPSecretHeader
)

// Who may not is refused on every route, with one message, before its body is
// looked at.
func TestGuard(t *testing.T) {
	w := newWorld(t)
	port := fmt.Sprint(w.port)
	routes := map[string]string{
		"/sessions/ses_1/mcp": "POST", "/sessions/ses_1/mcp/tools": "GET", "/sessions/ses_1/mcp/tools/call": "POST",
		"/sessions/ses_1/mcp/items": "GET", "/sessions/ses_1/ptys/pty_1/agent-stopped": "POST",
		"/sessions/ses_1/ptys/pty_1/agent-started": "POST", "/sessions/ses_1/ptys/pty_1/agent-ready": "POST",
		"/sessions/ses_1/ptys/pty_1/scrollback": "GET",
	}
	for path, method := range routes {
		body := "{}"
		if strings.HasSuffix(path, "/mcp") {
			body = initialize
		}
		for _, tt := range []struct {
			name, from, to string // of the path
			query, host    string
			header         map[string]string
			status         int
			message        string
		}{
			{name: "missing secret", header: map[string]string{secret: ""}, status: 403, message: errSecret.message},
			{name: "wrong secret", header: map[string]string{secret: "secret-of-"}, status: 403, message: errSecret.message},
			{name: "another terminal's secret", header: map[string]string{secret: "secret-of-2"}, status: 403, message: errSecret.message},
			{name: "unknown terminal", from: "pty_1", to: "pty_9", query: "?pty_id=pty_9", status: 403, message: errSecret.message},
			{name: "unknown terminal, no secret", from: "pty_1", to: "pty_9", query: "?pty_id=pty_9", header: map[string]string{secret: ""}, status: 403, message: errSecret.message},
			{name: "another session", from: "ses_1", to: "ses_2", status: 403, message: errSecret.message},
			{name: "no id", from: "ses_1", to: "ses.1", status: 400, message: errID.message},
			{name: "evil host", host: "evil.example", status: 403, message: errHost.message},
			{name: "evil host with our port", host: "evil.example:" + port, status: 403, message: errHost.message},
			{name: "our name, another port", host: "localhost:1", status: 403, message: errHost.message},
			{name: "name that begins like ours", host: "127.0.0.1.evil.example:" + port, status: 403, message: errHost.message},
			{name: "evil origin", header: map[string]string{"Origin": "https://evil.example"}, status: 403, message: errOrigin.message},
			{name: "null origin", header: map[string]string{"Origin": "null"}, status: 403, message: errOrigin.message},
			{name: "origin of another port", header: map[string]string{"Origin": "http://localhost:3000"}, status: 403, message: errOrigin.message},
		} {
			if tt.query == "" {
				tt.query = "?pty_id=pty_1"
			}
			at := path
			if tt.from != "" {
				at = strings.Replace(path, tt.from, tt.to, 1)
			}
			status, answer, _ := w.do(t, request{method: method, path: at + tt.query, body: body, header: tt.header, host: tt.host})
			if status != tt.status || messageOf(answer) != tt.message {
				t.Errorf("%s %s, %s: %d %s", method, path, tt.name, status, answer)
			}
		}
	}
	if len(w.told) > 0 {
		t.Errorf("told %q", w.told)
	}
	for _, path := range []string{"/sessions/ses_1/mcp", "/sessions/ses_1/mcp/tools"} {
		for _, query := range []string{"", "?pty_id=", "?pty_id=../x"} {
			if status, answer, _ := w.do(t, request{method: "GET", path: path + query}); status != 400 || messageOf(answer) != errPTY.message {
				t.Errorf("%s%s: %d %s", path, query, status, answer)
			}
		}
	}
	if n := testutil.ToFloat64(w.metrics.refused.WithLabelValues(refusedSecret)); n == 0 {
		t.Error("refusals are not counted")
	}
	for _, host := range []string{"localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port, "LOCALHOST:" + port, "127.9.9.9:" + port} {
		status, answer, _ := w.do(t, request{method: "GET", path: toolsPath, host: host, header: map[string]string{"Origin": "http://" + host}})
		if status != 200 {
			t.Errorf("%s: %d %s", host, status, answer)
		}
	}
}

// messageOf returns the message of an error in either of its forms.
func messageOf(answer string) string {
	var plain struct {
		Error   any
		Message string
	}
	if json.Unmarshal([]byte(answer), &plain) != nil {
		return answer
	}
	if in, ok := plain.Error.(map[string]any); ok {
		plain.Message, _ = in["message"].(string)
	}
	return plain.Message
}

func TestErrorForms(t *testing.T) {
	w := newWorld(t)
	no := map[string]string{secret: "no"}
	for path, want := range map[string]string{
		mcpPath:                                 `{"error":{"code":-32600,"message":"the secret is not that of this terminal","name":"forbidden"},"id":null,"jsonrpc":"2.0"}`,
		toolsPath:                               `{"error":true,"message":"the secret is not that of this terminal"}`,
		"/sessions/ses_1/ptys/pty_1/scrollback": `{"error":{"message":"the secret is not that of this terminal","name":"forbidden"}}`,
	} {
		want = strings.ReplaceAll(want, `"forbidden"`, fmt.Sprintf("%q", protocol.KindForbidden.Name()))
		status, answer, header := w.do(t, request{method: "GET", path: path, header: no})
		if status != 403 || strings.TrimSpace(answer) != want || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

// Only the terminal's own user may speak for it, where it has one.
func TestPeerUID(t *testing.T) {
	uid := 2001
	err := error(nil)
	w := newWorld(t, func(o *Options) {
		o.Peers = peer.UsersFunc(func(local, remote netip.AddrPort) (int, error) {
			if !local.IsValid() || !remote.IsValid() || local == remote {
				t.Errorf("asked for the peer of %s at %s", local, remote)
			}
			return uid, err
		})
	})
	get := func() int {
		status, _, _ := w.do(t, request{method: "GET", path: toolsPath})
		return status
	}
	if got := get(); got != 200 {
		t.Errorf("its own user: %d", got)
	}
	if uid = 2002; get() != 403 {
		t.Error("another user was let in")
	}
	if uid = os.Geteuid(); get() != 200 {
		t.Error("this program's own user was refused")
	}
	if uid, err = 2001, errors.New("gone"); get() != 403 {
		t.Error("a user that is not known was let in")
	}
	status, _, _ := w.do(t, request{method: "GET", path: "/sessions/ses_1/mcp/tools?pty_id=pty_2", header: map[string]string{secret: "secret-of-2"}})
	if status != 200 {
		t.Errorf("a terminal without a user of its own: %d", status)
	}
}

func TestBadMessages(t *testing.T) {
	w := newWorld(t)
	nested := func(n int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) + "}"
	}
	batch := func(n int, one string) string { return "[" + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + "]" }
	large := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"big":"` + strings.Repeat("x", 5<<20) + `"}}}`
	for _, tt := range []struct {
		name, body string
		header     map[string]string
		status     int
		code       int
	}{
		{"text/plain", listTools, map[string]string{"Content-Type": "text/plain"}, 415, -32600},
		{"no content type", listTools, map[string]string{"Content-Type": ""}, 415, -32600},
		{"5 MiB of arguments", large, nil, 413, -32600},
		{"batch of 101", batch(101, listTools), nil, 400, -32600},
		{"empty batch", "[]", nil, 400, -32600},
		{"batch in a version without", batch(2, listTools), map[string]string{versionHeader: "2025-11-25"}, 400, -32600},
		{"initialize in a batch", batch(2, initialize), nil, 400, -32600},
		{"depth 1,000", nested(1000), nil, 400, -32600},
		{"depth 1,000 of arrays", strings.Repeat("[", 1000) + strings.Repeat("]", 1000), nil, 400, -32600},
		{"depth 100,000, open", strings.Repeat("[", 100000), nil, 400, -32600},
		{"unknown method", `{"jsonrpc":"2.0","id":"x","method":"tools/destroy"}`, nil, 200, -32601},
		{"not JSON", `{"jsonrpc":`, nil, 400, -32700},
		{"empty", ``, nil, 400, -32700},
		{"two values", listTools + listTools, nil, 400, -32700},
		{"no message", `"tools/list"`, nil, 400, -32600},
		{"null", `null`, nil, 400, -32600},
		{"version 1", `{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, nil, 400, -32600},
		{"id of another type", `{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, nil, 400, -32600},
		{"id that is no integer", `{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}`, nil, 400, -32600},
		{"id of many digits", `{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"tools/list"}`, nil, 400, -32600},
		{"method of another type", `{"jsonrpc":"2.0","id":1,"method":7}`, nil, 400, -32600},
		{"call without an id", `{"jsonrpc":"2.0","method":"tools/list"}`, nil, 400, -32600},
		{"no params", `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, nil, 400, -32602},
		{"params of another type", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1]}`, nil, 400, -32602},
		{"neither request nor answer", `{"jsonrpc":"2.0","id":1}`, nil, 400, -32600},
		{"unknown version of the protocol", initialize, map[string]string{versionHeader: "2024-01-01"}, 400, -32600},
		{"no session", listTools, nil, 400, -32600},
		{"a session that never was", listTools, map[string]string{sessionHeader: "nope"}, 404, -32600},
	} {
		status, answer, _ := w.do(t, request{method: "POST", path: mcpPath, body: tt.body, header: tt.header})
		var got struct {
			JSONRPC string
			Error   struct{ Code int }
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil || status != tt.status || got.Error.Code != tt.code || got.JSONRPC != "2.0" {
			t.Errorf("%s: %d %.200s", tt.name, status, answer)
		}
	}
	if status, _, _ := w.do(t, request{method: "POST", path: mcpPath, body: `{"jsonrpc":"2.0","method":"notifications/of/others"}`}); status != http.StatusAccepted {
		t.Errorf("an unknown notification: %d", status)
	}
	status, _, header := w.do(t, request{method: "PUT", path: mcpPath, body: listTools})
	if status != 405 || header.Get("Allow") == "" {
		t.Errorf("PUT: %d", status)
	}
	if n := w.openSessions(); n != 0 {
		t.Errorf("%v sessions are left", n)
	}
}

// The id of a request stands in the answer that refuses it.
func TestRefusalNamesRequest(t *testing.T) {
	_, err := parse([]byte(`{"jsonrpc":"2.0","id":"ab","method":"no"}`), "")
	if rpc, ok := err.(*rpcError); !ok || string(rpc.id) != `"ab"` {
		t.Errorf("parse = %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{initialize, listTools, "[" + listTools + "]", `{"a":"\"]"}`, "[[[", `{"jsonrpc":"2.0","id":1,"result":{}}`} {
		f.Add([]byte(seed), "2025-11-25")
		f.Add([]byte(seed), "")
	}
	f.Fuzz(func(t *testing.T, body []byte, version string) {
		_, err := parse(body, version)
		if err == nil && !json.Valid(body) {
			t.Errorf("accepted %q", body)
		}
		depth, elements := measure(body)
		var list []json.RawMessage
		if json.Unmarshal(body, &list) == nil && list != nil && len(list) != elements {
			t.Errorf("%q has %d elements, measured %d", body, len(list), elements)
		}
		if json.Valid(body) && depth != depthOf(body) {
			t.Errorf("%q is %d deep, measured %d", body, depthOf(body), depth)
		}
	})
}

// depthOf is measure by other means, for valid JSON.
func depthOf(text []byte) int {
	depth, at := 0, 0
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	for {
		token, err := decoder.Token()
		if err != nil {
			return depth
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			at++
			depth = max(depth, at)
		case json.Delim(']'), json.Delim('}'):
			at--
		}
	}
}

func FuzzArguments(f *testing.F) {
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},"b":{"type":["integer","null"]}},"required":["a"]}`)
	f.Add([]byte(schema), []byte(`{"a":"x","b":1}`))
	f.Add([]byte(`{"properties":7}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, schema, args []byte) {
		var s schemas
		checked, err := s.check(schema, args)
		if err == nil && (len(checked) == 0 || checked[0] != '{' || !json.Valid(checked)) {
			t.Errorf("passed %q", checked)
		}
	})
}

// A program that is bound to a tab of the browser says so; nonsense says nothing.
func TestBoundTab(t *testing.T) {
	w := newWorld(t)
	for header, want := range map[string]string{
		"3": "program of pty_1, bound to tab 3", "": "program of pty_1", "-1": "program of pty_1", "x": "program of pty_1",
		"99999999999": "program of pty_1",
	} {
		status, answer, _ := w.do(t, request{method: "POST", path: callPath, body: `{"name":"whoami"}`, header: map[string]string{toolbox.TabHeader: header}})
		if status != 200 || !strings.Contains(answer, `"`+want+`"`) {
			t.Errorf("%q: %d %s", header, status, answer)
		}
	}
}
