package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testSecret = "a secret of this terminal"
	patience   = time.Minute
)

// An agent is a real MCP server where the agent's is, and can be restarted.
type agent struct {
	t       testing.TB
	address string
	events  mcp.EventStore
	secret  atomic.Pointer[string]
	wrap    func(http.Handler) http.Handler // nil: as it is
	network *network                        // in which it is; nil: loopback

	server *mcp.Server
	http   *http.Server

	dead   chan struct{} // closed when it stops
	hold   chan struct{} // closed by tests: what hold waits for
	echoed atomic.Int64  // calls of echo
	held   chan struct{} // calls of hold
	left   atomic.Int64  // calls of hold that were cancelled

	mu       sync.Mutex
	requests map[string]int      // by method
	open     map[net.Conn]string // requests that are, by method
}

type connection struct{} // key of a request's, in its context

func newAgent(t testing.TB) *agent {
	a := &agent{t: t, hold: make(chan struct{}), held: make(chan struct{}, 64), requests: make(map[string]int), open: make(map[net.Conn]string)}
	secret := testSecret
	a.secret.Store(&secret)
	t.Cleanup(func() { a.stop() })
	return a
}

// start serves at the same address each time.
func (a *agent) start() *agent {
	a.t.Helper()
	l := a.listen()
	a.dead = make(chan struct{})
	a.server = mcp.NewServer(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
	a.server.AddTool(&mcp.Tool{Name: "echo", InputSchema: json.RawMessage(`{"type":"object"}`)}, a.echo)
	a.server.AddTool(&mcp.Tool{Name: "hold", InputSchema: json.RawMessage(`{"type":"object"}`)}, a.wait)
	a.server.AddTool(&mcp.Tool{Name: "question", InputSchema: json.RawMessage(`{"type":"object"}`)}, a.question)
	var h http.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return a.server },
		&mcp.StreamableHTTPOptions{EventStore: a.events})
	if a.wrap != nil {
		h = a.wrap(h)
	}
	a.http = &http.Server{
		Handler:     a.guard(h),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
	}
	go a.http.Serve(l)
	return a
}

// listen returns a listener at the agent's address, which nobody else gets while
// there is none.
func (a *agent) listen() net.Listener {
	a.t.Helper()
	if a.network != nil {
		a.address = a.network.Addr().String()
		return a.network.listen()
	}
	if a.address == "" {
		a.address = reserve(a.t)
	}
	l, err := net.Listen("tcp", a.address)
	if err != nil {
		a.t.Fatal(err)
	}
	return l
}

func (a *agent) stop() {
	if a.http != nil {
		a.http.Close()
		close(a.dead)
		for s := range a.server.Sessions() {
			s.Close()
		}
		a.http = nil
	}
}

func (a *agent) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := r.Context().Value(connection{}).(net.Conn)
		a.mu.Lock()
		a.requests[r.Method]++
		a.open[c] = r.Method
		a.mu.Unlock()
		defer func() {
			a.mu.Lock()
			delete(a.open, c)
			a.mu.Unlock()
		}()
		if r.Header.Get(protocol.MCPSecretHeader) != *a.secret.Load() || r.URL.Query().Get("pty_id") != "p1" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"error":{"message":"forbidden","name":"AuthError"}}`)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (a *agent) count(method string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[method]
}

// cut breaks the connections of open requests of a method, once there are some.
func (a *agent) cut(method string) {
	a.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !a.broken(method); {
		select {
		case <-tick.C:
		case <-late:
			a.t.Fatalf("no %s is open", method)
		}
	}
}

// broken breaks what is open of a method, and reports whether something was.
func (a *agent) broken(method string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.open)
	for c, of := range a.open {
		if of == method {
			c.Close()
			delete(a.open, c) // its handler may be slow to hear of it
		}
	}
	return len(a.open) < n
}

func (a *agent) echo(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a.echoed.Add(1)
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(r.Params.Arguments)}}}, nil
}

// question answers what the program answers.
func (a *agent) question(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		select {
		case <-a.dead:
		case <-ctx.Done():
		}
	}()
	e, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "may I?", RequestedSchema: json.RawMessage(`{"type":"object"}`)})
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: e.Action}}}, nil
}

// wait answers when the test lets it, or not at all.
func (a *agent) wait(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	a.held <- struct{}{}
	select {
	case <-a.dead:
		return nil, context.Canceled
	case <-a.hold:
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "held"}}}, nil
	case <-ctx.Done():
		a.left.Add(1)
		return nil, ctx.Err()
	}
}

func (a *agent) credentials() protocol.MCPCredentials {
	return protocol.MCPCredentials{
		URL: "http://" + a.address + "/sessions/s1/mcp", SessionID: "s1", PTYID: "p1", Secret: testSecret,
	}
}

// write makes c the credentials file and returns its name.
func writeCredentials(t *testing.T, file string, c protocol.MCPCredentials) string {
	t.Helper()
	if file == "" {
		file = filepath.Join(t.TempDir(), "mcp.json")
	}
	text, err := json.Marshal(c)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A program is what talks to a bridge, line by line.
type program struct {
	t     testing.TB
	in    *io.PipeWriter
	lines chan string
	ended chan error
	next  int
}

// start runs a bridge with o between a program and its server.
func start(t testing.TB, o Options, l limits) *program {
	t.Helper()
	in, toBridge := io.Pipe()
	fromBridge, out := io.Pipe()
	o.In, o.Out = in, out
	p := &program{t: t, in: toBridge, lines: make(chan string, 256), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		p.ended <- run(ctx, o, l)
		out.Close()
	}()
	go func() {
		defer close(p.lines)
		r := bufio.NewReaderSize(fromBridge, 1<<20)
		for {
			text, err := r.ReadString('\n')
			if err != nil {
				return
			}
			p.lines <- text
		}
	}()
	t.Cleanup(func() {
		cancel()
		toBridge.Close()
		in.Close()
		fromBridge.Close()
		out.Close()
		for range p.lines { // until it is closed
		}
	})
	return p
}

func (p *program) say(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("the bridge reads no more: %v", err)
	}
}

// said is a message in parts that tests look at.
type said struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	text string
}

// hear returns the next message.
func (p *program) hear() said {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the bridge has ended")
		}
		var m said
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			p.t.Fatalf("the bridge said %q: %v", line, err)
		}
		m.text = line
		return m
	case <-time.After(patience):
		p.t.Fatal("the bridge says nothing")
	}
	panic("unreachable")
}

// until returns the next message that is so, and fails for an answer that isn't.
func (p *program) until(is func(said) bool) said {
	p.t.Helper()
	for {
		m := p.hear()
		if is(m) {
			return m
		}
		if m.Method == "" {
			p.t.Fatalf("an answer that nobody waits for: %s", m.text)
		}
	}
}

// ask sends a request and returns its id.
func (p *program) ask(method, params string) int {
	p.t.Helper()
	p.next++
	p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.next, method, params))
	return p.next
}

// answer returns the answer to the request id.
func (p *program) answer(id int) said {
	p.t.Helper()
	return p.until(func(m said) bool { return m.Method == "" && string(m.ID) == fmt.Sprint(id) })
}

// renewed returns the answer to the request id, once the program was told as well
// that lists may have changed.
func (p *program) renewed(id int) (answer said) {
	p.t.Helper()
	for told := false; !told || answer.ID == nil; {
		m := p.until(func(m said) bool { return m.Method != "" || string(m.ID) == fmt.Sprint(id) })
		switch m.Method {
		case "notifications/tools/list_changed":
			told = true
		case "":
			answer = m
		}
	}
	return answer
}

func (p *program) call(tool, args string) said {
	p.t.Helper()
	return p.answer(p.ask("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args)))
}

const hello = `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"0"}}`

// greet initializes as clients do.
func (p *program) greet() {
	p.t.Helper()
	if m := p.answer(p.ask("initialize", hello)); m.Error != nil {
		p.t.Fatalf("initialize: %s", m.text)
	}
	p.say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// end closes the input and waits for the bridge's end.
func (p *program) end() error {
	p.t.Helper()
	p.in.Close()
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		p.t.Fatal("the bridge goes on")
	}
	return nil
}

func wants(t testing.TB, m said, code int) {
	t.Helper()
	if m.Error == nil || m.Error.Code != code {
		t.Fatalf("got %s, want an error %d", m.text, code)
	}
}

func succeeds(t testing.TB, m said) {
	t.Helper()
	if m.Error != nil || m.Result == nil {
		t.Fatalf("got %s, want a result", m.text)
	}
}
