package relay

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// A preview's url is below the origin of the preview listener, whose address
// the ready file names, and opens there and nowhere else.
func TestPreviewListener(t *testing.T) {
	w := newRouteWorld(t)
	answer := w.ask("POST /sessions/{sid}/previews", w.grant(nil))
	var body struct{ ID, URL string }
	if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	u, err := url.Parse(body.URL)
	must(t, err)
	listener, err := url.Parse(w.relay.Addresses().Preview)
	must(t, err)
	if want := body.ID + ".preview.localhost:" + listener.Port(); u.Host != want || u.Scheme != "http" {
		t.Errorf("%s, want %s", body.URL, want)
	}
	open := func(handler http.Handler, target string, cookies ...*http.Cookie) *http.Response {
		r := httptest.NewRequest("GET", target, nil)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		return answer.Result()
	}
	if resp := open(w.handler, body.URL); resp.StatusCode != http.StatusForbidden {
		t.Errorf("at the public origin: %d", resp.StatusCode)
	}
	previews := w.relay.previews.Handler()
	resp := open(previews, body.URL)
	if resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	resp = open(previews, "http://"+u.Host+"/", resp.Cookies()...)
	if policy := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != http.StatusOK || !strings.Contains(policy, "frame-ancestors 'self' https://one.example") {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
}
