package bridge

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// When the server's stream breaks the program is told to look again, for what
// changed meanwhile went unsaid.
func TestStreamLost(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	p.greet()
	succeeds(t, p.call("echo", `{}`))
	for range 3 {
		a.cut("GET")
		p.until(func(m said) bool { return m.Method == "notifications/tools/list_changed" })
		succeeds(t, p.call("echo", `{}`))
	}
	a.server.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, a.echo)
	p.until(func(m said) bool { return m.Method == "notifications/tools/list_changed" })
}

// A stream of numbered events is resumed, and what was said meanwhile comes.
func TestStreamResumed(t *testing.T) {
	a := newAgent(t)
	a.events = mcp.NewMemoryEventStore(nil)
	a.start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	p.greet()
	succeeds(t, p.call("echo", `{}`))
	for n := range 4 {
		a.server.AddTool(&mcp.Tool{Name: fmt.Sprint("new", n), InputSchema: json.RawMessage(`{"type":"object"}`)}, a.echo)
		p.until(func(m said) bool { return m.Method == "notifications/tools/list_changed" })
		a.cut("GET")
	}
	succeeds(t, p.call("echo", `{}`))
}

// The answer to a call whose connection broke is lost where events have no
// numbers; the call isn't made again.
func TestCallLost(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	p.greet()
	id := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	<-a.held
	a.cut("POST")
	wants(t, p.answer(id), codeFailed)
	close(a.hold)
	succeeds(t, p.call("echo", `{}`))
	if n := len(a.held); n != 0 {
		t.Errorf("the call was made again, %d times", n)
	}
}

func TestCallResumed(t *testing.T) {
	a := newAgent(t)
	a.events = mcp.NewMemoryEventStore(nil)
	a.start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	if m := p.answer(p.ask("initialize", strings.Replace(hello, "2025-06-18", "2025-11-25", 1))); m.Error != nil {
		t.Fatal(m.text) // from this version on a stream begins with a number
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	id := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	<-a.held
	a.cut("POST")
	close(a.hold)
	succeeds(t, p.answer(id))
	if n := len(a.held); n != 0 {
		t.Errorf("the call was made again, %d times", n)
	}
}

// A wrong secret is an error at once, unless the file knows a better one.
func TestSecrets(t *testing.T) {
	a := newAgent(t).start()
	wrong := a.credentials()
	wrong.Secret = "of another terminal"
	other := a.credentials()
	other.PTYID = "p2"
	file := writeCredentials(t, "", other)
	p := start(t, Options{Flags: wrong, Credentials: file}, usual())
	m := p.answer(p.ask("initialize", hello))
	wants(t, m, codeFailed)
	if strings.Contains(m.text, wrong.Secret) || strings.Contains(m.text, testSecret) {
		t.Errorf("a secret was told: %s", m.text)
	}
	writeCredentials(t, file, a.credentials())
	p.greet()
	succeeds(t, p.call("echo", `{}`))

	// A restarted agent is elsewhere and has another secret, as the file says.
	a.stop()
	a.address = ""
	changed := "another secret"
	a.secret.Store(&changed)
	id := p.ask("tools/call", `{"name":"echo","arguments":{}}`)
	a.start()
	now := a.credentials()
	now.Secret = changed
	writeCredentials(t, file, now)
	succeeds(t, p.renewed(id))

	// Here the secret is refused while the session is open.
	changed2 := "a third secret"
	a.secret.Store(&changed2)
	m = p.call("echo", `{}`)
	wants(t, m, codeFailed)
	if !strings.Contains(m.Error.Message, "secret") {
		t.Errorf("got %s", m.text)
	}
	now.Secret = changed2
	writeCredentials(t, file, now)
	succeeds(t, p.call("echo", `{}`))

	// Here it is refused when another session is to be opened: no call waits.
	a.stop()
	changed3 := "a fourth secret"
	a.secret.Store(&changed3)
	a.start()
	m = p.call("echo", `{}`)
	wants(t, m, codeFailed)
	if !strings.Contains(m.Error.Message, "secret") {
		t.Errorf("got %s", m.text)
	}
	now.Secret = changed3
	writeCredentials(t, file, now)
	p.until(func(m said) bool { return m.Method == "notifications/tools/list_changed" })
	succeeds(t, p.call("echo", `{}`))
}

func TestCredentials(t *testing.T) {
	full := protocol.MCPCredentials{URL: "http://127.0.0.1:1/sessions/s1/mcp", SessionID: "s1", PTYID: "p1", Secret: "x"}
	file := writeCredentials(t, "", full)
	variables := map[string]string{
		"FAIRLEAD_MCP_URL": full.URL, "FAIRLEAD_PTY_ID": "p1", "ORCABOT_MCP_SECRET": "x", "ORCABOT_PTY_ID": "p9", "ORCABOT_SESSION_ID": "s1",
	}
	for _, test := range []struct {
		name string
		o    Options
		fine bool
	}{
		{"flags", Options{Flags: full}, true},
		{"variables", Options{Getenv: func(name string) string { return variables[name] }}, true},
		{"file", Options{Credentials: file}, true},
		{"a part, and the file", Options{Flags: protocol.MCPCredentials{PTYID: "p1"}, Credentials: file}, true},
		{"a part, and the file of another", Options{Flags: protocol.MCPCredentials{PTYID: "p2"}, Credentials: file}, false},
		{"another session's file", Options{Flags: protocol.MCPCredentials{SessionID: "s2"}, Credentials: file}, false},
		{"nothing", Options{}, false},
		{"no file", Options{Credentials: file + ".none"}, false},
		{"another machine", Options{Flags: protocol.MCPCredentials{URL: "http://192.0.2.1/mcp", PTYID: "p1", Secret: "x"}}, false},
		{"another scheme", Options{Flags: protocol.MCPCredentials{URL: "file:///etc", PTYID: "p1", Secret: "x"}}, false},
	} {
		b, err := newBridge(test.o, usual())
		if (err == nil) != test.fine {
			t.Errorf("%s: %v", test.name, err)
		}
		if err == nil && b.credentials != full {
			t.Errorf("%s: found %+v", test.name, b.credentials)
		}
	}
	if err := Run(t.Context(), Options{In: strings.NewReader(""), Out: io.Discard}); err == nil {
		t.Error("it runs without credentials")
	}
}

// A bridge of a program that is bound to a tab of the browser says so.
func TestBoundTab(t *testing.T) {
	for value, want := range map[string]string{"3": "3", "": "", "x": "", "-1": ""} {
		heard := make(chan string, 64)
		a := newAgent(t)
		a.wrap = func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				heard <- r.Header.Get(toolbox.TabHeader)
				h.ServeHTTP(w, r)
			})
		}
		a.start()
		p := start(t, Options{Flags: a.credentials(), Getenv: func(name string) string {
			if name == toolbox.TabVariable {
				return value
			}
			return ""
		}}, usual())
		p.greet()
		succeeds(t, p.call("echo", `{}`))
		if err := p.end(); err != nil {
			t.Error(err)
		}
		for range len(heard) {
			if got := <-heard; got != want {
				t.Errorf("%q: %q", value, got)
			}
		}
	}
}

// answering is a server that isn't the SDK's.
func answering(t testing.TB, h http.HandlerFunc, adjust ...func(*limits)) (*agent, *program) {
	t.Helper()
	return newAgent(t).answering(h, adjust...)
}

func (a *agent) answering(h http.HandlerFunc, adjust ...func(*limits)) (*agent, *program) {
	a.t.Helper()
	a.wrap = func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.Contains(string(body), `"initialize"`):
				io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`)
			case r.Method == http.MethodGet:
				w.WriteHeader(http.StatusMethodNotAllowed)
			case strings.Contains(string(body), `"notifications/`):
				w.WriteHeader(http.StatusAccepted)
			default:
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				h(w, r)
			}
		})
	}
	a.start()
	l := usual()
	l.line = 1 << 16
	for _, f := range adjust {
		f(&l)
	}
	o := Options{Flags: a.credentials()}
	if a.network != nil {
		o.dial = a.network.dial
	}
	p := start(a.t, o, l)
	p.greet()
	return a, p
}

func TestStrangeAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		kind, body string
		status     int
		code       int
	}{
		"garbage":          {"application/json", "<html>", 200, codeFailed},
		"nothing":          {"application/json", "", 200, codeFailed},
		"accepted":         {"application/json", "", 202, codeFailed},
		"garbage event":    {"text/event-stream", "data: {\n\n", 200, codeFailed},
		"another's answer": {"text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n\n", 200, codeFailed},
		"too long":         {"text/event-stream", "data: \"" + strings.Repeat("x", 1<<17) + "\"\n\n", 200, codeFailed},
		"too long JSON":    {"application/json", `{"jsonrpc":"2.0","id":2,"result":"` + strings.Repeat("x", 1<<17) + `"}`, 200, codeFailed},
		"an error":         {"application/json", `{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no"}}`, 200, -32601},
		"an error to none": {"application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`, 200, -32600},
		"a refusal":        {"application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`, 400, -32600},
		"our refusal":      {"application/json", `{"error":{"message":"no","name":"LimitError"}}`, 413, codeFailed},
		"a plain refusal":  {"text/plain", "no\n", 500, codeFailed},
		"not found":        {"text/plain", "no\n", 404, codeFailed},
		"two answers": {"text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":7,\"message\":\"\"}}\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n", 200, 7},
		"spread": {"text/event-stream", ": hello\r\nevent: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":2,\r\ndata:\"error\":{\"code\":7,\"message\":\"\"}}\r\n\r\n", 200, 7},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := answering(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.kind)
				w.WriteHeader(test.status)
				io.WriteString(w, test.body)
			})
			m := p.call("x", `{}`)
			wants(t, m, test.code)
			if strings.Contains(test.body, "no") && test.status != 200 && m.Error.Message != "no" && !strings.HasSuffix(m.Error.Message, ": no") {
				t.Errorf("the reason is missing: %s", m.text)
			}
			if err := p.end(); err != nil {
				t.Error(err)
			}
			for line := range p.lines {
				t.Errorf("it also said %s", line)
			}
		})
	}
}

// A message that is too large for the server is answered, and the next one is
// passed on.
func TestTooLarge(t *testing.T) {
	_, p := answering(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":3,"result":{"bytes":%d}}`, n)
	}, func(l *limits) { l.line = 10 << 20 })
	m := p.call("echo", `{"a":"`+strings.Repeat("x", protocol.MaxMCPBody)+`"}`)
	wants(t, m, codeFailed)
	if !strings.Contains(m.Error.Message, "413") {
		t.Errorf("got %s", m.text)
	}
	succeeds(t, p.call("echo", `{"a":"`+strings.Repeat("x", protocol.MaxMCPBody-1000)+`"}`))
}

// What is said of a call, or its progress elsewhere, keeps it alive.
func TestAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.network = &network{}
		_, p := a.answering(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 6 {
				select {
				case <-time.After(200 * time.Millisecond):
				case <-r.Context().Done():
					return
				}
				io.WriteString(w, ": it goes on\n\n")
				http.NewResponseController(w).Flush()
			}
			io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n")
		}, func(l *limits) { l.silence = time.Second })
		succeeds(t, p.call("x", `{}`))
	})
}

// The server's questions reach the program, whose answers reach the session that
// asked and no other.
func TestQuestions(t *testing.T) {
	replies := make(chan string, 4)
	_, p := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if !strings.Contains(string(body), `"method"`) {
			replies <- string(body)
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"q\",\"method\":\"elicitation/create\",\"params\":{}}\n\n")
		http.NewResponseController(w).Flush()
		select {
		case reply := <-replies:
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":%s}\n\n", reply)
		case <-r.Context().Done():
		}
	})
	id := p.ask("tools/call", `{"name":"x"}`)
	q := p.hear()
	if q.Method != "elicitation/create" {
		t.Fatalf("got %s", q.text)
	}
	p.say(`{"jsonrpc":"2.0","id":"other","result":{}}`) // to nothing
	p.say(`{"jsonrpc":"2.0","id":"q","result":{"action":"accept"}}`)
	if m := p.answer(id); !strings.Contains(m.text, "accept") {
		t.Errorf("got %s", m.text)
	}
}

// After a restart the server's questions of before are void, though new ones have
// the same ids.
func TestQuestionsAfterRestart(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	elicits := strings.Replace(hello, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1)
	succeeds(t, p.answer(p.ask("initialize", elicits)))
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	isQuestion := func(m said) bool { return m.Method == "elicitation/create" }
	var old []said
	for range 3 {
		id := p.ask("tools/call", `{"name":"question","arguments":{}}`)
		q := p.until(isQuestion)
		a.stop()
		wants(t, p.answer(id), codeFailed)
		a.start()
		cancelled := p.until(func(m said) bool { return m.Method == "notifications/cancelled" })
		if !strings.Contains(string(cancelled.Params), `"requestId":`+string(q.ID)) {
			t.Fatalf("got %s, want that %s is void", cancelled.text, q.ID)
		}
		old = append(old, q)
	}
	id := p.ask("tools/call", `{"name":"question","arguments":{}}`)
	q := p.until(isQuestion)
	for _, o := range old[1:] { // before that an id is free again
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"decline"}}`, o.ID))
		if string(o.ID) == string(q.ID) {
			t.Errorf("two questions are called %s", q.ID)
		}
	}
	p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept"}}`, q.ID))
	if m := p.answer(id); !strings.Contains(m.text, "accept") {
		t.Errorf("got %s", m.text)
	}
}

// Messages that say their version themselves belong to no session.
func TestVersionInMessage(t *testing.T) {
	headers := make(chan http.Header, 1)
	_, p := answering(t, func(w http.ResponseWriter, r *http.Request) {
		headers <- r.Header
		io.WriteString(w, `{"jsonrpc":"2.0","id":2,"result":{}}`)
	})
	succeeds(t, p.answer(p.ask("tools/call", `{"name":"ä","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`)))
	h := <-headers
	if h.Get("Mcp-Session-Id") != "" || h.Get("Mcp-Protocol-Version") != "2026-07-28" || h.Get("Mcp-Method") != "tools/call" ||
		h.Get("Mcp-Name") != "=?base64?w6Q=?=" {
		t.Errorf("headers %v", h)
	}
}

func TestBatch(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	if m := p.answer(p.ask("initialize", strings.Replace(hello, "2025-06-18", "2025-03-26", 1))); m.Error != nil {
		t.Fatal(m.text)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.say(`[{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0","id":"b","method":"tools/list"},{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]`)
	seen := map[string]bool{}
	for range 2 {
		m := p.hear()
		succeeds(t, m)
		seen[string(m.ID)] = true
	}
	if !seen[`"a"`] || !seen[`"b"`] {
		t.Errorf("answered %v", seen)
	}
}

// More calls than may wait, and one of an id that waits, are errors at once.
func TestTooMany(t *testing.T) {
	a := newAgent(t).start()
	l := usual()
	l.calls = 2
	p := start(t, Options{Flags: a.credentials()}, l)
	p.greet()
	first := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d.0,"method":"ping"}`, first))
	wants(t, p.hear(), codeInvalid)
	second := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	wants(t, p.answer(p.ask("ping", `{}`)), codeInvalid)
	close(a.hold)
	for range 2 {
		m := p.hear()
		succeeds(t, m)
		if id := string(m.ID); id != fmt.Sprint(first) && id != fmt.Sprint(second) {
			t.Errorf("an answer to %s", id)
		}
	}
	succeeds(t, p.answer(p.ask("ping", `{}`)))
}
