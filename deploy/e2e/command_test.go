package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// signer returns the control plane's signing key, so that tests can sign what
// a control plane never would.
func signer(t *testing.T, s *Stack) *jws.Signer {
	t.Helper()
	key, err := s.Signer()
	must(t, err)
	return key
}

// command returns a command that creates the terminal id.
func command(s *Stack, id protocol.PTYID) jws.Command {
	return jws.Command{
		Audience: jws.AudienceAgent, CommandID: protocol.NewCommandID(), TraceID: protocol.NewTraceID(),
		IssuedAt: time.Now().UnixMilli(), TTLMs: 30_000,
		Target: protocol.CommandTarget{SandboxID: s.Ready.Sandboxes[0].ID, SessionID: s.Ready.SessionID, PTYID: id},
		Op:     json.RawMessage(`{"kind":"pty.create","command":"cat"}`),
	}
}

func envelope(c jws.Command, token string) protocol.CommandEnvelope {
	return protocol.CommandEnvelope{
		Type: protocol.EnvelopeType, CommandID: c.CommandID, TraceID: c.TraceID, IssuedAt: c.IssuedAt, TTLMs: c.TTLMs,
		Target: c.Target, JWS: token,
	}
}

// post sends an envelope and returns the status and the error's name, if any.
func post(ctx context.Context, t *testing.T, s *Stack, env protocol.CommandEnvelope) (int, protocol.ExecutionCallback) {
	t.Helper()
	status, callback, err := s.Post(ctx, http.DefaultClient, env)
	must(t, err)
	return status, callback
}

// exists reports whether the session has a terminal.
func exists(ctx context.Context, t *testing.T, s *Stack, id protocol.PTYID) bool {
	t.Helper()
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var list protocol.PTYList
	must(t, call(ctx, http.StatusOK, &list, http.MethodGet, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, nil))
	for _, p := range list.PTYs {
		if p.ID == id {
			return true
		}
	}
	return false
}

func TestCommandsThatMustNotRun(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	key := signer(t, s)
	stranger, err := jws.GenerateSigner()
	must(t, err)
	cases := []struct {
		name   string
		want   string
		mangle func(c *jws.Command)
		sign   func(c jws.Command) (string, error)
		outer  func(env *protocol.CommandEnvelope)
	}{
		{name: "another key", want: "AuthError", sign: stranger.SignCommand},
		{name: "broken signature", want: "AuthError", outer: func(env *protocol.CommandEnvelope) {
			i := strings.LastIndexByte(env.JWS, '.') + 10
			env.JWS = env.JWS[:i] + flip(env.JWS[i:i+1]) + env.JWS[i+1:]
		}},
		{name: "changed payload", want: "AuthError", outer: func(env *protocol.CommandEnvelope) {
			i := strings.IndexByte(env.JWS, '.') + 20
			env.JWS = env.JWS[:i] + flip(env.JWS[i:i+1]) + env.JWS[i+1:]
		}},
		{name: "another audience", want: "AuthError", mangle: func(c *jws.Command) { c.Audience = jws.AudienceExtension }},
		{name: "expired", want: "ExpiredError", mangle: func(c *jws.Command) {
			c.IssuedAt = time.Now().Add(-2 * time.Minute).UnixMilli()
		}},
		{name: "from the future", want: "AuthError", mangle: func(c *jws.Command) {
			c.IssuedAt = time.Now().Add(2 * time.Minute).UnixMilli()
		}},
		{name: "another target outside", want: "AuthError", outer: func(env *protocol.CommandEnvelope) { env.Target.PTYID = "pty_x" }},
		{name: "another id outside", want: "AuthError", outer: func(env *protocol.CommandEnvelope) { env.CommandID = protocol.NewCommandID() }},
		{name: "unknown operation", want: "UnsupportedError", mangle: func(c *jws.Command) { c.Op = json.RawMessage(`{"kind":"sandbox.burn"}`) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			id := protocol.NewPTYID()
			cmd := command(s, id)
			if c.mangle != nil {
				c.mangle(&cmd)
			}
			sign := key.SignCommand
			if c.sign != nil {
				sign = c.sign
			}
			token, err := sign(cmd)
			must(t, err)
			env := envelope(cmd, token)
			if c.outer != nil {
				c.outer(&env)
			}
			status, callback := post(ctx, t, s, env)
			if callback.Error == nil || callback.Error.Name != c.want {
				t.Errorf("status %d, callback %+v, want %s", status, callback, c.want)
			}
			if exists(ctx, t, s, id) {
				t.Error("the command was run")
			}
		})
	}
}

// flip returns another base64url digit.
func flip(digit string) string {
	if digit == "A" {
		return "B"
	}
	return "A"
}

func TestACommandRunsOnce(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	cmd := command(s, "")
	token, err := signer(t, s).SignCommand(cmd)
	must(t, err)
	results := make([]string, 100)
	var posting sync.WaitGroup
	for i := range results {
		posting.Go(func() {
			_, callback := post(ctx, t, s, envelope(cmd, token))
			results[i] = callback.Status + string(callback.Result)
		})
	}
	posting.Wait()
	for _, r := range results[1:] {
		if r != results[0] || !strings.HasPrefix(r, "ok") {
			t.Fatalf("answers differ: %s and %s", results[0], r)
		}
	}
}

func TestTerminalsOverREST(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice, bob := s.Ready.User("alice"), s.Ready.User("bob")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	bobs, err := bob.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	url := alice.Base + "/sessions/" + string(s.Ready.SessionID) + "/ptys"
	want := func(status int, method, url, bearer string, body any, header ...string) []byte {
		t.Helper()
		got, answer, err := Call(ctx, method, url, bearer, body, header...)
		must(t, err)
		if got != status {
			t.Errorf("%s %s: status %d, want %d: %s", method, url, got, status, answer)
		}
		return answer
	}

	proposed := protocol.NewPTYID()
	want(201, http.MethodPost, url, grant, map[string]any{"pty_id": proposed, "command": "cat"})
	want(409, http.MethodPost, url, grant, map[string]any{"pty_id": proposed, "command": "cat"})
	want(400, http.MethodPost, url, grant, map[string]any{"pty_id": "../../etc"})
	want(400, http.MethodPost, url, grant, map[string]any{"no_such_member": 1})
	want(403, http.MethodPost, url, bobs, map[string]any{})
	want(401, http.MethodPost, url, "", map[string]any{})
	want(401, http.MethodPost, url, alice.Token, map[string]any{})
	want(401, http.MethodGet, url, "", nil)
	want(403, http.MethodGet, alice.Base+"/sessions/ses_other/ptys", grant, nil)
	if !exists(ctx, t, s, proposed) {
		t.Error("the terminal is not listed")
	}

	// A retry is the same change; another body under the same key is not.
	key := []string{"Idempotency-Key", string(protocol.NewPTYID())}
	first := want(201, http.MethodPost, url, grant, map[string]any{"command": "cat"}, key...)
	again := want(201, http.MethodPost, url, grant, map[string]any{"command": "cat"}, key...)
	if string(first) != string(again) {
		t.Errorf("a retry made another terminal: %s, %s", first, again)
	}
	want(409, http.MethodPost, url, grant, map[string]any{"command": "dog"}, key...)

	want(403, http.MethodDelete, url+"/"+string(proposed), bobs, nil)
	want(204, http.MethodDelete, url+"/"+string(proposed), grant, nil)
	want(404, http.MethodDelete, url+"/"+string(protocol.NewPTYID()), grant, nil)
}

func TestCommandsOverThePublicOrigin(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice, carol := s.Ready.User("alice"), s.Ready.User("carol")
	body := map[string]any{"target": map[string]any{"sessionId": s.Ready.SessionID}, "op": map[string]any{"kind": "pty.create", "command": "cat"}}
	var answer struct {
		CommandID protocol.CommandID `json:"commandId"`
		Status    string             `json:"status"`
		Result    protocol.OpResult  `json:"result"`
	}
	must(t, call(ctx, 200, &answer, http.MethodPost, alice.Base+"/commands", alice.Token, body))
	if answer.Status != "ok" || answer.Result.PTYID == "" {
		t.Fatalf("answer %+v", answer)
	}
	status, _, err := Call(ctx, http.MethodPost, carol.Base+"/commands", carol.Token, body)
	must(t, err)
	if status != http.StatusForbidden {
		t.Errorf("carol's command: status %d", status)
	}
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var callback protocol.ExecutionCallback
	must(t, call(ctx, 200, &callback, http.MethodGet, alice.Base+"/control/commands/"+string(answer.CommandID), grant, nil))
	if callback.Status != "ok" || callback.CommandID != answer.CommandID {
		t.Errorf("status %+v", callback)
	}
	var keys struct {
		Keys []json.RawMessage `json:"keys"`
	}
	must(t, call(ctx, 200, &keys, http.MethodGet, alice.Base+"/.well-known/jwks.json", "", nil))
	if len(keys.Keys) == 0 || strings.Contains(string(keys.Keys[0]), `"d"`) {
		t.Errorf("key set %s", keys.Keys)
	}
}
