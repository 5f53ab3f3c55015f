package admin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestPages(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_test_total", Help: "A test."})
	registry.MustRegister(counter)
	counter.Add(3)
	var ready error
	handler := Handler(Options{
		Revision: "r1", Registry: registry,
		Ready:     func() error { return ready },
		Status:    func() any { return map[string]int{"sandboxes": 2} },
		Sandboxes: func() any { return []string{"sb_1"} },
	})
	get := func(path string, status int, parts ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != status {
			t.Errorf("%s: status %d, want %d", path, w.Code, status)
		}
		for _, part := range parts {
			if !strings.Contains(w.Body.String(), part) {
				t.Errorf("%s: %s lacks %s", path, w.Body, part)
			}
		}
	}
	get("/healthz", 200, `"status":"ok"`, `"revision":"r1"`, `"sandboxes":2`)
	get("/readyz", 200, `"status":"ready"`)
	ready = errors.New("draining")
	get("/readyz", 503, `"status":"draining"`, `"revision":"r1"`)
	get("/healthz", 200, `"status":"ok"`) // alive all the same
	get("/sandboxes", 200, `"sandboxes":["sb_1"]`, `"revision":"r1"`)
	get("/metrics", 200, "fairlead_test_total 3")
	get("/debug/pprof/", 200, "goroutine")
	get("/debug/pprof/cmdline", 404) // it names other listeners
	get("/", 404)
	get("/metrics/x", 404)

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/healthz", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", w.Code)
	}
}
