package controlplane

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
)

// TestAdminListener: operators find health, readiness and metrics there, and
// nothing of that is anywhere else.
func TestAdminListener(t *testing.T) {
	cfg := testConfig(t)
	cfg.AdminListen = "127.0.0.1:0"
	server, stop := running(t, cfg)
	client := &http.Client{Transport: &http.Transport{}}
	for path, part := range map[string]string{
		"/healthz": `"rev1"`, "/readyz": `"ok"`, "/debug/pprof/": "goroutine",
		"/metrics": "fairlead_controlplane_database_up 1\n",
	} {
		if status, body := get(t, client, server.AdminURL()+path); status != 200 || !strings.Contains(body, part) {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
		if path != "/healthz" {
			if status, _ := get(t, client, server.URL()+path); status != 404 {
				t.Errorf("people get %d from %s", status, path)
			}
		}
	}
	_, body := get(t, client, server.AdminURL()+"/metrics")
	for _, line := range []string{
		`fairlead_controlplane_info{revision="rev1"} 1`,
		`fairlead_controlplane_requests_total{class="4xx",route="other"} 3`,
		`fairlead_controlplane_requests_total{class="2xx",route="POST /commands"} 0`,
		`fairlead_controlplane_relays 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("metrics don't have %s", line)
		}
	}
	client.CloseIdleConnections()
	stop()
}

func TestNoAdminListener(t *testing.T) {
	p := newPlane(t)
	if p.server.AdminURL() != "" {
		t.Error("there is one that nobody asked for")
	}
}

// TestMetricsShowFromTheStart: also of a control plane that serves nothing.
func TestMetricsShowFromTheStart(t *testing.T) {
	if n, err := testutil.GatherAndCount(Metrics(), "fairlead_controlplane_requests_total"); err != nil || n < 4*40 {
		t.Errorf("%d series of requests, %v", n, err)
	}
}

// TestRequestsAreCounted: by route, and a command by its first outcome.
func TestRequestsAreCounted(t *testing.T) {
	p := newPlane(t)
	p.want(call{method: http.MethodGet, path: "/auth/me", token: aliceToken}, http.StatusOK, "")
	p.do(call{method: http.MethodGet, path: "/auth/me"})
	p.do(call{method: http.MethodGet, path: "/no/such/route"})
	p.grant(aliceToken, `{"session_id":"ses_1"}`)
	said := p.metrics()
	for _, line := range []string{
		`requests_total{class="2xx",route="GET /auth/me"} 1`,
		`requests_total{class="4xx",route="GET /auth/me"} 1`,
		`requests_total{class="4xx",route="other"} 1`,
		`request_seconds_count{of="people"} 4`,
		`signed_total{what="grant"} 1`,
		`requests_under_way 0`,
	} {
		if !strings.Contains(said, "fairlead_controlplane_"+line+"\n") {
			t.Errorf("metrics don't have %s", line)
		}
	}
}

// metrics returns what a scrape is told.
func (p *plane) metrics() string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(p.server.registry(), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestCallers: each route has somebody whose requests it takes.
func TestCallers(t *testing.T) {
	s := newPlane(t).server
	callers := make(map[string]web.Caller)
	for _, rt := range s.routes() {
		callers[rt.String()] = rt.Caller
	}
	for route, want := range map[string]web.Caller{
		"POST /commands": web.Commands, "GET /commands": "", "POST /internal/sign": web.Signing, "GET /healthz": web.Probes,
		"PUT /internal/relays/{id}": web.Relays, "POST /internal/callback": web.Relays, "GET /.well-known/jwks.json": web.Relays,
		"GET /.well-known/revocations": web.Relays,
	} {
		if got := callers[route]; got != want {
			t.Errorf("%s is of %q, want %q", route, got, want)
		}
	}
	for _, rt := range s.agentRoutes() {
		if rt.Caller != web.Agents {
			t.Errorf("%s is of %s, not of agents", rt, rt.Caller)
		}
	}
}
