package sidebarapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

const (
	extension = "chrome-extension://abcdefghijklmnopabcdefghijklmnop"
	stranger  = "chrome-extension://ponmlkjihgfedcbaponmlkjihgfedcba"
)

// A world is the API at a real server, between a control plane that signs and a
// sandbox.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	api       *API
	origin    string
	client    *http.Client

	mu sync.Mutex
	// Guarded by mu.
	signed  []string                                     // operations, as JSON
	asked   []string                                     // of the sandbox, paths with queries
	execute func(kind string) (op.SidebarResult, error)  // the sandbox's
	decided protocol.OpResult                            // what the sandbox says of a decision
	serve   func(w http.ResponseWriter, r *http.Request) // the sandbox's
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, authority: relaytest.NewAuthority(t), client: &http.Client{Transport: &http.Transport{}},
		execute: func(string) (op.SidebarResult, error) { return op.SidebarResult{}, nil },
		serve:   func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") },
	}
	controlPlane := httptest.NewServer(http.HandlerFunc(w.controlPlane))
	t.Cleanup(controlPlane.Close)
	agent, relay := tunneltest.Pair(t)
	tunnels := &relaytest.Tunnels{}
	tunnels.Connect(relay)
	relaytest.Answer(t, agent, w.answer)
	log := slog.New(slog.DiscardHandler)
	dispatcher := dispatch.New(dispatch.Options{Keys: w.authority.Keys, Tunnels: tunnels, Log: log})
	t.Cleanup(dispatcher.Close)
	cookies, err := access.NewPanelStreams(nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	w.origin = "http://" + server.Listener.Addr().String()
	origins, err := access.NewOrigins([]string{w.origin})
	if err == nil {
		err = origins.ListExtensions([]string{strings.TrimPrefix(extension, access.ExtensionScheme)})
	}
	if err != nil {
		t.Fatal(err)
	}
	signing := &http.Client{Transport: &http.Transport{}}
	w.api = &API{
		Origins: origins, Keys: w.authority.Keys, Cookies: cookies, Tunnels: tunnels,
		Signer: &dispatch.Signer{URL: controlPlane.URL, Client: signing}, Dispatcher: dispatcher,
		Requests: reverseproxy.New(w.authority.Grants, prometheus.NewRegistry()), Metrics: NewMetrics(prometheus.NewRegistry()), Log: log,
	}
	mux := http.NewServeMux()
	methods := access.NewMethods(mux)
	w.api.Register(methods)
	mux.HandleFunc("/", http.NotFound)
	methods.RefuseOthers()
	server.Config.Handler = origins.Guard(origins.Share(mux))
	server.Start()
	t.Cleanup(func() {
		w.api.Requests.Drain()
		w.client.CloseIdleConnections()
		signing.CloseIdleConnections()
		server.Close()
	})
	return w
}

func (w *world) controlPlane(answer http.ResponseWriter, r *http.Request) {
	asked := w.authority.Asked(r)
	w.mu.Lock()
	w.signed = append(w.signed, string(asked.Op))
	w.mu.Unlock()
	if asked.Target.SessionID != relaytest.Session {
		w.t.Errorf("%+v", asked.Target)
	}
	relaytest.Signed(answer, w.authority.Envelope(asked))
}

// answer is the sandbox.
func (w *world) answer(in *tunnel.Incoming) {
	switch in.Open.Kind {
	case protocol.StreamHTTP:
		relaytest.HTTP(in, func(answer http.ResponseWriter, r *http.Request) {
			w.mu.Lock()
			w.asked = append(w.asked, r.URL.RequestURI())
			serve := w.serve
			w.mu.Unlock()
			if len(r.Header["Cookie"])+len(r.Header["Authorization"]) > 0 {
				w.t.Errorf("the sandbox sees %v", r.Header)
			}
			serve(answer, r)
		})
	case protocol.StreamCommand:
		w.authority.Carry(in, w.carryOut)
	}
}

// carryOut is what the sandbox says of a command.
func (w *world) carryOut(c *jws.Command) protocol.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	result, err := w.execute(c.Kind())
	if err == nil && c.Kind() == op.KindToolDecide {
		w.decided.Kind = c.Kind()
		return relaytest.OK(c.CommandID, w.decided)
	}
	if err == nil {
		text, _ := json.Marshal(result)
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), Sidebar: text})
	}
	e := protocol.AsError(err)
	callback, _ := json.Marshal(protocol.ExecutionCallback{
		Type: protocol.CallbackType, CommandID: c.CommandID, Status: protocol.StatusError, Error: new(e.Body()),
	})
	return protocol.Result{Callback: callback, Kind: e.Kind}
}

// grant returns a grant of a person for the session.
func (w *world) grant(who string, caps ...protocol.Capability) string {
	_, token := w.authority.Grant(func(g *jws.Grant) {
		g.Subject, g.Session, g.Caps = protocol.UserID("usr_"+who), relaytest.Session, caps
	})
	return token
}

// ask sends a request, and returns the status and the body.
func (w *world) ask(method, path, bearer, body string, header ...string) (int, string, http.Header) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.origin+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

// log returns what was signed and asked, and forgets it.
func (w *world) log() (signed, asked string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	signed, asked = strings.Join(w.signed, "\n"), strings.Join(w.asked, "\n")
	w.signed, w.asked = nil, nil
	return signed, asked
}

func (w *world) executes(execute func(string) (op.SidebarResult, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.execute = execute
}

// What the real panel sends, and what it gets.
func TestChanges(t *testing.T) {
	w := newWorld(t)
	all := w.grant("alice", protocol.CapChat, protocol.CapView)
	w.executes(func(string) (op.SidebarResult, error) {
		return op.SidebarResult{QueuedMessages: 3, ActiveTab: []byte(`{"id":2}`), Session: []byte(`{"id":"s"}`)}, nil
	})
	for _, c := range []struct {
		path, body string
		status     int
		answer, op string
	}{
		{"/sidebar-command", `{"message":" go to hn ","activeTabUrl":"https://a/\u0000b"}`, 200, `{"ok":true,"processing":true}`, `{"kind":"sidebar.send","message":"go to hn","url":"https://a/b"}`},
		{"/sidebar-command", `{"message":"x","activeTabUrl":"chrome://newtab","tabId":null,"more":[]}`, 200, `{"ok":true,"processing":true}`, `{"kind":"sidebar.send","message":"x"}`},
		{"/sidebar-command", `{"message":"x","tabId":7}`, 200, `{"ok":true,"processing":true}`, `{"kind":"sidebar.send","message":"x","tabId":7}`},
		{"/sidebar-command", `{"message":" \n"}`, 400, `{"error":"Empty message"}`, ""},
		{"/sidebar-command", `{"message":7}`, 400, `{"error":"Empty message"}`, ""},
		{"/sidebar-command", `{"message":"x","tabId":"7"}`, 400, `{"error":"tabId is no number"}`, ""},
		{"/sidebar-command", `{"message":"x","tabId":-7}`, 400, `{"error":"tabId is not the id of a tab"}`, ""},
		{"/sidebar-command", `[]`, 400, `{"error":"the body must be a JSON object"}`, ""},
		{"/sidebar-command", `{"message":"` + strings.Repeat("x", op.MaxSidebarMessage+1) + `"}`, 413, `{"error":"message is longer than 24576 bytes"}`, ""},
		{"/sidebar-command", strings.Repeat(" ", maxBody+1), 413, `{"error":"the body is over 65536 bytes"}`, ""},
		{"/sidebar-chat/clear", "", 200, `{"ok":true}`, `{"kind":"sidebar.clear"}`},
		{"/sidebar-queue/dismiss", `{"index":2}`, 200, `{"ok":true}`, `{"kind":"sidebar.dismiss","index":2}`},
		{"/sidebar-queue/dismiss", `{}`, 400, `{"error":"Invalid index"}`, ""},
		{"/sidebar-agent/stop", "", 200, `{"ok":true,"queuedMessages":3}`, `{"kind":"sidebar.stop"}`},
		{"/sidebar-agent/kill", `{"tabId":2}`, 200, `{"ok":true}`, `{"kind":"sidebar.stop","tabId":2,"kill":true}`},
		{"/sidebar-tabs/switch", `{"id":2}`, 200, `{"activeTab":{"id":2},"ok":true}`, `{"kind":"sidebar.switch","tabId":2}`},
		{"/sidebar-tabs/switch", `{"id":"x"}`, 400, `{"error":"Invalid tab id"}`, ""},
		{"/sidebar-session/new", "", 200, `{"ok":true,"session":{"id":"s"}}`, `{"kind":"sidebar.new"}`},
		{"/sidebar-agent/event", "anything", 200, `{"ok":true}`, ""},
	} {
		status, answer, _ := w.ask("POST", c.path, all, c.body, "Origin", extension)
		if signed, asked := w.log(); status != c.status || answer != c.answer || signed != c.op || asked != "" {
			t.Errorf("%s %.80s: %d %s, signed %s, asked %s", c.path, c.body, status, answer, signed, asked)
		}
	}
}

// What of the seed doesn't exist here.
func TestNoCommands(t *testing.T) {
	w := newWorld(t)
	for _, path := range []string{"/command", "/browse.json", "/sidebar-queue"} {
		if status, _, _ := w.ask("POST", path, w.grant("alice", protocol.CapChat), "{}"); status != 404 {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// What the sandbox refuses is said in the seed's form.
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	all := w.grant("alice", protocol.CapChat)
	w.executes(func(kind string) (op.SidebarResult, error) {
		if kind == op.KindSidebarSend {
			return op.SidebarResult{}, protocol.Errorf(protocol.KindTooMany, "Queue full (max 5)")
		}
		return op.SidebarResult{}, protocol.Errorf(protocol.KindInvalid, "Invalid tab id")
	})
	if status, answer, header := w.ask("POST", "/sidebar-command", all, `{"message":"x"}`); status != 429 || answer != `{"error":"Queue full (max 5)"}` || header.Get("Retry-After") == "" {
		t.Errorf("%d %s %v", status, answer, header)
	}
	if status, answer, _ := w.ask("POST", "/sidebar-tabs/switch", all, `{"id":9}`); status != 400 || answer != `{"error":"Invalid tab id"}` {
		t.Errorf("%d %s", status, answer)
	}
	w.executes(func(string) (op.SidebarResult, error) { return op.SidebarResult{Position: 2}, nil })
	if status, answer, _ := w.ask("POST", "/sidebar-command", all, `{"message":"x"}`); status != 200 || answer != `{"ok":true,"position":2,"queued":true}` {
		t.Errorf("%d %s", status, answer)
	}
}

// What is read goes to the sandbox, below the session's path.
func TestReads(t *testing.T) {
	w := newWorld(t)
	view := w.grant("alice", protocol.CapView)
	for path, want := range map[string]string{
		"/sidebar-chat?after=3&tabId=1": "/sessions/ses_1/sidebar/chat?after=3&tabId=1", "/sidebar-tabs?activeUrl=x": "/sessions/ses_1/sidebar/tabs?activeUrl=x",
		"/sidebar-session": "/sessions/ses_1/sidebar/session", "/sidebar-session/list": "/sessions/ses_1/sidebar/sessions",
		"/activity/history?limit=7": "/sessions/ses_1/activity/history?limit=7",
	} {
		status, _, _ := w.ask("GET", path, view, "", "Origin", extension)
		if signed, asked := w.log(); status != 200 || asked != strings.ReplaceAll(want, "ses_1", string(relaytest.Session)) || signed != "" {
			t.Errorf("%s: %d, asked %s", path, status, asked)
		}
	}
}

// Credentials: each in its own place, and nothing is asked of the sandbox before.
func TestWhoMay(t *testing.T) {
	w := newWorld(t)
	view, chat := w.grant("alice", protocol.CapView), w.grant("alice", protocol.CapChat)
	_, nameless := w.authority.Grant(func(g *jws.Grant) { g.Session, g.Caps = "", []protocol.Capability{protocol.CapView, protocol.CapChat} })
	status, answer, header := w.ask("POST", "/sse-session", view, "", "Origin", extension)
	var opened struct {
		ExpiresAt int64
		Cookie    string
	}
	if err := json.Unmarshal([]byte(answer), &opened); err != nil || status != 200 || opened.Cookie != "gstack_sse" || time.Until(time.UnixMilli(opened.ExpiresAt)) > 30*time.Minute {
		t.Fatalf("%d %s", status, answer)
	}
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	for _, attribute := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(header.Get("Set-Cookie"), attribute) {
			t.Errorf("%s", header.Get("Set-Cookie"))
		}
	}
	for name, c := range map[string]struct {
		method, path, bearer string
		header               []string
		want                 int
	}{
		"nothing":                      {"GET", "/sidebar-chat", "", nil, 401},
		"a cookie for a poll":          {"GET", "/sidebar-chat", "", []string{"Cookie", cookie}, 401},
		"a cookie for a message":       {"POST", "/sidebar-command", "", []string{"Cookie", cookie, "Origin", extension}, 401},
		"a cookie for a cookie":        {"POST", "/sse-session", "", []string{"Cookie", cookie, "Origin", extension}, 401},
		"the terminal's cookie":        {"GET", "/activity/stream", "", []string{"Cookie", strings.Replace(cookie, "gstack_sse", "gstack_pty", 1)}, 401},
		"a token in the URL":           {"GET", "/activity/stream?token=" + view, "", nil, 401},
		"a token beside a grant":       {"GET", "/activity/stream?token=x", view, nil, 401},
		"a bad grant beside a cookie":  {"GET", "/activity/stream", "x", []string{"Cookie", cookie}, 401},
		"a message without chat":       {"POST", "/sidebar-command", view, nil, 403},
		"an answer without approve":    {"POST", "/sidebar-agent/answer", w.grant("alice", protocol.CapChat, protocol.CapView), nil, 403},
		"a cookie for an answer":       {"POST", "/sidebar-agent/answer", "", []string{"Cookie", cookie, "Origin", extension}, 401},
		"another extension's answer":   {"POST", "/sidebar-agent/answer", w.grant("alice", protocol.CapApprove), []string{"Origin", stranger}, 403},
		"an event without chat":        {"POST", "/sidebar-agent/event", view, nil, 403},
		"a poll without view":          {"GET", "/sidebar-chat", chat, nil, 403},
		"a grant of no session":        {"GET", "/sidebar-chat", nameless, nil, 400},
		"another extension":            {"GET", "/sidebar-chat", view, []string{"Origin", stranger}, 403},
		"another extension's cookie":   {"GET", "/activity/stream", "", []string{"Origin", stranger, "Cookie", cookie}, 403},
		"a page's cookie":              {"GET", "/activity/stream", "", []string{"Origin", "https://evil.example", "Cookie", cookie}, 403},
		"a message by another method":  {"GET", "/sidebar-command", chat, nil, 405},
		"the cookie, for what it is":   {"GET", "/activity/stream", "", []string{"Origin", extension, "Cookie", cookie}, 200},
		"the cookie, for the other":    {"GET", "/sidebar-chat/stream", "", []string{"Cookie", cookie}, 200},
		"the grant, for streams":       {"GET", "/sidebar-chat/stream", view, nil, 200},
		"the grant, beside a bad one":  {"GET", "/sidebar-chat/stream", view, []string{"Cookie", "gstack_sse=x"}, 200},
		"the grant, from a known page": {"GET", "/sidebar-chat", view, []string{"Origin", w.origin}, 200},
	} {
		status, answer, _ := w.ask(c.method, c.path, c.bearer, `{"message":"x"}`, c.header...)
		signed, asked := w.log()
		if status != c.want || signed != "" || (asked != "") != (c.want == 200) {
			t.Errorf("%s: %d %s, want %d; signed %s, asked %s", name, status, answer, c.want, signed, asked)
		}
		if status == 401 && answer != `{"error":"Unauthorized"}` {
			t.Errorf("%s: %s", name, answer)
		}
	}
}

// A stream goes on behind the last event that the client has, and a person has so
// many of them.
func TestStreams(t *testing.T) {
	w := newWorld(t)
	view, bobs := w.grant("alice", protocol.CapView), w.grant("bob", protocol.CapView)
	for path, want := range map[string]string{"/sidebar-chat/stream?after=1&tabId=2": "after=8&tabId=2", "/activity/stream": "after=7"} {
		w.ask("GET", path, view, "", "Last-Event-ID", "7")
		if _, asked := w.log(); !strings.HasSuffix(asked, "?"+want) {
			t.Errorf("%s: %s", path, asked)
		}
	}
	opened := make(chan struct{}, 2*maxStreams)
	w.mu.Lock()
	w.serve = func(answer http.ResponseWriter, r *http.Request) {
		answer.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(answer, ": \n\n")
		http.NewResponseController(answer).Flush()
		opened <- struct{}{}
		<-r.Context().Done()
	}
	w.mu.Unlock()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var open sync.WaitGroup
	follow := func(token string) int {
		r, _ := http.NewRequestWithContext(ctx, "GET", w.origin+"/sidebar-chat/stream", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := w.client.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		open.Go(func() { // waited for below
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		})
		return resp.StatusCode
	}
	for i := range maxStreams {
		if status := follow(view); status != 200 {
			t.Fatalf("stream %d: %d", i, status)
		}
		<-opened
	}
	if status := follow(view); status != 429 {
		t.Errorf("one too many: %d", status)
	}
	if status := follow(bobs); status != 200 {
		t.Errorf("another person's: %d", status)
	}
	leave()
	open.Wait()
}

// A panel that polls 100 times a second is told when to come back, and counted;
// others aren't held up, and it can still stop its agent.
func TestTooManyPolls(t *testing.T) {
	w := newWorld(t)
	alice, bob := w.grant("alice", protocol.CapView, protocol.CapChat), w.grant("bob", protocol.CapView)
	refused := 0
	for range 3 * burst {
		status, answer, header := w.ask("GET", "/sidebar-chat", alice, "")
		switch {
		case status == 429 && header.Get("Retry-After") == retryAfter && strings.Contains(answer, "too many requests"):
			refused++
		case status != 200:
			t.Fatalf("%d %s", status, answer)
		}
	}
	if got := testutil.ToFloat64(w.api.Metrics.Limited); refused == 0 || got != float64(refused) {
		t.Errorf("%d were refused, %g counted", refused, got)
	}
	_, asked := w.log()
	if n := strings.Count(asked, "sidebar/chat"); n != 3*burst-refused {
		t.Errorf("the sandbox was asked %d times", n)
	}
	if status, _, _ := w.ask("GET", "/sidebar-chat", bob, ""); status != 200 {
		t.Errorf("another person: %d", status)
	}
	if status, _, _ := w.ask("POST", "/sidebar-agent/stop", alice, ""); status != 200 {
		t.Errorf("a stop: %d", status)
	}
}

// A pace lets so many through, and forgets who doesn't come any more.
func TestPace(t *testing.T) {
	var p pace
	now := time.Unix(1e9, 0)
	count := func(who asker, n int) (through int) {
		for range n {
			if p.allow(who, now) {
				through++
			}
		}
		return through
	}
	alice, bob := asker{"usr_alice", polls}, asker{"usr_bob", polls}
	if n := count(alice, 100); n != burst {
		t.Errorf("%d at once", n)
	}
	if n := count(bob, 100); n != burst {
		t.Errorf("%d of another person", n)
	}
	now = now.Add(time.Second)
	if n := count(alice, 100); n != perSecond {
		t.Errorf("%d after a second", n)
	}
	for i := range 1000 {
		count(asker{protocol.UserID(fmt.Sprint(i)), polls}, 1)
	}
	now = now.Add(forgetAfter)
	count(alice, 1)
	if len(p.of) != 1 {
		t.Errorf("%d are remembered", len(p.of))
	}
}

// A sandbox that isn't connected has no tabs.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.api.Tunnels = &relaytest.Tunnels{}
	view := w.grant("alice", protocol.CapView)
	if status, answer, _ := w.ask("GET", "/sidebar-tabs", view, ""); status != 200 || !strings.HasPrefix(answer, `{"error":"`) || !strings.HasSuffix(answer, `"tabs":[]}`) {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer, _ := w.ask("GET", "/sidebar-tabs", "x", ""); status != 401 {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer, _ := w.ask("GET", "/sidebar-chat", view, ""); status != 503 || !strings.HasPrefix(answer, `{"error":"`) {
		t.Errorf("%d %s", status, answer)
	}
}

// opened notes under which grants what people have open goes on.
type opened []string

func (o *opened) Renew(g *jws.Grant, token string) { *o = append(*o, string(g.Subject)+" "+token) }

// Weakness 26: whoever uses a newer grant, if only to poll, has what the same person
// has open go on under it. One that isn't good, or doesn't allow what is asked, does
// nothing, and neither does a stream's cookie.
func TestAPanelsNewerGrantIsPassedOn(t *testing.T) {
	w := newWorld(t)
	var renewed opened
	w.api.Open = &renewed
	good := w.grant("alice", protocol.CapView, protocol.CapChat)
	for _, ask := range [][2]string{{"GET", "/sidebar-chat"}, {"GET", "/sidebar-tabs"}, {"POST", "/sidebar-agent/stop"}, {"GET", "/sidebar-chat/stream"}} {
		renewed = nil
		if status, answer, _ := w.ask(ask[0], ask[1], good, ""); status != 200 || len(renewed) != 1 || renewed[0] != "usr_alice "+good {
			t.Errorf("%s %s: %d %s, %v", ask[0], ask[1], status, answer, renewed)
		}
	}
	_, _, header := w.ask("POST", "/sse-session", good, "")
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	renewed = nil
	w.ask("GET", "/activity/stream", "", "", "Cookie", cookie)
	w.ask("GET", "/sidebar-chat", "x", "")
	w.ask("POST", "/sidebar-agent/stop", w.grant("alice", protocol.CapView), "")
	w.ask("GET", "/sidebar-chat?token=x", good, "")
	if len(renewed) > 0 {
		t.Errorf("%v", renewed)
	}
}
