package route

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// TestGet: a route is served to those whose grant carries the capability for this
// session, and to nobody else.
func TestGet(t *testing.T) {
	mux := http.NewServeMux()
	for _, capability := range protocol.Capabilities {
		GetJSON(mux, string(capability), capability, func(session protocol.SessionID) any {
			return map[string]any{"of": session}
		})
	}
	for _, capability := range protocol.Capabilities {
		get := func(session string, grant *jws.Grant) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/sessions/"+session+"/"+string(capability), nil)
			if grant != nil {
				r = r.WithContext(WithGrant(r.Context(), grant))
			}
			mux.ServeHTTP(w, r)
			return w
		}
		only := []protocol.Capability{capability}
		w := get("ses_1", &jws.Grant{Session: "ses_1", Caps: only})
		if w.Code != http.StatusOK || w.Body.String() != `{"of":"ses_1"}`+"\n" || w.Header().Get("Cache-Control") != "no-store" ||
			w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %s %v", capability, w.Code, w.Body, w.Header())
		}
		var others []protocol.Capability
		for _, c := range protocol.Capabilities {
			if c != capability {
				others = append(others, c)
			}
		}
		for session, g := range map[string]*jws.Grant{
			"ses_1": {Session: "ses_1", Caps: others}, "ses_2": {Session: "ses_1", Caps: only}, "ses_3": nil, "%20": {Caps: only},
		} {
			if w := get(session, g); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), `"AuthError"`) {
				t.Errorf("%s of %s under %+v: %d %s", capability, session, g, w.Code, w.Body)
			}
		}
	}
}

// TestErrors: an error has its kind's status, and nothing that belonged to the
// answer that was begun.
func TestErrors(t *testing.T) {
	mux := http.NewServeMux()
	Get(mux, "it", protocol.CapView, func(w http.ResponseWriter, r *http.Request, _ protocol.SessionID) error {
		w.Header().Set("ETag", "x")
		return protocol.Errorf(protocol.KindTooMany, "too many")
	})
	r := httptest.NewRequest(http.MethodGet, "/sessions/ses_1/it", nil)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r.WithContext(WithGrant(r.Context(), &jws.Grant{Session: "ses_1", Caps: []protocol.Capability{protocol.CapView}})))
	if w.Code != protocol.KindTooMany.Status() || w.Header().Get("ETag") != "" || !strings.Contains(w.Body.String(), `"too many"`) {
		t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
	}
}
