package controlplane

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// contextUntil returns a context that ends with done.
func contextUntil(t *testing.T, done <-chan struct{}) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // ends with done
		<-done
		cancel()
	}()
	return ctx
}

// signed has a command signed for a sandbox and returns it.
func (p *plane) signed(key string) *jws.Command {
	p.t.Helper()
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	answer := p.want(signCall(grant, key, createPTY+`,"ttlMs":5000`), http.StatusOK, "")
	envelope, ok := answer["envelope"].(map[string]any)
	if !ok {
		p.t.Fatalf("answer %v", answer)
	}
	token, _ := envelope["jws"].(string)
	return verifyCommand(p.t, p.keys(), token)
}

func okCallback(id protocol.CommandID, pty string) []byte {
	return []byte(`{"type":"control.callback","commandId":"` + string(id) + `","at":1,"status":"ok","result":{"kind":"pty.create","ptyId":"` + pty + `"}}`)
}

// header signs a callback as the sandbox's executor does.
func (b *testSandbox) header(t *testing.T, body []byte) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(b.sign(t, protocol.CallbackTranscript(b.id, body)))
}

// outcome returns the stored outcome of a command as status and result.
func (p *plane) outcome(id protocol.CommandID) string {
	p.t.Helper()
	cmd, err := p.server.store.Commands.Command(p.t.Context(), id)
	if err != nil {
		p.t.Fatal(err)
	}
	return cmd.Outcome.Status + string(cmd.Outcome.Result)
}

func TestCallback(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	a := connect(t, srv)
	cmd := p.signed("k1")
	body := okCallback(cmd.CommandID, "pty_1")
	bearer := "Bearer " + cmd.Reply.CallbackToken
	other := newTestSandbox(t, "sb_1")
	for _, tt := range []struct {
		name, authorization, signature string
		body                           []byte
		status                         int
	}{
		{"no token", "", b.header(t, body), body, http.StatusUnauthorized},
		{"another command's token", "Bearer " + p.signed("k2").Reply.CallbackToken, b.header(t, body), body, http.StatusUnauthorized},
		{"a user's token", "Bearer " + aliceToken, b.header(t, body), body, http.StatusUnauthorized},
		{"unsigned", bearer, "", body, http.StatusUnauthorized},
		{"signed by another device", bearer, other.header(t, body), body, http.StatusUnauthorized},
		{"signature of other bytes", bearer, b.header(t, append(body, ' ')), body, http.StatusUnauthorized},
		{"signature not base64", bearer, "%", body, http.StatusUnauthorized},
		{"unknown command", bearer, b.header(t, body), okCallback("cmd_none", "pty_1"), http.StatusNotFound},
		{"no status", bearer, b.header(t, body), []byte(`{"type":"control.callback","commandId":"` + string(cmd.CommandID) + `"}`), http.StatusBadRequest},
		{"no callback", bearer, b.header(t, body), []byte(`[]`), http.StatusBadRequest},
	} {
		status, answer := a.post("/control/callback", tt.body, "Authorization", tt.authorization, protocol.SignatureHeader, tt.signature)
		if status != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.name, status, answer, tt.status)
		}
	}
	if got := p.outcome(cmd.CommandID); got != "signed" {
		t.Fatalf("a refused callback was stored: %s", got)
	}
	post := func(body []byte) {
		t.Helper()
		status, answer := a.post("/control/callback", body, "Authorization", bearer, protocol.SignatureHeader, b.header(t, body))
		if status != http.StatusNoContent {
			t.Errorf("%d %s", status, answer)
		}
	}
	post(body)
	want := `ok{"kind":"pty.create","ptyId":"pty_1"}`
	if got := p.outcome(cmd.CommandID); got != want {
		t.Errorf("outcome %s, want %s", got, want)
	}
	post(body)
	post(okCallback(cmd.CommandID, "pty_2"))
	stored, err := p.server.store.Commands.Command(t.Context(), cmd.CommandID)
	if err != nil || stored.Callbacks != 2 || stored.Late != 0 || p.outcome(cmd.CommandID) != want {
		t.Errorf("after repeats %+v, %v", stored, err)
	}
	if string(stored.Outcome.Callback) != string(body) || len(stored.Outcome.Signature) == 0 {
		t.Errorf("stored callback %s, signature %x", stored.Outcome.Callback, stored.Outcome.Signature)
	}
}

// TestCallbackLate: what comes after issuedAt + ttlMs is stored and changes
// nothing.
func TestCallbackLate(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	srv := p.agentListener()
	b := p.enrolled(srv, "sb_1")
	a := connect(t, srv)
	inTime, late := p.signed("k1"), p.signed("k2")
	for _, tt := range []struct {
		cmd   *jws.Command
		after time.Duration
		want  string
	}{
		{inTime, 5 * time.Second, `ok{"kind":"pty.create","ptyId":"pty_1"}`},
		{late, time.Millisecond, "signed"},
	} {
		p.clock.Advance(tt.after)
		body := okCallback(tt.cmd.CommandID, "pty_1")
		status, answer := a.post("/control/callback", body, "Authorization", "Bearer "+tt.cmd.Reply.CallbackToken,
			protocol.SignatureHeader, b.header(t, body))
		if got := p.outcome(tt.cmd.CommandID); status != http.StatusNoContent || got != tt.want {
			t.Errorf("%d %s, outcome %s, want %s", status, answer, got, tt.want)
		}
	}
	stored, err := p.server.store.Commands.Command(t.Context(), late.CommandID)
	if err != nil || stored.Late != 1 || string(stored.Outcome.Callback) != string(okCallback(late.CommandID, "pty_1")) {
		t.Errorf("late callback stored as %+v, %v", stored, err)
	}
}

// TestRelayedCallback: a relay passes callbacks on with its own credential
// beside the command's token.
func TestRelayedCallback(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	b := p.enrolled(p.agentListener(), "sb_1")
	cmd := p.signed("k1")
	body := okCallback(cmd.CommandID, "pty_1")
	for _, tt := range []struct {
		relay, token string
		status       int
	}{
		{"", cmd.Reply.CallbackToken, http.StatusUnauthorized},
		{cmd.Reply.CallbackToken, cmd.Reply.CallbackToken, http.StatusUnauthorized},
		{relayToken, "", http.StatusUnauthorized},
		{relayToken, relayToken, http.StatusUnauthorized},
		{relay2Token, cmd.Reply.CallbackToken, http.StatusNoContent}, // any relay may carry it
	} {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/internal/callback", strings.NewReader(string(body)))
		r.Header.Set("Authorization", "Bearer "+tt.relay)
		r.Header.Set(protocol.CallbackTokenHeader, tt.token)
		r.Header.Set(protocol.SignatureHeader, b.header(t, body))
		w := httptest.NewRecorder()
		p.handler.ServeHTTP(w, r)
		if w.Code != tt.status {
			t.Errorf("%q %q: %d %s, want %d", tt.relay, tt.token, w.Code, w.Body, tt.status)
		}
	}
	if got := p.outcome(cmd.CommandID); !strings.HasPrefix(got, "ok") {
		t.Errorf("outcome %s", got)
	}
}

// TestForgedAnswer: a relay can't say in the sandbox's name how a command went.
func TestForgedAnswer(t *testing.T) {
	p := newPlane(t)
	b := p.enrolled(p.agentListener(), "sb_1")
	other := newTestSandbox(t, "sb_1")
	for name, tt := range map[string]struct {
		signature func(body []byte) string
		want      string
	}{
		"signed":            {func(body []byte) string { return b.header(t, body) }, "ok"},
		"unsigned":          {func([]byte) string { return "" }, "unknown"},
		"by another device": {func(body []byte) string { return other.header(t, body) }, "unknown"},
		"of another answer": {func(body []byte) string { return b.header(t, []byte("{}")) }, "unknown"},
	} {
		relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
			body := okCallback(env.CommandID, "pty_1")
			w.Header().Set(protocol.SignatureHeader, tt.signature(body))
			w.Write(body)
		})
		p.register("rl_1", relayToken, relay.URL)
		_, answer, _ := p.do(call{"POST", "/commands", aliceToken, `{` + createPTY + `}`, nil})
		if answer["status"] != tt.want {
			t.Errorf("%s: %v, want status %s", name, answer, tt.want)
		}
		id, _ := answer["commandId"].(string)
		cmd, err := p.server.store.Commands.Command(t.Context(), protocol.CommandID(id))
		if err != nil || cmd.Outcome.Status != tt.want || (len(cmd.Outcome.Signature) > 0) != (tt.want == "ok") {
			t.Errorf("%s: stored %+v, %v", name, cmd.Outcome, err)
		}
	}
}
