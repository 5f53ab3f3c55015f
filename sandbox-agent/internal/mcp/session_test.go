package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// begin begins a session as the program of pty1 and returns its id.
func (w *world) begin(t testing.TB) string {
	t.Helper()
	status, answer, header := w.do(t, request{method: "POST", path: mcpPath, body: initialize})
	if status != 200 || header.Get(sessionHeader) == "" {
		t.Fatalf("initialize: %d %s", status, answer)
	}
	return header.Get(sessionHeader)
}

// ask posts a message in a session.
func (w *world) ask(t testing.TB, id, body string) (int, string) {
	t.Helper()
	status, answer, _ := w.do(t, request{method: "POST", path: mcpPath, body: body, header: map[string]string{sessionHeader: id}})
	return status, answer
}

// A stream is an open answer of server-sent events.
type stream struct {
	resp   *http.Response
	cancel context.CancelFunc
	lines  chan string // of all events; closed at the end
}

// open sends a request whose answer is read as it comes.
func (w *world) open(t testing.TB, method, body string, header map[string]string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, method, w.url+mcpPath, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set(secret, "secret-of-1")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		t.Fatalf("%s: %s", method, resp.Status)
	}
	s := &stream{resp: resp, cancel: cancel, lines: make(chan string, 1000)}
	go func() { // ends with the answer
		defer close(s.lines)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range s.lines {
		}
	})
	return s
}

// until returns the first line that has text.
func (s *stream) until(t testing.TB, text string) string {
	t.Helper()
	for {
		if line := await(t, s.lines, text); strings.Contains(line, text) {
			return line
		} else if line == "" && len(s.lines) == 0 {
			select {
			case _, ok := <-s.lines:
				if !ok {
					t.Fatalf("the stream ended without %s", text)
				}
			default:
			}
		}
	}
}

// ended waits for the end of the stream.
func (s *stream) ended(t testing.TB) {
	t.Helper()
	for deadline := time.After(patience); ; {
		select {
		case _, ok := <-s.lines:
			if !ok {
				return
			}
		case <-deadline:
			t.Fatal("the stream goes on")
		}
	}
}

func grantOf(user protocol.UserID, pty string, caps ...protocol.Capability) *jws.Grant {
	return &jws.Grant{ID: protocol.GrantID("gr_" + string(user)), Subject: user, Session: sessionID, PTYs: []string{pty}, Caps: caps}
}

// A session answers nobody but who began it.
func TestOthersSession(t *testing.T) {
	w := newWorld(t)
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	w.grants["bob"] = grantOf("usr_bob", "*", protocol.CapMCP)
	id := w.begin(t)
	status, _, header := w.do(t, request{method: "POST", path: "/relay/sessions/ses_1/mcp", body: initialize, header: map[string]string{"X-Test-Grant": "ann"}})
	if status != 200 {
		t.Fatalf("a person: %d", status)
	}
	anns := header.Get(sessionHeader)
	for _, tt := range []struct {
		name, path, id, grant, secret string
		status                        int
	}{
		{"its own", mcpPath, id, "", "secret-of-1", 200},
		{"another terminal", "/sessions/ses_1/mcp?pty_id=pty_2", id, "", "secret-of-2", 404},
		{"a person", "/relay/sessions/ses_1/mcp?pty_id=pty_1", id, "ann", "", 404},
		{"a person's own", "/relay/sessions/ses_1/mcp", anns, "ann", "", 200},
		{"the same person for a terminal", "/relay/sessions/ses_1/mcp?pty_id=pty_1", anns, "ann", "", 404},
		{"another person", "/relay/sessions/ses_1/mcp", anns, "bob", "", 404},
		{"a terminal", mcpPath, anns, "", "secret-of-1", 404},
	} {
		for _, method := range []string{"POST", "GET", "DELETE"} {
			if tt.status == 200 && method != "POST" {
				continue
			}
			status, answer, _ := w.do(t, request{method: method, path: tt.path, body: listTools, header: map[string]string{
				sessionHeader: tt.id, "X-Test-Grant": tt.grant, secret: tt.secret,
			}})
			if status != tt.status {
				t.Errorf("%s, %s: %d %s", tt.name, method, status, answer)
			}
		}
	}
	if status, _, _ := w.do(t, request{method: "DELETE", path: mcpPath, header: map[string]string{sessionHeader: id}}); status != 204 {
		t.Errorf("DELETE: %d", status)
	}
	if status, _ := w.ask(t, id, listTools); status != 404 {
		t.Errorf("after DELETE: %d", status)
	}
	if n := w.openSessions(); n != 1 {
		t.Errorf("%v sessions are open", n)
	}
}

// People have the tools that their grant allows, for as long as it does.
func TestPeople(t *testing.T) {
	w := newWorld(t)
	writes := tool("file_write", "", echo)
	writes.Needs = protocol.CapFilesWrite
	w.shelf.tools = append(w.shelf.tools, writes)
	w.grants["ann"] = grantOf("usr_ann", "pty_1", protocol.CapMCP, protocol.CapFilesWrite)
	w.grants["bob"] = grantOf("usr_bob", "pty_1", protocol.CapMCP)
	w.grants["eve"] = grantOf("usr_eve", "*", protocol.CapView, protocol.CapFilesWrite)
	url := w.url + "/relay/sessions/ses_1/mcp?pty_id=pty_1"
	ann := connect(t, url, headers{"X-Test-Grant": "ann"})
	bob := connect(t, url, headers{"X-Test-Grant": "bob"})
	if who, _ := ann.call(t, "whoami", nil); who != "usr_ann" {
		t.Errorf("whoami = %q", who)
	}
	if _, failed := ann.call(t, "file_write", nil); failed {
		t.Error("ann may not write")
	}
	if _, err := bob.CallTool(t.Context(), &sdk.CallToolParams{Name: "file_write"}); err == nil {
		t.Error("bob may write")
	}
	listed, err := bob.ListTools(t.Context(), nil)
	if err != nil || len(listed.Tools) != len(w.shelf.tools)-1 {
		t.Errorf("bob sees %d tools, %v", len(listed.Tools), err)
	}
	for _, tt := range []struct{ grant, path string }{
		{"", "/relay/sessions/ses_1/mcp"}, {"eve", "/relay/sessions/ses_1/mcp"}, {"eve", "/relay/sessions/ses_1/mcp/tools"},
		{"ann", "/relay/sessions/ses_2/mcp/tools"}, {"ann", "/relay/sessions/ses_1/mcp/tools?pty_id=pty_2"},
		{"ann", "/relay/sessions/ses_1/mcp?pty_id=pty_2"}, {"eve", "/relay/sessions/ses_1/mcp/items"},
	} {
		status, answer, _ := w.do(t, request{method: "GET", path: tt.path, header: map[string]string{"X-Test-Grant": tt.grant}})
		if status != 403 || messageOf(answer) != errGrant.message {
			t.Errorf("%q %s: %d %s", tt.grant, tt.path, status, answer)
		}
	}
	w.mu.Lock()
	delete(w.grants, "ann")
	w.mu.Unlock()
	if _, err := ann.CallTool(t.Context(), &sdk.CallToolParams{Name: "whoami"}); err == nil {
		t.Error("the session outlives the grant")
	}
}

// A new grant that allows more is new tools.
func TestGrantGrows(t *testing.T) {
	w := newWorld(t)
	writes := tool("file_write", "", echo)
	writes.Needs = protocol.CapFilesWrite
	w.shelf.tools = append(w.shelf.tools, writes)
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	ann := connect(t, w.url+"/relay/sessions/ses_1/mcp", headers{"X-Test-Grant": "ann"})
	ann.call(t, "whoami", nil)
	w.mu.Lock()
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP, protocol.CapFilesWrite)
	w.grants["ann"].ID = "gr_2"
	w.mu.Unlock()
	ann.call(t, "whoami", nil)
	await(t, ann.changed, "list_changed")
	if _, failed := ann.call(t, "file_write", nil); failed {
		t.Error("ann may not write")
	}
}

// With a terminal end its sessions, streams and calls.
func TestEnded(t *testing.T) {
	w := newWorld(t)
	began, cancelled := make(chan bool), make(chan bool, 3)
	w.shelf.put(pty1, tool("hang", "", func(ctx context.Context, _ toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
		began <- true
		<-ctx.Done()
		cancelled <- true
		return toolbox.Text("ended"), nil
	}))
	id := w.begin(t)
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	person := connect(t, w.url+"/relay/sessions/ses_1/mcp?pty_id=pty_1", headers{"X-Test-Grant": "ann"})
	survivor := w.program(t, pty2)
	events := w.open(t, "GET", "", map[string]string{sessionHeader: id})
	call := w.open2(t, id)
	await(t, began, "call")
	plain := make(chan int, 1)
	go func() {
		status, _, _ := w.do(t, request{method: "POST", path: callPath, body: `{"name":"hang"}`})
		plain <- status
	}()
	await(t, began, "plain call")
	w.Ended(sessionID, pty1)
	await(t, cancelled, "end of the call")
	await(t, cancelled, "end of the plain call")
	events.ended(t)
	call()
	await(t, plain, "answer")
	if status, _ := w.ask(t, id, listTools); status != 404 {
		t.Errorf("the session answers %d", status)
	}
	if _, err := person.CallTool(t.Context(), &sdk.CallToolParams{Name: "whoami"}); err == nil {
		t.Error("the session of who spoke of the terminal is there")
	}
	if who, _ := survivor.call(t, "whoami", nil); who != "program of pty_2" {
		t.Errorf("another terminal: %q", who)
	}
	w.Ended(sessionID, "")
	if _, err := survivor.CallTool(t.Context(), &sdk.CallToolParams{Name: "whoami"}); err == nil {
		t.Error("the session outlives all terminals")
	}
	if n := w.openSessions(); n != 0 {
		t.Errorf("%v sessions are open", n)
	}
}

// open2 calls hang in a session; what it returns waits for the answer.
func (w *world) open2(t testing.TB, id string) func() {
	done := make(chan bool, 1)
	go func() {
		w.ask(t, id, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"hang"}}`)
		done <- true
	}()
	return func() { await(t, done, "answer") }
}

// A caller who begins one session more loses the one that is idle for longest,
// and none that is in use.
func TestSessionLimit(t *testing.T) {
	w := newWorld(t)
	var ids []string
	for range MaxSessionsPerCaller {
		ids = append(ids, w.begin(t))
	}
	first := w.open(t, "GET", "", map[string]string{sessionHeader: ids[0]})
	w.begin(t)
	if status, _ := w.ask(t, ids[1], listTools); status != 404 {
		t.Errorf("the session that was idle for longest: %d", status)
	}
	if status, _ := w.ask(t, ids[0], listTools); status != 200 {
		t.Errorf("the session in use: %d", status)
	}
	if n := testutil.ToFloat64(w.metrics.evicted); n != 1 {
		t.Errorf("%v evictions are counted", n)
	}
	first.cancel()
	first.ended(t)
	w.mu.Lock()
	w.Server.mu.Lock()
	o := w.owners[ownerKey{session: sessionID, pty: pty1}]
	for _, x := range o.sessions {
		x.requests++ // all are in use
	}
	w.Server.mu.Unlock()
	w.mu.Unlock()
	status, answer, _ := w.do(t, request{method: "POST", path: mcpPath, body: initialize})
	if status != http.StatusTooManyRequests {
		t.Errorf("one session too many: %d %s", status, answer)
	}
}

func TestIdleSessionsEnd(t *testing.T) {
	w := newWorld(t)
	used, idle := w.begin(t), w.begin(t)
	w.grants["ann"] = grantOf("usr_ann", "*", protocol.CapMCP)
	w.do(t, request{method: "GET", path: "/relay/sessions/ses_1/mcp", header: map[string]string{"X-Test-Grant": "ann"}})
	events := w.open(t, "GET", "", map[string]string{sessionHeader: used})
	w.sweep(time.Now().Add(IdleTimeout - time.Minute))
	if n := w.openSessions(); n != 2 {
		t.Fatalf("%v sessions are open too early", n)
	}
	w.sweep(time.Now().Add(IdleTimeout + time.Second))
	if status, _ := w.ask(t, idle, listTools); status != 404 {
		t.Errorf("the idle one: %d", status)
	}
	if status, _ := w.ask(t, used, listTools); status != 200 {
		t.Errorf("the one with a stream: %d", status)
	}
	events.cancel()
	w.Server.mu.Lock()
	defer w.Server.mu.Unlock()
	if len(w.owners) != 1 {
		t.Errorf("%d callers are known", len(w.owners))
	}
}

// What is told while a client's stream is away, it hears when it comes back.
func TestListChangedMeanwhile(t *testing.T) {
	w := newWorld(t)
	id := w.begin(t)
	w.ask(t, id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for i := range 3 {
		w.shelf.put(pty1, tool(fmt.Sprint("more_", i), "", echo))
		w.Changed(sessionID, pty1)
		eventually(t, "push", func() bool { return testutil.ToFloat64(w.metrics.pushed) >= float64(i+1) })
	}
	events := w.open(t, "GET", "", map[string]string{sessionHeader: id})
	events.until(t, "notifications/tools/list_changed")
	events.cancel()
	events.ended(t)
}

// The answer to a call whose connection broke, as when a relay dies, comes on
// the next.
func TestAnswerIsResumed(t *testing.T) {
	w := newWorld(t)
	began, finish := make(chan bool), make(chan bool)
	w.shelf.put(pty1, tool("slow", "", func(ctx context.Context, _ toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
		began <- true
		<-finish
		return toolbox.Text("the answer"), ctx.Err()
	}))
	id := w.begin(t)
	header := map[string]string{sessionHeader: id, versionHeader: "2025-11-25"}
	call := w.open(t, "POST", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow"}}`, header)
	event := strings.TrimPrefix(call.until(t, "id:"), "id: ")
	await(t, began, "call")
	call.cancel()
	call.ended(t)
	eventually(t, "end of the request", func() bool { // before that the next one is a conflict
		w.Server.mu.Lock()
		defer w.Server.mu.Unlock()
		return w.owners[ownerKey{session: sessionID, pty: pty1}].requests == 0
	})
	finish <- true
	header["Last-Event-ID"] = event
	again := w.open(t, "GET", "", header)
	again.until(t, "the answer")
	again.ended(t)
}

// A version of the protocol without sessions needs none.
func TestWithoutSessions(t *testing.T) {
	w := newWorld(t)
	post := func(method, params string) request {
		return request{
			method: "POST", path: mcpPath,
			header: map[string]string{versionHeader: "2026-07-28", "Mcp-Method": method, "Mcp-Name": "whoami"},
			body: `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `"_meta":{
				"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},
				"io.modelcontextprotocol/clientCapabilities":{}}}}`,
		}
	}
	for method, want := range map[string]string{"server/discover": "2026-07-28", "tools/list": `"echo"`} {
		status, answer, _ := w.do(t, post(method, ""))
		if status != 200 || !strings.Contains(answer, want) || !strings.Contains(answer, `"cacheScope":"private"`) || strings.Contains(answer, signal.Name) {
			t.Errorf("%s: %d %s", method, status, answer)
		}
	}
	if status, answer, _ := w.do(t, post("tools/call", `"name":"whoami",`)); status != 200 || !strings.Contains(answer, "program of pty_1") {
		t.Errorf("call: %d %s", status, answer)
	}
	listen := post("subscriptions/listen", `"notifications":{"toolsListChanged":true},`)
	events := w.open(t, "POST", listen.body, listen.header)
	events.until(t, "acknowledged")
	w.shelf.put(pty1, tool("more", "", echo))
	w.Changed(sessionID, pty1)
	events.until(t, "list_changed")
	w.Ended(sessionID, pty1)
	events.ended(t)
	if n := w.openSessions(); n != 0 {
		t.Errorf("%v sessions are open", n)
	}
}
