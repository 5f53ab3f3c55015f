package controlplane

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
)

// TestRoutes walks every route of the first listener with the wrong methods,
// without a token and with the tokens of other routes.
func TestRoutes(t *testing.T) {
	p := newPlane(t)
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	methods := make(map[string][]string)
	routes := eachProvider(p.server.routes())
	for _, rt := range routes {
		methods[rt.Path] = append(methods[rt.Path], rt.Method)
	}
	for _, rt := range routes {
		path := strings.NewReplacer("/internal/relays/{id}", "/internal/relays/rl_1", "/dashboards/{id}", "/dashboards/dash_1",
			"{user}", "usr_bob", "{item}", "itm_1", "{pty}", "pty_1", "{provider}", "gmail", "{id}", "x_1").Replace(rt.Path)
		for _, token := range wrongTokens(rt.Path, grant) {
			p.want(call{rt.Method, path, token, "{}", nil}, http.StatusUnauthorized, "AuthError")
		}
		allowed := slices.Sorted(slices.Values(methods[rt.Path]))
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if slices.Contains(allowed, method) {
				continue
			}
			status, body, header := p.do(call{method, path, aliceToken, "", nil})
			if status != http.StatusMethodNotAllowed || header.Get("Allow") != strings.Join(allowed, ", ") || body["error"] == nil {
				t.Errorf("%s %s: %d, Allow %q, %v", method, path, status, header.Get("Allow"), body)
			}
		}
	}
	p.want(call{"GET", "/", "", "", nil}, http.StatusNotFound, "TargetError")
	p.want(call{"GET", "/auth/other", aliceToken, "", nil}, http.StatusNotFound, "TargetError")
}

// wrongTokens returns tokens that don't work on a route, if it takes any.
func wrongTokens(path, grant string) []string {
	switch {
	case strings.HasPrefix(path, "/internal/"):
		return []string{"", aliceToken, grant, "x"}
	case strings.HasPrefix(path, "/.well-known/"), strings.HasPrefix(path, "/integrations/") && strings.HasSuffix(path, "/callback"):
		return nil
	}
	switch path {
	case "/healthz", "/openapi.json", "/auth/config", "/auth/login", "/auth/callback":
		return nil
	}
	return []string{"", relayToken, grant, "x"}
}

// TestBodies sends every route that takes a body the same bad ones.
func TestBodies(t *testing.T) {
	p := newPlane(t)
	for _, rt := range []struct{ method, path, token string }{
		{"POST", "/grants", aliceToken},
		{"POST", "/dashboards", aliceToken},
		{"PATCH", "/dashboards/dash_1", aliceToken},
		{"PUT", "/dashboards/dash_1/members/usr_bob", aliceToken},
		{"POST", "/dashboards/dash_1/items", aliceToken},
		{"POST", "/commands", aliceToken},
		{"POST", "/internal/sign", relayToken},
		{"PUT", "/internal/relays/rl_1", relayToken},
	} {
		for _, body := range []string{
			"", "null", "[]", "not JSON", "{", "{}{}", `{"surprise":1}`, "{\"\xff\":1}",
			`{"target":{"sessionId":"a","sessionId":"b"}}`,
		} {
			p.want(call{rt.method, rt.path, rt.token, body, nil}, http.StatusBadRequest, "RequestError")
		}
		large := `{"x":"` + strings.Repeat("x", web.MaxBody) + `"}`
		p.want(call{rt.method, rt.path, rt.token, large, nil}, http.StatusRequestEntityTooLarge, "LimitError")
	}
}

// TestRevision looks for the build in every kind of answer, and for secrets
// in what needs no token.
func TestRevision(t *testing.T) {
	p := newPlane(t)
	for _, c := range []call{
		{"GET", "/healthz", "", "", nil},
		{"GET", "/auth/me", aliceToken, "", nil},
		{"POST", "/grants", aliceToken, `{"session_id":"ses_1"}`, nil},
		{"POST", "/grants", aliceToken, `{}`, nil},
		{"GET", "/nothing", "", "", nil},
	} {
		if _, body, header := p.do(c); body["revision"] != "rev1" || header.Get(web.RevisionHeader) != "rev1" {
			t.Errorf("%s %s: %v has no revision", c.method, c.path, body)
		}
	}
	_, body, header := p.do(call{"GET", "/.well-known/jwks.json", "", "", nil})
	if len(body) != 1 || header.Get(web.RevisionHeader) != "rev1" {
		t.Errorf("JWKS %v, want keys alone", body)
	}
	for _, key := range body["keys"].([]any) {
		if _, private := key.(map[string]any)["d"]; private {
			t.Error("the JWKS holds a private key")
		}
	}
	if _, body, _ := p.do(call{"GET", "/healthz", "", "", nil}); len(body) != 2 {
		t.Errorf("healthz says more than it should: %v", body)
	}
}

// TestNoSecretsInLog runs requests with every sort of secret at level debug.
func TestNoSecretsInLog(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	p.want(signCall(grant, "key", createPTY), http.StatusOK, "")
	p.want(call{"POST", "/commands", aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create"}}`, nil},
		http.StatusServiceUnavailable, "InternalError")
	p.want(call{"GET", "/auth/me", relayToken, "", nil}, http.StatusUnauthorized, "AuthError")
	log := p.log.String()
	for _, secret := range []string{aliceToken, relayToken, grant, "ct_"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds a secret:\n%s", log)
		}
	}
	if !strings.Contains(log, "command signed") {
		t.Errorf("the log doesn't tell of the commands:\n%s", log)
	}
}

// TestDatabaseAway: what can't be asked now may be asked later, and a probe says
// so too.
func TestDatabaseAway(t *testing.T) {
	p := newPlane(t)
	p.want(call{"GET", "/healthz", "", "", nil}, http.StatusOK, "")
	if err := p.server.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/auth/me", "/dashboards", "/dashboards/dash_1/items", "/.well-known/revocations"} {
		body := p.want(getAs(aliceToken, path), http.StatusServiceUnavailable, "InternalError")
		if text := fmt.Sprint(body); strings.Contains(text, "sql:") {
			t.Errorf("%s tells the cause: %s", path, text)
		}
	}
	p.want(commandCall(aliceToken, createBody), http.StatusServiceUnavailable, "InternalError")
	p.want(call{"GET", "/.well-known/jwks.json", "", "", nil}, http.StatusOK, "")
}
