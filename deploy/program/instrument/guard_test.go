package instrument

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestGuardNames(t *testing.T) {
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	guarded := GuardNames(&net.TCPAddr{IP: net.IPv4(0, 0, 0, 0), Port: 9090}, served)
	for _, c := range []struct {
		host, origin string
		status       int
	}{
		{"127.0.0.1:9090", "", http.StatusNoContent},
		{"10.2.3.4:9090", "", http.StatusNoContent},  // a scrape in a cluster
		{"10.2.3.4:31000", "", http.StatusNoContent}, // a mapped port
		{"[::1]:9090", "", http.StatusNoContent},
		{"[fd00::7]", "", http.StatusNoContent},
		{"localhost:9090", "http://localhost:9090", http.StatusNoContent},
		{"evil.example", "", http.StatusForbidden},
		{"evil.example:9090", "http://evil.example:9090", http.StatusForbidden},
		{"127.0.0.1:9090", "http://evil.example", http.StatusForbidden},
		{"127.0.0.1:9090", "null", http.StatusForbidden},
		{"127.0.0.1.evil.example:9090", "", http.StatusForbidden},
		{"", "", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		guarded.ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("host %q, origin %q: %d, not %d", c.host, c.origin, w.Code, c.status)
		}
	}
}
