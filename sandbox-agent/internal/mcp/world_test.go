package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Terminals of the tests, and their secrets.
const (
	sessionID = protocol.SessionID("ses_1")
	pty1      = protocol.PTYID("pty_1")
	pty2      = protocol.PTYID("pty_2")
	// leak is what the world masks.
	leak = "hunter2-hunter2"
)

// A shelf is a set of tools that tests change.
type shelf struct {
	mu    sync.Mutex
	tools []toolbox.Tool
	more  map[protocol.PTYID][]toolbox.Tool // of one terminal alone
}

func (s *shelf) Tools(c toolbox.Caller) []toolbox.Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append(append([]toolbox.Tool{}, s.tools...), s.more[c.PTY]...)
}

func (s *shelf) put(at protocol.PTYID, tools ...toolbox.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.more[at] = tools
}

// tool returns a tool that does what call does.
func tool(name, properties string, call func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error)) toolbox.Tool {
	schema := `{"type":"object","properties":{` + properties + `}}`
	return toolbox.Tool{
		Tool: protocol.Tool{Name: name, Description: "A tool of the tests.", InputSchema: json.RawMessage(schema)},
		Call: call,
	}
}

func echo(_ context.Context, _ toolbox.Caller, args json.RawMessage) (protocol.ToolResult, error) {
	return toolbox.Text(string(args)), nil
}

// A world is a server on a loopback port, with terminals.
type world struct {
	*Server
	shelf    *shelf
	url      string // of the listener
	registry *prometheus.Registry

	mu      sync.Mutex
	secrets map[protocol.PTYID]string
	grants  map[string]*jws.Grant // by a header of the tests
	told    []string
	changes [][2]int
}

func newWorld(t testing.TB, adjust ...func(*Options)) *world {
	t.Helper()
	w := &world{
		registry: prometheus.NewRegistry(),
		secrets:  map[protocol.PTYID]string{pty1: "secret-of-1", pty2: "secret-of-2"},
		grants:   make(map[string]*jws.Grant),
		shelf:    &shelf{more: make(map[protocol.PTYID][]toolbox.Tool)},
	}
	w.shelf.tools = []toolbox.Tool{
		tool("echo", `"text":{"type":"string"},"count":{"type":"integer"},"big":{}`, echo),
		tool("whoami", "", func(_ context.Context, c toolbox.Caller, _ json.RawMessage) (protocol.ToolResult, error) {
			who := "program of " + string(c.PTY)
			if c.Tab != 0 {
				who = fmt.Sprintf("%s, bound to tab %d", who, c.Tab)
			}
			if c.Grant != nil {
				who = string(c.Grant.Subject)
			}
			return toolbox.Text(who), nil
		}),
		tool("leak", "", func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			return toolbox.Text("it is " + leak), nil
		}),
		tool("leak_error", "", func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			return protocol.ToolResult{}, errors.New("no: " + leak)
		}),
		tool("panic", "", func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			panic(leak)
		}),
		tool("picture", "", func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			return protocol.ToolResult{Content: []protocol.ToolContent{{Type: "image", Data: []byte("png"), MIMEType: "image/png"}}}, nil
		}),
		tool("list_items", "", func(context.Context, toolbox.Caller, json.RawMessage) (protocol.ToolResult, error) {
			return toolbox.Text(`{"items":[]}`), nil
		}),
	}
	var mux http.ServeMux
	server := httptest.NewUnstartedServer(&mux)
	opts := Options{Listener: server.Listener, Terminals: w, Sets: []toolbox.Set{w.shelf}, Secrets: &mask.Secrets{}}
	if _, err := opts.Secrets.Change([]string{leak}); err != nil {
		t.Fatal(err)
	}
	for _, f := range adjust {
		f(&opts)
	}
	w.Server = New(opts)
	for pty, secret := range w.secrets {
		w.known.byPTY[pty] = protocol.MCPCredentials{SessionID: sessionID, PTYID: pty, Secret: secret}
	}
	w.registry.MustRegister(w.Server)
	relays := http.NewServeMux() // what comes through relays, under a prefix of the tests
	w.Routes(relays)
	mux.Handle("/", w.Loopback())
	mux.Handle("/relay/", http.StripPrefix("/relay", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		grant := w.grants[r.Header.Get("X-Test-Grant")]
		w.mu.Unlock()
		relays.ServeHTTP(rw, r.WithContext(route.WithGrant(r.Context(), grant)))
	})))
	server.Start()
	w.url = server.URL
	t.Cleanup(func() {
		w.Close()
		server.CloseClientConnections()
		server.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return w
}

// UID implements [Terminals].
func (w *world) UID(_ protocol.SessionID, p protocol.PTYID) (int, bool) { return 2001, p == pty1 }

// AgentTurn implements [Terminals].
func (w *world) AgentTurn(s protocol.SessionID, p protocol.PTYID, turn protocol.AgentTurn) error {
	w.tell("stopped " + string(s) + " " + string(p) + " " + turn.Agent + " " + string(turn.Reason) + " " + turn.LastMessage)
	return nil
}

// AgentStarted implements [Terminals].
func (w *world) AgentStarted(_ protocol.SessionID, p protocol.PTYID, agent string) error {
	w.tell("started " + string(p) + " " + agent)
	return nil
}

// AgentReady implements [Terminals].
func (w *world) AgentReady(_ protocol.SessionID, p protocol.PTYID, agent string) error {
	w.tell("ready " + string(p) + " " + agent)
	return protocol.Errorf(protocol.KindConflict, "not now")
}

// Scrollback implements [Terminals].
func (w *world) Scrollback(protocol.SessionID, protocol.PTYID) ([]byte, error) {
	return []byte("$ ls\n"), nil
}

// NoteTools implements [Terminals].
func (w *world) NoteTools(_ protocol.SessionID, _ protocol.PTYID, old, now int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes = append(w.changes, [2]int{old, now})
}

func (w *world) tell(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, what)
}

// mcpURL returns the URL of MCP for a terminal's programs.
func (w *world) mcpURL(p protocol.PTYID) string {
	return w.url + "/sessions/" + string(sessionID) + "/mcp?pty_id=" + string(p)
}

// A request is one that tests make by hand.
type request struct {
	method, path, body string
	header             map[string]string // replaces; "" removes
	host               string
}

// do sends a request as a program of pty would.
func (w *world) do(t testing.TB, req request) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), req.method, w.url+req.path, strings.NewReader(req.body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(protocol.MCPSecretHeader, "secret-of-1")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range req.header {
		r.Header.Set(name, value)
		if value == "" {
			r.Header.Del(name)
		}
	}
	if req.host != "" {
		r.Host = req.host
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

const mcpPath = "/sessions/ses_1/mcp?pty_id=pty_1"

// headers adds headers to all requests of a client.
type headers map[string]string

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// A client is an MCP client, and how often it was told of other tools.
type client struct {
	*sdk.ClientSession
	changed chan time.Time
}

// connect returns a client of the SDK's at url, with a session.
func connect(t testing.TB, url string, h headers) *client {
	t.Helper()
	return connectBy(t, "2025-11-25", url, h)
}

// connectBy returns a client that speaks a version of the protocol.
func connectBy(t testing.TB, version, url string, h headers) *client {
	t.Helper()
	c := &client{changed: make(chan time.Time, 1000)}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { c.changed <- time.Now() },
	}).Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: h}},
		&sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	c.ClientSession = session
	t.Cleanup(func() { session.Close() })
	return c
}

func (w *world) program(t testing.TB, p protocol.PTYID) *client {
	t.Helper()
	return connect(t, w.mcpURL(p), headers{protocol.MCPSecretHeader: w.secrets[p]})
}

// call calls a tool and returns its text.
func (c *client) call(t testing.TB, name string, args any) (string, bool) {
	t.Helper()
	result, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var text strings.Builder
	for _, one := range result.Content {
		if x, ok := one.(*sdk.TextContent); ok {
			text.WriteString(x.Text)
		}
	}
	return text.String(), result.IsError
}

// patience is how long tests wait for what must come.
const patience = time.Minute

// await returns what ch gives.
func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// eventually waits until ok holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("no %s", what)
		}
	}
}
