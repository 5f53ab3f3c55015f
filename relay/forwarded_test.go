package relay

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// What is forwarded reaches the control plane as it is, whatever it bears.
func TestForwardedRoutes(t *testing.T) {
	w := newRouteWorld(t)
	for _, r := range routeTable(t) {
		if !r.forwarded() {
			continue
		}
		answer := w.ask(r.route, "anything", "Cookie", "fairlead_pty=x; fairlead_control=y")
		method, path, _ := strings.Cut(r.route, " ")
		path = strings.ReplaceAll(path, "{id}", "cmd_known")
		if answer.Code != http.StatusTeapot || !slices.Contains(w.forwarded, method+" "+path) && !strings.Contains(path, "{") {
			t.Errorf("%s: %d, forwarded %q", r.route, answer.Code, w.forwarded[max(0, len(w.forwarded)-1):])
		}
	}
	for _, path := range []string{"POST /internal/sign", "POST /internal/callback", "PUT /internal/relays/rl_1", "POST /enrol", "POST /certificate"} {
		before := len(w.forwarded)
		if answer := w.ask(path, "anything"); answer.Code < 400 || len(w.forwarded) != before || len(w.signed) != 0 {
			t.Errorf("%s: %d, forwarded", path, answer.Code)
		}
	}
}

// An extension posts callbacks from an origin of its own, after a preflight. No
// other route is open to it.
func TestWhatAnExtensionMayReach(t *testing.T) {
	w := newRouteWorld(t)
	for _, r := range routeTable(t) {
		if !r.relays() && !r.forwarded() {
			continue
		}
		method, path, _ := strings.Cut(r.route, " ")
		answer := w.ask("OPTIONS "+path, "", "Origin", "chrome-extension://ekklpckfbbjnnmhdbajmjfnjmfblgpcb",
			"Access-Control-Request-Method", method, "Access-Control-Request-Headers", "authorization,content-type")
		want := http.StatusForbidden
		if r.route == "POST /control/callback" {
			want = http.StatusNoContent
		}
		if answer.Code != want || (answer.Header().Get("Access-Control-Allow-Origin") != "") != (want == http.StatusNoContent) {
			t.Errorf("%s: %d %v", r.route, answer.Code, answer.Header())
		}
	}
}
