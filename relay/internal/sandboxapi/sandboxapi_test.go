package sandboxapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// productTimes are those that decisions have outside of tests.
var productTimes = decideTimes

func TestMain(m *testing.M) {
	decideTimes = changeTimes
	goleak.VerifyTestMain(relaytest.Patient(m))
}

// A world is the API between a control plane that signs and a sandbox.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	tunnels   *relaytest.Tunnels
	mux       *http.ServeMux
	api       *API

	log     func(*tunnel.Incoming)                              // the sandbox's, for READ
	follow  func(*tunnel.Incoming)                              // the sandbox's, for approvals
	http    http.HandlerFunc                                    // the sandbox's, under the grant in X-Grant
	execute func(c *jws.Command) protocol.Result                // the sandbox's
	sign    func(w http.ResponseWriter, r dispatch.SignRequest) // the control plane's

	mu     sync.Mutex
	signed []dispatch.SignRequest
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, authority: relaytest.NewAuthority(t), tunnels: &relaytest.Tunnels{}, mux: http.NewServeMux()}
	w.sign, w.execute, w.http = w.signAll, createsPTY, http.NotFound
	controlPlane := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		var req dispatch.SignRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		w.signed = append(w.signed, req)
		sign := w.sign
		w.mu.Unlock()
		sign(answer, req)
	}))
	client := controlPlane.Client()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		controlPlane.Close()
	})
	agent, relay := tunneltest.Pair(t)
	w.tunnels.Connect(relay)
	relaytest.Answer(t, agent, w.answer)
	log := slog.New(slog.DiscardHandler)
	dispatcher := dispatch.New(dispatch.Options{Keys: w.authority.Keys, Tunnels: w.tunnels, Log: log})
	t.Cleanup(dispatcher.Close)
	w.api = &API{
		Keys: w.authority.Keys, Tunnels: w.tunnels, Dispatcher: dispatcher, Revision: "r1", Log: log,
		Requests: reverseproxy.New(w.authority.Grants, prometheus.NewRegistry()),
		Signer:   &dispatch.Signer{URL: controlPlane.URL, Client: client},
	}
	w.api.Register(w.mux)
	return w
}

// answer is the sandbox.
func (w *world) answer(in *tunnel.Incoming) {
	if in.Open.Kind == protocol.StreamHTTP && in.Open.Grant == "" {
		in.Refuse(protocol.Errorf(protocol.KindUnauthenticated, "no grant"))
		return
	}
	if in.Open.Kind == protocol.StreamRead {
		w.log(in)
		return
	}
	if in.Open.Kind == protocol.StreamApproval {
		w.follow(in)
		return
	}
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return
	}
	defer stream.Close()
	if in.Open.Kind == protocol.StreamCommand {
		command, err := w.authority.Keys.Command(context.Background(), in.Open.Command, jws.AudienceAgent)
		if err == nil {
			protocol.Write(stream, w.execute(command))
		}
		return
	}
	conn := &oneConn{Conn: stream, closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		r.Header.Set("X-Grant", in.Open.Grant)
		w.http(answer, r)
	})}
	server.Serve(conn)
}

// A oneConn is a connection, and a listener that accepts it once.
type oneConn struct {
	net.Conn
	accepted bool
	once     sync.Once
	closed   chan struct{}
}

func (c *oneConn) Addr() net.Addr { return c.LocalAddr() }

func (c *oneConn) Accept() (net.Conn, error) {
	if !c.accepted {
		c.accepted = true
		return c, nil
	}
	<-c.closed
	return nil, errors.New("accepted")
}

func (c *oneConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// signs changes what the control plane does with requests that may be under way.
func (w *world) signs(sign func(http.ResponseWriter, dispatch.SignRequest)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sign = sign
}

// signAll signs whatever is asked for.
func (w *world) signAll(answer http.ResponseWriter, r dispatch.SignRequest) {
	op, err := json.Marshal(r.Op)
	if err != nil {
		w.t.Error(err)
	}
	env := w.authority.Command(func(c *jws.Command) { c.Op, c.Target = op, r.Target })
	relaytest.Signed(answer, env)
}

func createsPTY(c *jws.Command) protocol.Result {
	return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind(), PTYID: "pty_new"})
}

// fails returns the RESULT of a command that went wrong.
func fails(kind protocol.Kind, callback string) func(*jws.Command) protocol.Result {
	return func(*jws.Command) protocol.Result { return protocol.Result{Kind: kind, Callback: []byte(callback)} }
}

func (w *world) do(method, target, token, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r)
	return answer
}

func expect(t *testing.T, answer *httptest.ResponseRecorder, status int, parts ...string) {
	t.Helper()
	if answer.Code != status {
		t.Errorf("status %d, want %d: %s", answer.Code, status, answer.Body)
	}
	for _, part := range parts {
		if !strings.Contains(answer.Body.String(), part) {
			t.Errorf("%s lacks %s", answer.Body, part)
		}
	}
}

func TestReadsGoToTheSandbox(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	w.http = func(answer http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" || r.Header.Get("X-Grant") != token {
			t.Errorf("headers %v", r.Header)
		}
		answer.Header().Set("Content-Type", "text/html")
		answer.Header().Set("Set-Cookie", "fairlead_pty=planted; Path=/")
		io.WriteString(answer, r.Method+" "+r.URL.Path)
	}
	answer := w.do(http.MethodGet, "/sessions/ses_1/ptys", token, "", "Cookie", "fairlead_pty=secret")
	expect(t, answer, http.StatusOK, "GET /sessions/ses_1/ptys")
	h := answer.Header()
	if h.Get("Set-Cookie") != "" || h.Get("Content-Security-Policy") != "sandbox" || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a sandbox acts for the relay's origin: %v", h)
	}
}

// Each request has a stream of its own, under its own grant.
func TestReadsDoNotMix(t *testing.T) {
	w := newWorld(t)
	w.http = func(answer http.ResponseWriter, r *http.Request) { io.WriteString(answer, r.Header.Get("X-Grant")) }
	var asking sync.WaitGroup
	for i := range 30 {
		asking.Go(func() {
			_, token := w.authority.Grant(func(g *jws.Grant) { g.Subject = protocol.UserID(fmt.Sprint("usr_", i)) })
			if answer := w.do(http.MethodGet, "/sessions/ses_1/ptys", token, ""); answer.Body.String() != token {
				t.Errorf("request %d went out under another grant", i)
			}
		})
	}
	asking.Wait()
}

func TestWhoMayNot(t *testing.T) {
	w := newWorld(t)
	only := func(caps ...protocol.Capability) func(*jws.Grant) { return func(g *jws.Grant) { g.Caps = caps } }
	for name, c := range map[string]struct {
		method, target string
		change         func(*jws.Grant)
		want           int
	}{
		"view without view":      {http.MethodGet, "/sessions/ses_1/ptys", only(protocol.CapShell), 403},
		"another session":        {http.MethodGet, "/sessions/ses_1/ptys", func(g *jws.Grant) { g.Session = "ses_2" }, 403},
		"not an id":              {http.MethodGet, "/sessions/ses%20/ptys", nil, 400},
		"create without shell":   {http.MethodPost, "/sessions/ses_1/ptys", only(protocol.CapView, protocol.CapControl), 403},
		"close without shell":    {http.MethodDelete, "/sessions/ses_1/ptys/pty_1", only(protocol.CapView), 403},
		"close another terminal": {http.MethodDelete, "/sessions/ses_1/ptys/pty_1", func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }, 403},
		"close what is no id":    {http.MethodDelete, "/sessions/ses_1/ptys/pty%2f..", nil, 400},
	} {
		t.Run(name, func(t *testing.T) {
			_, token := w.authority.Grant(c.change)
			expect(t, w.do(c.method, c.target, token, ""), c.want, `"error"`)
		})
	}
	expect(t, w.do(http.MethodGet, "/sessions/ses_1/ptys", "", ""), http.StatusUnauthorized)
	_, forged := relaytest.NewAuthority(t).Grant(nil)
	expect(t, w.do(http.MethodGet, "/sessions/ses_1/ptys", forged, ""), http.StatusUnauthorized)
	if len(w.signed) != 0 {
		t.Errorf("asked the control plane for %+v", w.signed)
	}
}

func TestSandboxAway(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	w.tunnels.Connect(nil)
	expect(t, w.do(http.MethodGet, "/sessions/ses_1/ptys", token, ""), http.StatusServiceUnavailable)
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), http.StatusServiceUnavailable)
}

func TestSandboxDoesNotSpeakHTTP(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	w.http = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	expect(t, w.do(http.MethodGet, "/sessions/ses_1/ptys", token, ""), http.StatusBadGateway, "upstream failed")
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	grant, token := w.authority.Grant(nil)
	answer := w.do(http.MethodPost, "/sessions/ses_1/ptys", token,
		`{"creator_id":"usr_mallory","pty_id":"pty_mine","command":"top","working_dir":"src","cols":100,"rows":30}`,
		"Idempotency-Key", "again")
	expect(t, answer, http.StatusCreated, `"id":"pty_new"`, `"revision":"r1"`)
	got := w.signed[0]
	op, _ := json.Marshal(got.Op)
	want := `{"cols":100,"command":"top","creatorId":"` + string(grant.Subject) + `","dir":"src","kind":"pty.create","rows":30}`
	if string(op) != want || got.Grant != token || got.IdempotencyKey != "again" ||
		got.Target != (protocol.CommandTarget{SandboxID: relaytest.Sandbox, SessionID: "ses_1", PTYID: "pty_mine"}) {
		t.Errorf("signed %s for %+v under %q, want %s", op, got.Target, got.IdempotencyKey, want)
	}

	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), http.StatusCreated) // no body: all defaults
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), http.StatusCreated)
	if a, b := w.signed[1].IdempotencyKey, w.signed[2].IdempotencyKey; a == "" || a == b {
		t.Errorf("keys made for two requests: %q, %q", a, b)
	}
}

func TestCreateRefuses(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"not JSON":       {"{", 400},
		"unknown member": {`{"shell":"zsh"}`, 400},
		"cols as text":   {`{"cols":"80"}`, 400},
		"id":             {`{"pty_id":"../x"}`, 400},
		"large":          {`{"command":"` + strings.Repeat("x", 64<<10) + `"}`, 413},
	} {
		t.Run(name, func(t *testing.T) { expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, c.body), c.want) })
	}
	long := strings.Repeat("k", protocol.MaxIDBytes+1)
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, "", "Idempotency-Key", long), http.StatusBadRequest, "Idempotency-Key")
	if len(w.signed) != 0 {
		t.Errorf("asked the control plane for %+v", w.signed)
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	answer := w.do(http.MethodDelete, "/sessions/ses_1/ptys/pty_1", token, "")
	expect(t, answer, http.StatusNoContent)
	if answer.Body.Len() != 0 || w.signed[0].Target.PTYID != "pty_1" {
		t.Errorf("%q, signed %+v", answer.Body, w.signed[0])
	}
}

func TestWhatTheSandboxSays(t *testing.T) {
	for name, c := range map[string]struct {
		execute func(*jws.Command) protocol.Result
		want    int
		words   string
	}{
		"conflict":   {fails(protocol.KindConflict, `{"status":"error","error":{"message":"pty_1 exists","name":"RequestError"}}`), 409, "pty_1 exists"},
		"not found":  {fails(protocol.KindNotFound, `{"status":"error","error":{"message":"no such terminal","name":"TargetError"}}`), 404, "no such terminal"},
		"unknown":    {fails(protocol.KindUnavailable, `{"status":"unknown"}`), 502, `"status":"unknown"`},
		"begun":      {fails(protocol.KindUnavailable, `{"status":"error","error":{"name":"InternalError","message":"m"},"telemetry":{"attempt":1}}`), 502, "m"},
		"not begun":  {fails(protocol.KindUnavailable, `{"status":"error","error":{"name":"InternalError","message":"m"},"telemetry":{"attempt":0}}`), 503, "m"},
		"bad result": {fails(0, `{"status":"ok","result":[]}`), 502, "upstream failed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.execute = c.execute
			_, token := w.authority.Grant(nil)
			expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), c.want, c.words)
		})
	}
}

func TestWhatTheControlPlaneSays(t *testing.T) {
	w := newWorld(t)
	_, token := w.authority.Grant(nil)
	w.sign = func(answer http.ResponseWriter, _ dispatch.SignRequest) {
		answer.WriteHeader(http.StatusForbidden)
		io.WriteString(answer, `{"error":{"message":"no longer a member","name":"AuthError"}}`)
	}
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), http.StatusForbidden, "no longer a member")
	w.sign = func(answer http.ResponseWriter, _ dispatch.SignRequest) {
		answer.WriteHeader(http.StatusInternalServerError)
	}
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), http.StatusServiceUnavailable)
	w.sign = func(answer http.ResponseWriter, _ dispatch.SignRequest) { // signed by a key that the relay doesn't know
		json.NewEncoder(answer).Encode(map[string]any{"envelope": relaytest.NewAuthority(t).Command(nil)})
	}
	expect(t, w.do(http.MethodPost, "/sessions/ses_1/ptys", token, ""), http.StatusBadGateway)
}
