package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestOtherMethodsAreRefused: a path that is there says which methods it has,
// though something has all other paths.
func TestOtherMethodsAreRefused(t *testing.T) {
	mux := http.NewServeMux()
	m := NewMethods(mux)
	ok := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	m.HandleFunc("GET /a/{id}", ok)
	m.HandleFunc("POST /a/{id}", ok)
	m.HandleFunc("POST /b", ok)
	m.HandleFunc("POST /e/{id}", ok)
	m.HandleFunc("GET /e/events", ok)
	m.HandleFunc("HEAD /f/{id}", ok)
	m.Handle("/c", http.HandlerFunc(ok))
	m.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	m.RefuseOthers()
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/a/1", 204, ""}, {"HEAD", "/a/1", 204, ""}, {"POST", "/a/1", 204, ""},
		{"PUT", "/a/1", 405, "GET, HEAD, POST"}, {"GET", "/b", 405, "POST"}, {"DELETE", "/c", 204, ""},
		{"GET", "/e/events", 204, ""}, {"POST", "/e/events", 405, "GET, HEAD"}, {"DELETE", "/e/events", 405, "GET, HEAD"},
		{"POST", "/e/1", 204, ""}, {"GET", "/e/1", 405, "POST"}, {"HEAD", "/f/1", 204, ""}, {"GET", "/f/1", 405, "HEAD"},
		{"GET", "/d", 404, ""}, {"GET", "/a/1/2", 404, ""},
	} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(tt.method, tt.path, nil))
		if answer.Code != tt.status || answer.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s: %d, Allow %q", tt.method, tt.path, answer.Code, answer.Header().Get("Allow"))
		}
	}
}
