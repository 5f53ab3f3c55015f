package controlplane

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
)

// TestAdminListener: operators find health, readiness and metrics there, and
// nothing of that is anywhere else.
func TestAdminListener(t *testing.T) {
	cfg := testConfig(t)
	cfg.AdminListen = "127.0.0.1:0"
	server, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }() // awaited below
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
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
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
	m := p.server.metrics
	for _, tt := range []struct{ route, class string }{{"GET /auth/me", "2xx"}, {"GET /auth/me", "4xx"}, {otherRoute, "4xx"}} {
		if n := testutil.ToFloat64(m.requests.WithLabelValues(tt.route, tt.class)); n != 1 {
			t.Errorf("%s %s: counted %v", tt.route, tt.class, n)
		}
	}
	p.grant(aliceToken, `{"session_id":"ses_1"}`)
	if n := testutil.ToFloat64(m.signed.WithLabelValues(signedGrant)); n != 1 {
		t.Errorf("%v grants", n)
	}
	if n := testutil.ToFloat64(m.underWay); n != 0 {
		t.Errorf("%v under way", n)
	}
}

// TestWhose: each route has somebody whose requests it takes.
func TestWhose(t *testing.T) {
	for route, want := range map[string]string{
		"POST /commands": ofCommands, "GET /commands": ofPeople, "POST /internal/sign": ofSigning, "GET /healthz": ofProbes,
		"PUT /internal/relays/{id}": ofRelays, "GET /.well-known/jwks.json": ofRelays, otherRoute: ofPeople,
	} {
		if got := whose(false, route); got != want {
			t.Errorf("%s is of %s, want %s", route, got, want)
		}
	}
	if whose(true, "POST /enrol") != ofAgents {
		t.Error("enrolling isn't of agents")
	}
	for _, status := range []int{100, 200, 204, 302, 404, 503, 999} {
		_ = classOf(status) // in range
	}
	if classOf(protocol.KindTooMany.Status()) != "4xx" {
		t.Error("classes are off by one")
	}
}
