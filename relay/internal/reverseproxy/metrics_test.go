package reverseproxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestRequestsAreCounted: bytes both ways, and what became of requests.
func TestRequestsAreCounted(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/missing" {
			rw.WriteHeader(http.StatusNotFound)
		}
		io.WriteString(rw, strings.Repeat("y", 2*len(body)))
	}, func(o *Options) { o.What = Preview })
	for _, path := range []string{"/there", "/missing"} {
		resp := w.do(w.request(http.MethodPost, path, strings.NewReader("xxx")))
		if body, err := io.ReadAll(resp.Body); err != nil || len(body) != 6 {
			t.Errorf("%q, %v", body, err)
		}
		resp.Body.Close()
	}
	m := w.requests.metrics
	for _, tt := range []struct {
		labels []string
		want   float64
	}{{[]string{Preview, "up"}, 6}, {[]string{Preview, "down"}, 12}, {[]string{API, "up"}, 0}} {
		if got := testutil.ToFloat64(m.bytes.WithLabelValues(tt.labels...)); got != tt.want {
			t.Errorf("%v: %v bytes, want %v", tt.labels, got, tt.want)
		}
	}
	for outcome, want := range map[string]float64{answered2xx: 1, answered4xx: 1, answered5xx: 0, unreached: 0} {
		if got := testutil.ToFloat64(m.answers.WithLabelValues(Preview, outcome)); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
}
