package controlapi

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

// A world is the API with a sandbox and a control plane behind it.
type world struct {
	t         *testing.T
	authority *relaytest.Authority
	mux       *http.ServeMux
	api       *API
	registry  *prometheus.Registry
	logged    bytes.Buffer  // by Rejects
	answering chan struct{} // the sandbox answers once it is closed
	reached   atomic.Int32  // commands that the sandbox was sent
}

func newWorld(t *testing.T, controlPlane http.HandlerFunc) *world {
	t.Helper()
	return newWorldOf(t, relaytest.NewAuthority(t), controlPlane)
}

func newWorldOf(t *testing.T, authority *relaytest.Authority, controlPlane http.HandlerFunc) *world {
	t.Helper()
	server := httptest.NewServer(controlPlane)
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		server.Close()
	})
	return newWorldAt(t, authority, server.URL, http.DefaultClient)
}

// inMemory is a client of a control plane that isn't on any network.
func inMemory(controlPlane http.HandlerFunc) *http.Client {
	return &http.Client{Transport: handled(controlPlane)}
}

type handled http.HandlerFunc

// RoundTrip implements [http.RoundTripper].
func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	h(answer, r)
	return answer.Result(), nil
}

// newWorldAt is newWorldOf with a control plane that client reaches at address.
func newWorldAt(t *testing.T, authority *relaytest.Authority, address string, client *http.Client) *world {
	t.Helper()
	w := &world{t: t, authority: authority, mux: http.NewServeMux(), answering: make(chan struct{})}
	log := slog.New(slog.DiscardHandler)
	agent, relay := tunneltest.Pair(t)
	tunnels := &relaytest.Tunnels{}
	tunnels.Connect(relay)
	relaytest.Answer(t, agent, func(in *tunnel.Incoming) {
		stream, err := in.Accept(protocol.Opened{})
		if err != nil {
			return
		}
		defer stream.Close()
		select {
		case <-w.answering:
		case <-agent.Done():
		}
		w.reached.Add(1)
		result := relaytest.OK("cmd_1", protocol.OpResult{PTYID: "pty_new"})
		if _, err := authority.Keys.Command(context.Background(), in.Open.Command, jws.AudienceAgent); err != nil {
			result = protocol.Result{Kind: protocol.KindOf(err), Callback: []byte(`{"status":"error"}`)}
		}
		protocol.Write(stream, result)
	})
	base, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	origins, err := access.NewOrigins([]string{"https://relay.example", "https://other.example"})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	revoked := w.authority.Revoked
	pages := pagestream.New(lifetime.New(lifetime.Options{Revoked: revoked}), registry)
	w.api = &API{
		Keys: w.authority.Keys, Pages: pages, StreamCookies: access.NewStreamCookies(time.Now), Revoked: revoked, Origins: origins,
		Dispatcher: dispatch.New(dispatch.Options{Keys: w.authority.Keys, Tunnels: tunnels, Pages: pages, Revoked: revoked, Log: log}),
		Signer:     &dispatch.Signer{URL: address, Credential: "relay-secret", Client: client},
		Rejects:    rejects.New(registry, slog.New(slog.NewTextHandler(&w.logged, nil))), ControlPlane: base, Log: log,
		Address: func(r *http.Request) netip.Addr { return intake.Address(r, false) },
	}
	w.registry = registry
	began := time.Now()
	w.api.Rejects.Now = func() time.Time { return began } // so each reason is logged once
	t.Cleanup(w.api.Dispatcher.Close)
	w.api.Register(w.mux)
	return w
}

// do serves one request.
func (w *world) do(method, target, token, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r)
	return answer
}

func (w *world) post(target string, env protocol.CommandEnvelope) *httptest.ResponseRecorder {
	body, err := json.Marshal(env)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.do(http.MethodPost, target, "", string(body))
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

func TestSubmitAndStatus(t *testing.T) {
	w := newWorld(t, http.NotFound)
	_, token := w.authority.Grant(nil)
	env := w.authority.Command(nil)
	status := "/control/commands/" + string(env.CommandID)
	expect(t, w.do(http.MethodGet, status, token, ""), http.StatusNotFound, "no such command")
	expect(t, w.post("/control/commands", env), http.StatusAccepted, `"status":"pending"`, string(env.CommandID))
	expect(t, w.do(http.MethodGet, status, token, ""), http.StatusOK, `"status":"pending"`)

	close(w.answering)
	expect(t, w.post("/control/commands?wait=1", env), http.StatusOK, `"status":"ok"`, `"pty_new"`)
	expect(t, w.do(http.MethodGet, status, token, ""), http.StatusOK, `"status":"ok"`, `"pty_new"`)
}

func TestStatusIsForTheSession(t *testing.T) {
	w := newWorld(t, http.NotFound)
	close(w.answering)
	env := w.authority.Command(nil)
	expect(t, w.post("/control/commands?wait=1", env), http.StatusOK)
	for name, c := range map[string]struct {
		change func(*jws.Grant)
		want   int
	}{
		"dashboard":       {nil, http.StatusOK},
		"session":         {func(g *jws.Grant) { g.Session = relaytest.Session }, http.StatusOK},
		"another session": {func(g *jws.Grant) { g.Session = "ses_x" }, http.StatusNotFound},
		"another sandbox": {func(g *jws.Grant) { g.Sandbox = "sb_x" }, http.StatusNotFound},
		"may not view":    {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapControl} }, http.StatusNotFound},
		"expired": {func(g *jws.Grant) {
			g.IssuedAt, g.ExpiresAt = time.Now().Add(-20*time.Minute).Unix(), time.Now().Add(-11*time.Minute).Unix()
		}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			_, token := w.authority.Grant(c.change)
			expect(t, w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), token, ""), c.want)
		})
	}
	expect(t, w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), "", ""), http.StatusUnauthorized, "AuthError")
}

// TestFound01StatusOrCallback: who may see the session gets the status, who has
// the capability of the operation, in its terminal, the callback.
func TestFound01StatusOrCallback(t *testing.T) {
	w := newWorld(t, http.NotFound)
	close(w.answering)
	env := w.authority.Command(func(c *jws.Command) { c.Target.PTYID = "pty_1" }) // pty.create
	expect(t, w.post("/control/commands?wait=1", env), http.StatusOK, `"pty_new"`)
	for name, c := range map[string]struct {
		change func(*jws.Grant)
		whole  bool
	}{
		"all":  {nil, true},
		"view": {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView} }, false},
		"all but shell": {func(g *jws.Grant) {
			g.Caps = slices.DeleteFunc(g.Caps, func(c protocol.Capability) bool { return c == protocol.CapShell })
		}, false},
		"shell":            {func(g *jws.Grant) { g.Caps = []protocol.Capability{protocol.CapView, protocol.CapShell} }, true},
		"another terminal": {func(g *jws.Grant) { g.PTYs = []string{"pty_2"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, token := w.authority.Grant(c.change)
			answer := w.do(http.MethodGet, "/control/commands/"+string(env.CommandID), token, "")
			expect(t, answer, http.StatusOK, `"status":"ok"`)
			if whole := strings.Contains(answer.Body.String(), "pty_new"); whole != c.whole {
				t.Errorf("%s: want the result: %v", answer.Body, c.whole)
			}
		})
	}
}

func TestSubmitRefuses(t *testing.T) {
	w := newWorld(t, http.NotFound)
	for name, c := range map[string]struct {
		body string
		want int
	}{
		"not JSON":     {"{", http.StatusBadRequest},
		"not object":   {"[]", http.StatusBadRequest},
		"empty object": {"{}", http.StatusUnauthorized},
		"too large":    {`{"jws":"` + strings.Repeat("a", maxEnvelope) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, w.do(http.MethodPost, "/control/commands", "", c.body), c.want, `"error"`)
		})
	}
	forged := relaytest.NewAuthority(t).Command(nil)
	expect(t, w.post("/control/commands", forged), http.StatusUnauthorized, "AuthError")
	elsewhere := w.authority.Command(nil)
	elsewhere.Target.SandboxID = "sb_x"
	expect(t, w.post("/control/commands", elsewhere), http.StatusUnauthorized, "AuthError")
}

func TestForwarding(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Cookie") != "" {
			t.Error("the relay's cookie was forwarded")
		}
		w.Header().Set("X-From", "control plane")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization")+" "+string(body))
	})
	for _, c := range []struct{ method, target string }{
		{http.MethodPost, "/grants"}, {http.MethodPost, "/commands"}, {http.MethodGet, "/auth/me?x=1"}, {http.MethodGet, "/.well-known/jwks.json"},
	} {
		r := httptest.NewRequest(c.method, c.target, strings.NewReader("body"))
		r.Header.Set("Authorization", "Bearer user-token")
		r.Header.Set("Cookie", "fairlead_pty=secret")
		answer := httptest.NewRecorder()
		w.mux.ServeHTTP(answer, r)
		expect(t, answer, http.StatusTeapot, c.method+" "+c.target+" Bearer user-token body")
		if answer.Header().Get("X-From") == "" {
			t.Error("headers of the answer are lost")
		}
	}
	expect(t, w.do(http.MethodPost, "/internal/sign", "", "{}"), http.StatusNotFound)
}

// TestFound23ForwardedOrNot: 503 is for what the control plane never had. What it
// had, and didn't answer, may have been done, unless the request only asks.
func TestFound23ForwardedOrNot(t *testing.T) {
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler) // as if it were killed: the connection ends
	})
	gone := newWorld(t, http.NotFound)
	*gone.api.ControlPlane = url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	for _, c := range []struct {
		method, target string
		want           int
		unknown        bool
	}{
		{http.MethodPost, "/commands", http.StatusOK, true},
		{http.MethodPost, "/grants", http.StatusBadGateway, true},
		{http.MethodDelete, "/grants/gr_1", http.StatusBadGateway, true},
		{http.MethodPut, "/dashboards/dash_1/members/usr_bob", http.StatusBadGateway, true},
		{http.MethodGet, "/commands", http.StatusServiceUnavailable, false},
		{http.MethodGet, "/auth/me", http.StatusServiceUnavailable, false},
	} {
		answer := w.do(c.method, c.target, "token", "{}")
		if expect(t, answer, c.want, `"error"`); strings.Contains(answer.Body.String(), `"status":"unknown"`) != c.unknown {
			t.Errorf("%s %s: %s", c.method, c.target, answer.Body)
		}
		answer = gone.do(c.method, c.target, "token", "{}")
		if expect(t, answer, http.StatusServiceUnavailable, `"error"`); strings.Contains(answer.Body.String(), "unknown") {
			t.Errorf("%s %s, not sent: %s", c.method, c.target, answer.Body)
		}
	}
}

func TestForwardingToNobody(t *testing.T) {
	w := newWorld(t, http.NotFound)
	*w.api.ControlPlane = url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	answer := w.do(http.MethodPost, "/grants", "token", "{}")
	expect(t, answer, http.StatusServiceUnavailable, `"error"`)
	if strings.Contains(answer.Body.String(), "127.0.0.1") {
		t.Errorf("the address is shown: %s", answer.Body)
	}
}
