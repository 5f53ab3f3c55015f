package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A go-sdk client behind the bridge sees what it would see of the server itself.
func TestClient(t *testing.T) {
	a := newAgent(t).start()
	in, toBridge := io.Pipe()
	fromBridge, out := io.Pipe()
	ended := make(chan error, 1)
	l := usual()
	l.drain, l.leave = patience, patience
	go func() { ended <- run(t.Context(), Options{In: in, Out: out, Flags: a.credentials()}, l); out.Close() }()

	changed := make(chan time.Time, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "0"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- time.Now() },
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept"}, nil
		},
	})
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: fromBridge, Writer: toBridge}, nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 3 {
		t.Fatalf("%d tools, %v", len(tools.Tools), err)
	}
	result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"a": "ü\n"}})
	if err != nil || result.Content[0].(*mcp.TextContent).Text != `{"a":"ü\n"}` {
		t.Fatalf("%v, %v", result, err)
	}

	best := time.Hour // of several, for other work of the machine is not what is measured
	for range 5 {
		began := time.Now()
		a.server.AddTool(&mcp.Tool{Name: "new", InputSchema: json.RawMessage(`{"type":"object"}`)}, a.question)
		select {
		case at := <-changed:
			best = min(best, at.Sub(began))
		case <-time.After(patience):
			t.Fatal("the program was not told of another tool")
		}
	}
	if best > time.Second {
		t.Errorf("the program knew of another tool after %v", best)
	}
	result, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "new"})
	if err != nil || result.Content[0].(*mcp.TextContent).Text != "accept" {
		t.Fatalf("a question to the program got %v, %v", result, err)
	}
	if n := a.count("GET"); n != 1 {
		t.Errorf("%d streams were opened, want 1", n)
	}
	session.Close()
	toBridge.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for range a.server.Sessions() {
		t.Error("the session was not ended")
	}
}

// After a restart the program needs to do nothing, and is told to look again.
func TestRestart(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	p.greet()
	succeeds(t, p.call("echo", `{"n":1}`))
	for n := range 3 {
		a.stop()
		id := p.ask("tools/call", `{"name":"echo","arguments":{}}`) // while it is away
		a.start()
		succeeds(t, p.renewed(id))
		succeeds(t, p.call("echo", `{}`))
		if got, want := a.echoed.Load(), int64(1+2*(n+1)); got != want {
			t.Fatalf("%d calls were made, want %d", got, want)
		}
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// A call that the agent was at when it died ends with an error, and isn't made
// again.
func TestRestartInFlight(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	p.greet()
	id := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	<-a.held
	a.stop()
	wants(t, p.answer(id), codeFailed)
	a.start()
	p.until(func(m said) bool { return m.Method == "notifications/tools/list_changed" })
	succeeds(t, p.call("echo", `{}`))
	if n := len(a.held); n != 0 {
		t.Errorf("the call was made again, %d times", n)
	}
}

func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.network = &network{}
		a.start()
		l := usual()
		l.away = 400 * time.Millisecond
		p := start(t, Options{Flags: a.credentials(), dial: a.network.dial}, l)
		a.stop()
		wants(t, p.answer(p.ask("initialize", hello)), codeFailed)
		a.start()
		p.greet()
		a.stop()
		began := time.Now()
		m := p.call("echo", `{}`)
		wants(t, m, codeFailed)
		if !strings.Contains(m.Error.Message, "not there") || time.Since(began) < l.away {
			t.Errorf("after %v: %s", time.Since(began), m.text)
		}
		// What was cancelled while it waited is neither answered nor sent.
		id := p.ask("tools/call", `{"name":"echo","arguments":{}}`)
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		p.say("garbage") // what is answered behind the cancellation
		wants(t, p.hear(), codeParse)
		a.start()
		succeeds(t, p.call("echo", `{}`))
		if n := a.echoed.Load(); n != 1 {
			t.Errorf("%d calls were made, want 1", n)
		}
	})
}

func TestCancel(t *testing.T) {
	a := newAgent(t).start()
	p := start(t, Options{Flags: a.credentials()}, usual())
	p.greet()
	for range 20 {
		id := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		// The tool either never began or has seen the end.
		succeeds(t, p.lastAnswer(p.ask("tools/call", `{"name":"echo","arguments":{}}`)))
	}
	if err := p.end(); err != nil {
		t.Error(err)
	}
}

// lastAnswer returns the answer to id, behind those to what was cancelled.
func (p *program) lastAnswer(id int) said {
	p.t.Helper()
	for {
		if m := p.hear(); m.Method == "" && string(m.ID) == fmt.Sprint(id) {
			return m
		}
	}
}

func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t)
		a.network = &network{}
		a.start()
		l := usual()
		l.silence = 500 * time.Millisecond
		p := start(t, Options{Flags: a.credentials(), dial: a.network.dial}, l)
		p.greet()
		wants(t, p.call("hold", `{}`), codeFailed)
		succeeds(t, p.call("echo", `{}`))
	})
}

// The end of input waits for answers, a moment.
func TestEnd(t *testing.T) {
	a := newAgent(t).start()
	l := usual()
	l.drain, l.leave = patience, patience
	p := start(t, Options{Flags: a.credentials()}, l)
	p.greet()
	id := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	<-a.held
	p.in.Close()
	close(a.hold)
	succeeds(t, p.answer(id))
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	if a.count("DELETE") != 1 {
		t.Error("the session was not ended")
	}
}

func TestEndBeforeAnswer(t *testing.T) {
	a := newAgent(t).start()
	l := usual()
	l.drain, l.leave = 50*time.Millisecond, 50*time.Millisecond
	p := start(t, Options{Flags: a.credentials()}, l)
	p.greet()
	id := p.ask("tools/call", `{"name":"hold","arguments":{}}`)
	<-a.held
	if err := p.end(); err != nil {
		t.Error(err)
	}
	wants(t, p.answer(id), codeFailed)
}

// All at once on the input, as a shell script would.
func TestPiped(t *testing.T) {
	a := newAgent(t).start()
	var out strings.Builder
	in := strings.NewReader(`{"jsonrpc":"2.0","id":"a","method":"initialize","params":` + hello + `}
{"jsonrpc":"2.0","method":"notifications/initialized"}

{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"echo","arguments":{}}}`)
	if err := Run(t.Context(), Options{In: in, Out: &out, Flags: a.credentials()}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"id":"a"`) || !strings.Contains(lines[1], `"id":"b"`) {
		t.Errorf("got %q", lines)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestOutputGone(t *testing.T) {
	a := newAgent(t).start()
	in, toBridge := io.Pipe()
	defer toBridge.Close()
	go io.WriteString(toBridge, "garbage\n")
	if err := Run(t.Context(), Options{In: in, Out: broken{}, Flags: a.credentials()}); err == nil {
		t.Error("no error, want that of the output")
	}
	in.Close()
}

func TestGarbage(t *testing.T) {
	a := newAgent(t).start()
	l := usual()
	l.line = 4096
	p := start(t, Options{Flags: a.credentials()}, l)
	p.greet()
	succeeds(t, p.call("echo", `{}`)) // behind what greet says
	before := a.count("POST")
	long := strings.Repeat("x", l.line)
	for _, test := range []struct {
		line string
		code int
		id   string
	}{
		{"garbage", codeParse, "null"},
		{`{"jsonrpc":"2.0","id":7,`, codeParse, "7"},
		{`[]`, codeInvalid, "null"},
		{`null`, codeInvalid, "null"},
		{`12`, codeInvalid, "null"},
		{`{}`, codeInvalid, "null"},
		{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, codeInvalid, "null"},
		{`{"jsonrpc":"2.0","id":8,"method":9}`, codeInvalid, "8"},
		{`{"jsonrpc":"2.0","id":8,"METHOD":"ping"}`, codeInvalid, "8"},
		{`{"jsonrpc":"2.0","id":"x","method":"ping","params":{"a":"` + long + `"}}`, codeInvalid, `"x"`},
		{`{"params":{"a":"` + long + `"},"jsonrpc":"2.0","id":"x","method":"ping"}`, codeInvalid, "null"},
		{"\xff\xfe", codeParse, "null"},
	} {
		p.say(test.line)
		m := p.hear()
		wants(t, m, test.code)
		if string(m.ID) != test.id {
			t.Errorf("%.40s: the answer is to %s, want %s", test.line, m.ID, test.id)
		}
	}
	if n := a.count("POST"); n != before {
		t.Errorf("%d messages reached the server", n-before)
	}
	p.say("\r")
	succeeds(t, p.call("echo", `{}`))
	wants(t, p.answer(p.ask("no/such", `{}`)), codeFailed) // this server answers it with status 400
}
