package reverseproxy

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestShortAnswers: the header of a short answer, whose length is known, waits for
// the rest. Nothing else does.
func TestShortAnswers(t *testing.T) {
	counting := newMetrics(prometheus.NewRegistry()).tally(API)
	for length, early := range map[string]bool{
		"3": false, strconv.Itoa(shortAnswer): false, strconv.Itoa(shortAnswer + 1): true, "": true,
	} {
		rec := httptest.NewRecorder()
		out := newPacedWriter(t.Context(), rec, httptest.NewRequest(http.MethodGet, "/", nil), &counting)
		if length != "" {
			out.Header().Set("Content-Length", length)
		}
		out.WriteHeader(http.StatusOK)
		io.WriteString(out, "abc")
		if err := http.NewResponseController(out).Flush(); err != nil || rec.Flushed != early {
			t.Errorf("length %q: sent early %v, %v", length, rec.Flushed, err)
		}
		out.finish()
		if !rec.Flushed {
			t.Errorf("length %q: never sent", length)
		}
	}
}
