package dispatch

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// signer returns a Signer whose control plane is handler.
func signer(t *testing.T, handler http.HandlerFunc) *Signer {
	server := httptest.NewServer(handler)
	client := server.Client()
	t.Cleanup(func() {
		client.CloseIdleConnections()
		server.Close()
	})
	return &Signer{URL: server.URL, Credential: "relay-secret", Client: client}
}

func TestSign(t *testing.T) {
	s := signer(t, func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			Grant  string                 `json:"grant"`
			Op     map[string]string      `json:"op"`
			Target protocol.CommandTarget `json:"target"`
			Key    string                 `json:"idempotency_key"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || r.Method != http.MethodPost || r.URL.Path != "/internal/sign" ||
			r.Header.Get("Authorization") != "Bearer relay-secret" || req.Grant != "grant" || req.Op["kind"] != "pty.close" ||
			req.Target.PTYID != "pty_1" || req.Key != "key" {
			t.Errorf("%s %s %+v %v", r.Method, r.URL, req, err)
		}
		io.WriteString(w, `{"envelope":{"commandId":"cmd_1","jws":"a.b.c"}}`)
	})
	env, err := s.Sign(t.Context(), SignRequest{
		Grant: "grant", Op: map[string]string{"kind": "pty.close"}, Target: protocol.CommandTarget{PTYID: "pty_1"}, IdempotencyKey: "key",
	})
	if err != nil || env.CommandID != "cmd_1" || env.JWS != "a.b.c" {
		t.Errorf("Sign = %+v, %v", env, err)
	}
}

func TestSignFails(t *testing.T) {
	refusal := `{"error":{"message":"the grant does not allow it","name":"AuthError"}}`
	for _, c := range []struct {
		name    string
		status  int
		realm   string
		body    string
		want    protocol.Kind
		message string
	}{
		{"the user's fault", 403, "", refusal, protocol.KindForbidden, "the grant does not allow it"},
		{"the user's grant", 401, `Bearer realm="grant"`, refusal, protocol.KindUnauthenticated, "the grant does not allow it"},
		{"another body under the key", 409, "", refusal, protocol.KindConflict, "the grant does not allow it"},
		{"too many", 429, "", refusal, protocol.KindTooMany, "the grant does not allow it"},
		{"the relay's credential", 401, `Bearer realm="relay credential"`, refusal, protocol.KindUnavailable, "try again later"},
		{"the control plane's fault", 500, "", refusal, protocol.KindUnavailable, "try again later"},
		{"a proxy's page", 502, "", "<html>", protocol.KindUnavailable, "try again later"},
		{"a page where nothing was asked", 404, "", "<html>", protocol.KindUnavailable, "try again later"},
		{"no error in it", 403, "", "{}", protocol.KindUnavailable, "try again later"},
		{"no envelope", 200, "", "{}", protocol.KindUnavailable, "try again later"},
		{"an endless answer", 200, "", `{"envelope":{"jws":"` + strings.Repeat("a", maxAnswer) + `"}}`, protocol.KindUnavailable, "try again later"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := signer(t, func(w http.ResponseWriter, r *http.Request) {
				if c.realm != "" {
					w.Header().Set("WWW-Authenticate", c.realm)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			_, err := s.Sign(t.Context(), SignRequest{})
			if err == nil || protocol.KindOf(err) != c.want || err.Error() != c.message {
				t.Errorf("Sign = %v, want %s: %s", err, c.want, c.message)
			}
		})
	}
}

func TestSignWithoutAControlPlane(t *testing.T) {
	s := &Signer{URL: "http://127.0.0.1:1", Client: &http.Client{}}
	_, err := s.Sign(t.Context(), SignRequest{})
	if err == nil || protocol.KindOf(err) != protocol.KindUnavailable || strings.Contains(err.Error(), "127.0.0.1") {
		t.Errorf("Sign = %v", err)
	}
}
