package instrument

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

type fruit string

// TestShowFromTheStart: what has known labels is there as 0, and what runs is
// said.
func TestShowFromTheStart(t *testing.T) {
	registry := NewRegistry("fairlead_test_info", "r1")
	registry.MustRegister(
		Counters("fairlead_fruits_total", "Fruits.", "sort", fruit("apple"), fruit("pear")),
		Times(ShortTimes("fairlead_bite_seconds", "Bites."), "sort", fruit("apple")),
		prometheus.NewHistogram(LongTimes("fairlead_harvest_seconds", "Harvests.")),
		prometheus.NewHistogram(Lives("fairlead_tree_seconds", "Trees.")),
	)
	mux := http.NewServeMux()
	Routes(mux, registry)
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	status, body := get("/metrics")
	for _, line := range []string{
		`fairlead_fruits_total{sort="pear"} 0`, `fairlead_bite_seconds_count{sort="apple"} 0`, `fairlead_harvest_seconds_count 0`,
		`fairlead_tree_seconds_bucket{le="3600"} 0`, `fairlead_test_info{revision="r1"} 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("%d, lacks %s", status, line)
		}
	}
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if !strings.Contains(body, "\n"+name+" ") {
			t.Errorf("lacks %s", name)
		}
	}
	if status, body := get("/debug/pprof/"); status != http.StatusOK || !strings.Contains(body, "goroutine") {
		t.Errorf("profiles: %d", status)
	}
}

// TestNative: a Prometheus that asks for native histograms gets them.
func TestNative(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := prometheus.NewHistogram(ShortTimes("fairlead_test_seconds", "Tests."))
	registry.MustRegister(h)
	h.Observe(0.0123)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := families[0].GetMetric()[0].GetHistogram()
	if len(got.GetPositiveSpan()) == 0 || len(got.GetBucket()) == 0 {
		t.Errorf("%d native spans, %d classic buckets", len(got.GetPositiveSpan()), len(got.GetBucket()))
	}
}
