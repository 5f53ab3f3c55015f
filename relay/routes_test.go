package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/controlapi"
	"github.com/fairlead/fairlead/relay/internal/pluginapi"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
)

// A row is one line of the table of routes in protocol/README.md.
type row struct {
	route, servedBy, credential, operation, capability string
}

// routeTable reads the table.
func routeTable(t *testing.T) []row {
	t.Helper()
	text, err := os.ReadFile("../protocol/README.md")
	must(t, err)
	_, rest, found := strings.Cut(string(text), "\n| route | served by | credential | operation | capability |\n")
	if !found {
		t.Fatal("protocol/README.md has no table of routes")
	}
	var rows []row
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if !strings.HasPrefix(cells[0], "---") {
			needs, _, _ := strings.Cut(cells[4], "; ") // what follows is about the body
			rows = append(rows, row{cells[0], cells[1], cells[2], cells[3], strings.Trim(needs, "`")})
		}
	}
	return rows
}

// needs are the capabilities, and signs the operations, of a row: one, or several.
func (r row) needs() []string { return strings.Split(r.capability, "`, `") }
func (r row) signs() []string { return strings.Split(r.operation, "`, `") }

// either returns a row for each operation of a route that amounts to one or
// another.
func (r row) either() (rows []row) {
	for _, operation := range strings.Split(r.operation, "` or `") {
		one := r
		one.operation = operation
		rows = append(rows, one)
	}
	return rows
}

func (r row) forwarded() bool { return r.servedBy == "control plane, forwarded" }
func (r row) relays() bool    { return r.servedBy == "relay" || strings.HasPrefix(r.servedBy, "relay, ") }

// A recorder is a mux that remembers what was registered.
type recorder struct {
	http.ServeMux
	patterns []string
}

func (m *recorder) Handle(pattern string, h http.Handler) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.Handle(pattern, h)
}

func (m *recorder) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.Handle(pattern, http.HandlerFunc(h))
}

// A routeWorld is a relay's public routes, with a sandbox and a control plane.
type routeWorld struct {
	t         *testing.T
	authority *relaytest.Authority
	relay     *Relay
	mux       *recorder
	handler   http.Handler

	mu        sync.Mutex
	signed    []string // kinds of the operations that the control plane signed
	forwarded []string // "METHOD /path" as they reached the control plane

	body string // of the next requests; empty: as bodies has it
}

func newRouteWorld(t *testing.T) *routeWorld { return newRouteWorldFor(t, panelExtension) }

// newRouteWorldFor lists these extensions.
func newRouteWorldFor(t *testing.T, extensions ...string) *routeWorld {
	t.Helper()
	w := &routeWorld{t: t, authority: relaytest.NewAuthority(t), mux: &recorder{}}
	plane := httptest.NewTLSServer(http.HandlerFunc(w.controlPlane)) // whom nobody knows but by a file
	cfg := complete()
	must(t, cfg.check())
	cfg.ExtensionIDs = extensions
	cfg.ControlPlaneCA = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(cfg.ControlPlaneCA, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: plane.Certificate().Raw}), 0o600))
	cfg.ControlPlaneURL, cfg.PublicOrigins, cfg.PreviewListen = plane.URL, []string{"https://one.example"}, "127.0.0.1:0"
	var dialler world
	dialler.t, dialler.authority = t, w.authority
	cfg.TunnelCert, cfg.TunnelKey, dialler.pool = certificate(t)
	var err error
	w.relay, err = New(cfg)
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var accepting sync.WaitGroup
	accepting.Go(func() { w.relay.acceptTunnels(ctx) })
	t.Cleanup(func() {
		stop()
		w.relay.closeListeners()
		accepting.Wait()
		w.relay.chats.Close(context.Background())
		w.relay.chat.Close(context.Background())
		w.relay.panel.Close(context.Background())
		w.relay.pages.Close()
		w.relay.dispatcher.Close()
		w.relay.client.CloseIdleConnections() // and the proxy's
		plane.Close()
	})
	must(t, w.relay.keys.Refresh(t.Context()))
	must(t, w.relay.routes(w.mux))
	w.handler = w.relay.origins.Guard(w.relay.origins.Share(pluginapi.Front(w.mux)))
	relaytest.Answer(t, dialler.dial(w.relay.Addresses().Tunnel), w.sandbox)
	_, err = w.relay.fleet.Wait(t.Context(), relaytest.Sandbox)
	must(t, err)
	return w
}

func (w *routeWorld) controlPlane(rw http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/internal/sign":
		req := w.authority.Asked(r)
		var op struct{ Kind string }
		if err := json.Unmarshal(req.Op, &op); err != nil {
			w.t.Error(err)
		}
		w.mu.Lock()
		w.signed = append(w.signed, op.Kind)
		w.mu.Unlock()
		relaytest.Signed(rw, w.authority.Envelope(req))
	case "/internal/tabs", "/internal/tabs/list":
		io.WriteString(rw, `{"tabs":[],"commands":[]}`)
	case keysPath:
		if r.Header.Get("X-Test") == "" { // the relay's own
			rw.Write(w.authority.JWKS)
			return
		}
		fallthrough
	case revocationsPath:
		if r.URL.Path == revocationsPath && r.Header.Get("X-Test") == "" {
			io.WriteString(rw, w.authority.Revocations(0))
			return
		}
		fallthrough
	default:
		w.mu.Lock()
		w.forwarded = append(w.forwarded, r.Method+" "+r.URL.Path)
		w.mu.Unlock()
		if r.Header.Get("Cookie") != "" {
			w.t.Errorf("%s %s: a cookie was forwarded", r.Method, r.URL.Path)
		}
		rw.WriteHeader(http.StatusTeapot)
	}
}

// sandbox answers whatever it is asked, except that it has no terminals.
func (w *routeWorld) sandbox(in *tunnel.Incoming) {
	if in.Open.Kind == protocol.StreamTerminal || in.Open.Kind == protocol.StreamRead {
		in.Refuse(protocol.Errorf(protocol.KindNotFound, "no such terminal"))
		return
	}
	opened := protocol.Opened{}
	if in.Open.Kind == protocol.StreamApproval {
		opened.Result = json.RawMessage(`{"epoch":"0000000000000001","offset":0,"pending":[]}`)
	}
	stream, err := in.Accept(opened)
	if err != nil {
		return
	}
	defer stream.Close()
	if in.Open.Kind == protocol.StreamApproval {
		stream.Read(make([]byte, 1)) // until the relay leaves
		return
	}
	if in.Open.Kind == protocol.StreamCommand {
		protocol.Write(stream, relaytest.OK("cmd_1", protocol.OpResult{PTYID: "pty_1", AgentState: protocol.AgentRunning, Approval: &protocol.Approval{}}))
		return
	}
	buf := make([]byte, 4096)
	stream.Read(buf)
	fmt.Fprint(stream, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
}

// grant returns a signed grant for everything after change.
func (w *routeWorld) grant(change func(*jws.Grant)) string {
	_, token := w.authority.Grant(func(g *jws.Grant) {
		g.Caps, g.Session = slices.Clone(protocol.Capabilities), "ses_1"
		if change != nil {
			change(g)
		}
	})
	return token
}

// bodies are what routes need to be given.
var bodies = map[string]string{
	"POST /pty-session":                      `{"session_id":"ses_1","pty_id":"pty_1"}`,
	"POST /control-session":                  `{"session_id":"ses_1"}`,
	"POST /app-session":                      `{"session_id":"ses_1"}`,
	"POST /chat-session":                     `{"session_id":"ses_1"}`,
	"POST /api/providers/sessions":           `{"provider":"claude","projectPath":"/workspace"}`,
	"POST /sessions/{sid}/ptys/{pid}/signal": `{"signal":"INT"}`,
	"POST /sessions/{sid}/ptys/{pid}/share":  `{"with":"session"}`,
	"POST /pty-session/reattach":             `{"sessionId":"pty_1"}`,
	"POST /pty-restart":                      `{"sessionId":"pty_1"}`,
	"POST /pty-dispose":                      `{"sessionId":"pty_1"}`,
	"POST /sessions/{sid}/env":               `{"set":{"A":"b"}}`,
	"POST /sessions/{sid}/ptys/{pid}/env":    `{"unset":["A"]}`,
	"POST /sessions/{sid}/egress/approve":    `{"domain":"a.example","decision":"allow_always"}`,
	"POST /sessions/{sid}/egress/revoke":     `{"domain":"a.example"}`,
	"POST /sessions/{sid}/previews":          `{"port":3000}`,
	"POST /control/commands":                 `{"type":"control.command","jws":"a.b.c"}`,
	"PUT /sessions/{sid}/tabs":               `{"browserId":"br_x","extensionId":"x","tabs":[]}`,
	"POST /control/browsers":                 `{"type":"control.command","jws":"a.b.c"}`,
	"POST /control/callback":                 `{"type":"control.callback","commandId":"cmd_x","status":"ok"}`,
	"POST /control/settled":                  `{"type":"control.callback","commandId":"cmd_x","status":"ok"}`,
	"POST /control/revocations":              "not.a.list",
	"POST /sidebar-command":                  `{"message":"go to hn","activeTabUrl":"https://a.example/"}`,
	"POST /sidebar-queue/dismiss":            `{"index":0}`,
	"POST /sidebar-agent/answer":             `{"requestId":"apr_1","allow":true}`,
	"POST /sidebar-tabs/switch":              `{"id":1}`,
}

// variants are the bodies of a route that amounts to one or another operation.
var variants = map[string]map[string]string{
	"POST /sessions/{sid}/approvals/{aid}": {
		op.KindEgressDecide: `{"kind":"egress","revision":1,"decision":"deny"}`,
		op.KindBrokerDecide: `{"kind":"broker","revision":1,"decision":"deny"}`,
		op.KindToolDecide:   `{"kind":"tool","revision":1,"decision":"deny"}`,
	},
}

// ask requests a route with a bearer token, empty for none. Streams are left once
// they are open.
func (w *routeWorld) ask(route, bearer string, header ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	path = strings.NewReplacer("{sid}", "ses_1", "{pid}", "pty_1", "{rid}", "rec_1", "{id}", "cmd_known", "{aid}", "apr_1", "{uid}", "upl_1", "{project}", "0", "{provider}", "claude", "{asset}", "0").Replace(path)
	if strings.HasSuffix(path, "/log") {
		path += "?from=0000000000000001:0"
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), slowly)
	defer cancel()
	answer := streamable{ResponseRecorder: httptest.NewRecorder()}
	if path == "/control/stream" || strings.HasSuffix(path, "/approvals/events") {
		answer.opened = cancel // what is asked is whether it opens
	}
	r := httptest.NewRequest(method, path, strings.NewReader(cmp.Or(w.body, bodies[route]))).WithContext(ctx)
	r.Host = "one.example"
	r.Header.Set("X-Test", "1")
	if bearer != "" {
		r.Header.Set("Authorization", "Bearer "+bearer)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if strings.HasPrefix(path, "/api/") && method != http.MethodGet && r.Header.Get("Origin") == "" {
		r.Header.Set("Origin", "https://one.example")
	}
	w.handler.ServeHTTP(answer, r)
	return answer.ResponseRecorder
}

// streamable is a recorder that takes deadlines and, where opened is set, says
// that something of the answer is sent.
type streamable struct {
	*httptest.ResponseRecorder
	opened func()
}

func (streamable) SetWriteDeadline(time.Time) error { return nil }

// FlushError is for [http.ResponseController].
func (s streamable) FlushError() error {
	s.Flush()
	if s.opened != nil {
		s.opened()
	}
	return nil
}

// webRoutes are those of the web client that only the sandbox knows one by one.
func webRoutes() (all []string) {
	for _, r := range protocol.WebRoutes {
		all = append(all, r.Method+" /api/"+r.Path)
	}
	return all
}

// Every registered route is in the table, and the other way round.
func TestEveryRouteIsInTheTable(t *testing.T) {
	w := newRouteWorld(t)
	var table, registered []string
	for _, r := range routeTable(t) {
		if r.relays() {
			table = append(table, r.route)
		}
	}
	var forwarding []string
	for _, pattern := range w.mux.patterns {
		switch {
		case slices.Contains(controlapi.Forwarded, pattern):
			forwarding = append(forwarding, pattern)
		case pattern == "/":
			registered = append(registered, "GET /")
		default:
			registered = append(registered, pattern)
		}
	}
	registered = append(registered, webRoutes()...)
	slices.Sort(table)
	slices.Sort(registered)
	if !slices.Equal(table, registered) {
		t.Errorf("in protocol/README.md:\n%s\nregistered:\n%s", strings.Join(table, "\n"), strings.Join(registered, "\n"))
	}
	if !slices.Equal(slices.Sorted(slices.Values(forwarding)), slices.Sorted(slices.Values(controlapi.Forwarded))) {
		t.Errorf("forwarding %q", forwarding)
	}
	used := map[string]bool{}
	for _, r := range routeTable(t) {
		if !r.forwarded() {
			continue
		}
		method, path, _ := strings.Cut(r.route, " ")
		_, pattern := w.mux.Handler(httptest.NewRequest(method, strings.ReplaceAll(strings.ReplaceAll(path, "{", ""), "}", ""), nil))
		if !slices.Contains(controlapi.Forwarded, pattern) {
			t.Errorf("%s is not forwarded but served by %q", r.route, pattern)
		}
		used[pattern] = true
	}
	for _, pattern := range controlapi.Forwarded {
		if !used[pattern] && pattern != "/dashboards/" {
			t.Errorf("%s is forwarded, and nothing in protocol/README.md is below it", pattern)
		}
	}
}

// only returns what a grant is changed by to carry exactly these capabilities,
// and all but one of them.
func only(all []string) (with func(*jws.Grant), without []func(*jws.Grant)) {
	for _, c := range all {
		without = append(without, func(g *jws.Grant) {
			g.Caps = slices.DeleteFunc(g.Caps, func(other protocol.Capability) bool { return string(other) == c })
		})
	}
	return func(g *jws.Grant) {
		g.Caps = nil
		for _, c := range all {
			g.Caps = append(g.Caps, protocol.Capability(c))
		}
	}, without
}

// ofPanel reports whether a route is the side panel's.
func ofPanel(route string) bool {
	_, path, _ := strings.Cut(route, " ")
	return strings.HasPrefix(path, "/sidebar-") || strings.HasPrefix(path, "/activity/") || path == "/sse-session"
}

// A trial is a credential and what a route makes of it.
type trial struct {
	name   string
	bearer string
	want   []int
}

// trials are all that a route with a grant must tell apart.
func (w *routeWorld) trials(r row) []trial {
	with, without := only(r.needs())
	past := func(g *jws.Grant) {
		g.IssuedAt, g.ExpiresAt = time.Now().Add(-20*time.Minute).Unix(), time.Now().Add(-11*time.Minute).Unix()
	}
	revoked := w.grant(func(g *jws.Grant) { g.ID = "gr_revoked" })
	_, foreign := relaytest.NewAuthority(w.t).Grant(nil)
	// Beyond the checks of the relay, a terminal may not be there.
	good := []int{200, 201, 204, 404}
	not := 403
	if r.route == "GET /control/commands/{id}" { // which commands there are is nobody else's business
		good, not = []int{200}, 404
	}
	list := []trial{
		{"no credential", "", []int{401}},
		{"a bearer that is none", "x", []int{401}},
		{"a forged grant", foreign, []int{401}},
		{"an expired grant", w.grant(past), []int{401}},
		{"a revoked grant", revoked, []int{401}},
		{"a grant for " + r.capability + " alone", w.grant(with), good},
		{"a grant for everything", w.grant(nil), good},
	}
	for i, change := range without {
		list = append(list, trial{"a grant for all but " + r.needs()[i], w.grant(change), []int{not}})
	}
	if r.route != "GET /control/stream" && !strings.Contains(r.route, " /api/") && !ofPanel(r.route) { // they are of the grant's own
		list = append(list, trial{"a grant of another session", w.grant(func(g *jws.Grant) { g.Session = "ses_2" }), []int{not}})
	}
	if strings.Contains(r.route, "{pid}") || r.route == "POST /pty-session" {
		list = append(list, trial{"a grant of another terminal", w.grant(func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }), []int{403}})
	}
	switch {
	case r.route == "GET /control/commands/{id}":
		list = append(list, trial{"a grant of another sandbox", w.grant(func(g *jws.Grant) { g.Sandbox = "sb_x" }), []int{404}})
	case r.route == "GET /sidebar-tabs": // then there are none
		list = append(list, trial{"a grant of another sandbox", w.grant(func(g *jws.Grant) { g.Sandbox = "sb_x" }), []int{200}})
	case strings.HasPrefix(r.servedBy, "relay, "): // goes there, not here
		list = append(list, trial{"a grant of another sandbox", w.grant(func(g *jws.Grant) { g.Sandbox = "sb_x" }), []int{503}})
	}
	return list
}

// Route × operation × capability: each route lets in what the table says, and
// nothing else.
func TestTheTableOfRoutes(t *testing.T) {
	w := newRouteWorld(t)
	w.relay.revoked.Add("gr_revoked")
	known := w.authority.Command(func(c *jws.Command) { c.CommandID = "cmd_known" })
	record, err := w.relay.dispatcher.Submit(t.Context(), known)
	must(t, err)
	_, _, err = record.Wait(t.Context())
	must(t, err)
	tried := map[string]int{}
	for _, r := range routeTable(t) {
		if !r.relays() {
			continue
		}
		tried[r.credential]++
		t.Run(r.route, func(t *testing.T) {
			switch r.credential {
			case "grant", "grant or cookie", "grant or panel stream cookie":
				for _, one := range r.either() {
					w.body = variants[r.route][one.operation]
					for _, try := range w.trials(one) {
						w.tryGrant(t, one, try)
					}
				}
				w.body = ""
			case "ticket or cookie":
				w.tryTickets(t, r)
			case "grant or app cookie":
				for _, try := range w.trials(r) {
					w.tryGrant(t, r, try)
				}
				w.tryApp(t, r)
			case "side panel's grant", "side panel's grant, cookie or nothing":
				w.tryPanel(t, r)
			case "ticket or app cookie":
				w.tryWebSocket(t, r)
			case "the signed command itself", "callback token", "the signed list itself":
				for _, bearer := range []string{"", "x", w.grant(nil)} {
					w.tryOwn(t, r, bearer)
				}
			case "the body's seal": // which the sandbox judges
				if answer := w.ask(r.route, ""); answer.Code != http.StatusServiceUnavailable {
					t.Errorf("%d without a tunnel", answer.Code)
				}
			case "none":
				if strings.HasSuffix(r.route, "/login") || strings.HasSuffix(r.route, "/register") {
					if answer := w.ask(r.route, ""); answer.Code != http.StatusNotImplemented {
						t.Errorf("%d", answer.Code)
					}
					return
				}
				if answer := w.ask(r.route, ""); answer.Code != http.StatusOK && answer.Code != http.StatusNoContent {
					t.Errorf("%d", answer.Code)
				}
			default:
				t.Errorf("a credential that this test doesn't know: %s", r.credential)
			}
		})
	}
	if len(tried) < 7 || tried["grant"] < 15 {
		t.Errorf("tried %v", tried)
	}
}

// tryGrant tries one grant, and whether a change is the operation of the table.
func (w *routeWorld) tryGrant(t *testing.T, r row, try trial) {
	t.Helper()
	w.mu.Lock()
	w.signed = nil
	w.mu.Unlock()
	answer := w.ask(r.route, try.bearer)
	if !slices.Contains(try.want, answer.Code) {
		t.Errorf("%s: %d, want %d: %s", try.name, answer.Code, try.want, answer.Body)
	}
	if ofPanel(r.route) {
		var body struct{ Error string } // seed 000
		if err := json.Unmarshal(answer.Body.Bytes(), &body); answer.Code >= 400 && (err != nil || body.Error == "") {
			t.Errorf("%s: %s", try.name, answer.Body)
		}
	} else if answer.Code >= 400 {
		var body struct{ Error protocol.ErrorBody }
		if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil || body.Error.Name == "" || body.Error.Message == "" {
			t.Errorf("%s: %s", try.name, answer.Body)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	denied := answer.Code == 401 || answer.Code == 403
	isCommand := r.servedBy == "relay, as a command" || r.servedBy == "relay, as commands"
	slices.Sort(w.signed)
	switch {
	case (denied || !isCommand) && len(w.signed) > 0:
		t.Errorf("%s: the control plane was asked to sign %v", try.name, w.signed)
	case isCommand && answer.Code < 400 && !slices.Equal(w.signed, r.signs()),
		isCommand && !denied && answer.Code >= 400 && !slices.Contains(r.signs(), first(w.signed)):
		t.Errorf("%s: signed %v, want %s", try.name, w.signed, r.operation)
	}
	for i, operation := range r.signs() {
		if isCommand && op.Needs(operation) != protocol.Capability(r.needs()[i]) {
			t.Errorf("%s needs %s, not %s", operation, op.Needs(operation), r.needs()[i])
		}
	}
}

func first(of []string) string {
	if len(of) == 0 {
		return ""
	}
	return of[0]
}

// tryTickets tries what opens a terminal's socket.
func (w *routeWorld) tryTickets(t *testing.T, r row) {
	t.Helper()
	socket := func(header ...string) int {
		header = append([]string{"Origin", "https://one.example", "Upgrade", "websocket", "Connection", "Upgrade"}, header...)
		return w.ask(r.route, "", header...).Code
	}
	issue := func(change func(*jws.Grant)) (string, string) {
		answer := w.ask("POST /pty-session", w.grant(change))
		var body struct{ Ticket string }
		if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil || body.Ticket == "" {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		return "ticket." + body.Ticket, access.CookieName + "=" + answer.Result().Cookies()[0].Value
	}
	const protocols = "Sec-WebSocket-Protocol"
	ticket, cookie := issue(nil)
	if code := socket(protocols, ticket); code != 404 { // the sandbox has no such terminal
		t.Errorf("a ticket: %d", code)
	}
	for name, code := range map[string]int{
		"nothing":             socket(),
		"a spent ticket":      socket(protocols, ticket),
		"its cookie":          socket("Cookie", cookie),
		"no ticket":           socket(protocols, "ticket.x"),
		"a grant":             w.ask(r.route, w.grant(nil), "Origin", "https://one.example", "Upgrade", "websocket").Code,
		"the stream's cookie": socket("Cookie", access.StreamCookieName+"=x"),
	} {
		if code != 401 {
			t.Errorf("%s: %d", name, code)
		}
	}
	ticket, cookie = issue(func(g *jws.Grant) { g.ID = "gr_later" })
	w.relay.revoked.Add("gr_later")
	for name, code := range map[string]int{"ticket": socket(protocols, ticket), "cookie": socket("Cookie", cookie)} {
		if code != 401 {
			t.Errorf("the %s of a revoked grant: %d", name, code)
		}
	}
}

// tryApp tries what the web client's cookie opens.
func (w *routeWorld) tryApp(t *testing.T, r row) {
	t.Helper()
	issue := func(change func(*jws.Grant)) string {
		answer := w.ask("POST /app-session", w.grant(change))
		if answer.Code != http.StatusOK {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		return access.AppCookieName + "=" + answer.Result().Cookies()[0].Value
	}
	good := issue(nil)
	void := protocol.NewGrantID()
	revoked := issue(func(g *jws.Grant) { g.ID = void })
	w.relay.revoked.Add(void)
	for name, try := range map[string]struct {
		cookie string
		header []string
		want   []int
	}{
		"the cookie":                 {good, nil, []int{200, 201}},
		"of a revoked grant":         {revoked, nil, []int{401}},
		"forged":                     {good[:len(good)-2] + "AA", nil, []int{401}},
		"without the capability":     {issue(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView} }), nil, map[bool][]int{true: {200}, false: {403}}[r.capability == "view"]},
		"from another site":          {good, []string{"Sec-Fetch-Site", "cross-site"}, []int{403}},
		"from another page":          {good, []string{"Origin", "https://evil.example"}, []int{403}},
		"beside a grant that is bad": {good, []string{"Authorization", "Bearer x"}, []int{401}},
	} {
		answer := w.ask(r.route, "", append([]string{"Cookie", try.cookie}, try.header...)...)
		if !slices.Contains(try.want, answer.Code) {
			t.Errorf("%s: %d, want %d: %s", name, answer.Code, try.want, answer.Body)
		}
	}
}

// tryWebSocket tries what opens a chat socket, as far as that goes without one.
func (w *routeWorld) tryWebSocket(t *testing.T, r row) {
	t.Helper()
	ask := func(bearer string, header ...string) int { return w.ask(r.route, bearer, header...).Code }
	page := []string{"Origin", "https://one.example", "Upgrade", "websocket", "Connection", "Upgrade"}
	for name, code := range map[string]int{
		"nothing":            ask("", page...),
		"a bad ticket":       ask("", append([]string{"Sec-WebSocket-Protocol", "ticket.x"}, page...)...),
		"a bad grant":        ask("x", page...),
		"a bad cookie":       ask("", append([]string{"Cookie", access.AppCookieName + "=x"}, page...)...),
		"a terminal's":       ask("", append([]string{"Cookie", access.CookieName + "=x"}, page...)...),
		"nothing, no origin": ask(""),
	} {
		if code != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, code)
		}
	}
	if code := ask(w.grant(nil), page...); code != http.StatusUnauthorized {
		t.Errorf("a grant for everything: %d", code)
	}
	if code := ask(w.grant(nil), page[2:]...); code != http.StatusForbidden {
		t.Errorf("a bearer without an origin: %d", code)
	}
	if r.capability == string(protocol.CapView) { // who lacks it gets no ticket
		return
	}
	var ticket struct{ Ticket string }
	blind := w.grant(func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView} })
	must(t, json.Unmarshal(w.ask("POST /chat-session", blind).Body.Bytes(), &ticket))
	if code := ask(ticket.Ticket, page...); code != http.StatusForbidden {
		t.Errorf("the ticket of a grant without %s: %d", r.capability, code)
	}
}

// tryPanel tries what a side panel's routes are let in with. They report errors as
// seed 000 does.
func (w *routeWorld) tryPanel(t *testing.T, r row) {
	t.Helper()
	for _, try := range w.trials(r) {
		want := try.want
		switch {
		case try.name == "a grant for "+r.capability+" alone":
			want = []int{403} // it takes view and control as well
		case try.name == "a grant for everything":
			want = []int{200, 410} // the terminal isn't there
		case try.name == "a grant of another session": // it is its own
			want = []int{200, 410}
		case try.name == "no credential" && strings.Contains(r.credential, "nothing"):
			want = []int{200}
		}
		w.mu.Lock()
		w.signed = nil
		w.mu.Unlock()
		answer := w.ask(r.route, try.bearer, "Origin", "chrome-extension://"+panelExtension)
		var body struct{ Error string }
		if !slices.Contains(want, answer.Code) || answer.Code >= 400 && (json.Unmarshal(answer.Body.Bytes(), &body) != nil || body.Error == "") {
			t.Errorf("%s: %d, want %d: %s", try.name, answer.Code, want, answer.Body)
		}
		w.mu.Lock()
		if signs := r.operation != "–" && answer.Code == 200; signs != (len(w.signed) == 1) || signs && w.signed[0] != r.operation {
			t.Errorf("%s: signed %v", try.name, w.signed)
		}
		w.mu.Unlock()
	}
	if answer := w.ask(r.route, w.grant(nil), "Origin", "chrome-extension://"+strings.Repeat("p", 32)); answer.Code != http.StatusForbidden {
		t.Errorf("another extension: %d", answer.Code)
	}
}

// Where no extension is listed, nothing of the side panel exists: not its routes, not
// its terminal at /pty-session and /ws, not its /health.
func TestNoPanelWithoutExtensions(t *testing.T) {
	w := newRouteWorldFor(t)
	for _, r := range routeTable(t) {
		if (strings.HasPrefix(r.credential, "side panel") || ofPanel(r.route)) && slices.Contains(w.mux.patterns, r.route) {
			t.Errorf("%s is there", r.route)
		}
	}
	from := []string{"Origin", "chrome-extension://" + panelExtension, "Upgrade", "websocket", "Connection", "Upgrade"}
	if answer := w.ask("GET /ws", "", from...); answer.Code != http.StatusForbidden || answer.Body.String() != "forbidden origin" {
		t.Errorf("/ws: %d %s", answer.Code, answer.Body)
	}
	if answer := w.ask("POST /pty-session", w.grant(nil), from[:2]...); answer.Code != http.StatusForbidden {
		t.Errorf("/pty-session of an extension: %d", answer.Code)
	}
	answer := w.ask("GET /health", "")
	if answer.Body.String() != `{"revision":"`+w.relay.cfg.Revision+`","status":"ok"}` {
		t.Errorf("/health: %s", answer.Body)
	}
}

// panelExtension is the extension that is listed.
const panelExtension = "abcdefghijklmnopabcdefghijklmnop"

// tryOwn tries a route whose credential is what it is sent: another one doesn't
// replace it.
func (w *routeWorld) tryOwn(t *testing.T, r row, bearer string) {
	t.Helper()
	answer := w.ask(r.route, bearer)
	switch {
	case r.credential == "callback token" && bearer != "": // of a command that the control plane has to know
		if answer.Code < 400 {
			t.Errorf("bearer %.5s: %d", bearer, answer.Code)
		}
	case answer.Code != http.StatusUnauthorized:
		t.Errorf("bearer %.5s: %d %s", bearer, answer.Code, answer.Body)
	}
}
