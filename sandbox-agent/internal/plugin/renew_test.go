package plugin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
)

// A life notes what it was renewed with.
type life struct{ grant *jws.Grant }

func (l *life) Renew(g *jws.Grant) error {
	l.grant = g
	return nil
}

// TestRenew: a socket goes on under a newer grant of its user, in its session, that
// allows plugins, and under no other.
func TestRenew(t *testing.T) {
	w := newWorld(t)
	mux := http.NewServeMux()
	w.Routes(mux)
	one := &life{}
	forget := w.lives.add(handle{alice, session, "abc"}, one)
	other := &life{}
	w.lives.add(handle{alice, session, "abc"}, other)() // of a relay that makes names up
	ask := func(path string, grant *jws.Grant) int {
		r := httptest.NewRequest(http.MethodPut, path, nil)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r.WithContext(route.WithGrant(r.Context(), grant)))
		return answer.Code
	}
	plugins := []protocol.Capability{protocol.CapPlugins}
	const path = "/sessions/ses_1/plugin-sockets/abc"
	for what, tt := range map[string]struct {
		path   string
		grant  *jws.Grant
		status int
	}{
		"another user":    {path, &jws.Grant{Subject: "usr_bob", Session: session, Caps: plugins}, http.StatusNotFound},
		"another session": {"/sessions/ses_2/plugin-sockets/abc", &jws.Grant{Subject: alice, Session: "ses_2", Caps: plugins}, http.StatusNotFound},
		"another socket":  {path + "d", &jws.Grant{Subject: alice, Session: session, Caps: plugins}, http.StatusNotFound},
		"without plugins": {path, &jws.Grant{Subject: alice, Session: session, Caps: []protocol.Capability{protocol.CapView}}, http.StatusForbidden},
	} {
		if got := ask(tt.path, tt.grant); got != tt.status || one.grant != nil {
			t.Errorf("%s: %d", what, got)
		}
	}
	newer := &jws.Grant{Subject: alice, Session: session, Caps: plugins}
	if got := ask(path, newer); got != http.StatusNoContent || one.grant != newer {
		t.Errorf("its own: %d", got)
	}
	forget()
	if got := ask(path, newer); got != http.StatusNotFound || other.grant != nil {
		t.Errorf("a closed one: %d", got)
	}
	w.lives.add(handle{alice, session, ""}, one)()
	w.lives.add(handle{alice, session, "none"}, nil)()
	if len(w.lives.of) != 0 {
		t.Errorf("%v are left", w.lives.of)
	}
}
