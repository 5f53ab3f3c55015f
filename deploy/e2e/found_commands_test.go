package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

const anExtension = "ekklpckfabcdefghijklmnopabcdefgh"

// toExtension is the body of POST /commands for a page of the user.
func toExtension(s *Stack, do map[string]any) map[string]any {
	do["kind"] = op.KindCDPSend
	return map[string]any{
		"target": map[string]any{"sessionId": s.Ready.SessionID, "extensionId": anExtension, "tabId": 1},
		"op":     do,
	}
}

// playExtension answers the next command that page gets with result, at base.
func playExtension(ctx context.Context, t *testing.T, page *stream, base, result string) jws.Command {
	t.Helper()
	select {
	case env := <-page.events:
		cmd := payload[jws.Command](t, env.JWS)
		status, body, err := Call(ctx, http.MethodPost, base+"/control/callback", cmd.Reply.CallbackToken, protocol.ExecutionCallback{
			Type: protocol.CallbackType, CommandID: cmd.CommandID, TraceID: cmd.TraceID, At: time.Now().UnixMilli(),
			Status: protocol.StatusOK, Telemetry: &protocol.Telemetry{Attempt: 1}, Result: json.RawMessage(result),
		})
		must(t, err)
		if status != http.StatusNoContent {
			t.Fatalf("callback: %d %s", status, body)
		}
		return cmd
	case <-ctx.Done():
		t.Fatal("the page got no command")
		panic("unreachable")
	}
}

// TestFound01OutcomesOfCommands: what somebody's own browser answered is theirs
// alone, and what came of a command in the sandbox is for who may have it run.
// The control plane and the relay go by the same rule.
func TestFound01OutcomesOfCommands(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	ask := func(method, url, bearer string, body any) (int, string) {
		t.Helper()
		status, answer, err := Call(ctx, method, url, bearer, body)
		must(t, err)
		return status, string(answer)
	}
	run := func(target map[string]any, op map[string]any) (id protocol.CommandID, answer string) {
		t.Helper()
		target["sessionId"] = s.Ready.SessionID
		_, answer = ask(http.MethodPost, alice.Base+"/commands", alice.Token, map[string]any{"target": target, "op": op})
		var a struct{ CommandID protocol.CommandID }
		must(t, json.Unmarshal([]byte(answer), &a))
		return a.CommandID, answer
	}

	grant := mustGrant(ctx, t, s, "alice")
	page := listen(ctx, t, alice.Base, grant)
	const cookie = "the-cookie-of-alice"
	answered := make(chan struct{})
	go func() { // closed when POST /commands is answered
		defer close(answered)
		Call(ctx, http.MethodPost, alice.Base+"/commands", alice.Token, toExtension(s, map[string]any{"method": "Runtime.evaluate", "params": map[string]any{"expression": "document.cookie"}}))
	}()
	inBrowser := playExtension(ctx, t, page, alice.Base, `{"kind":"cdp.send","response":{"result":{"value":"`+cookie+`"}}}`).CommandID
	<-answered
	pty := protocol.NewPTYID()
	created, _ := run(map[string]any{"ptyId": pty}, map[string]any{"kind": "pty.create", "command": "cat"})
	failed, answer := run(map[string]any{"ptyId": protocol.NewPTYID()}, map[string]any{"kind": "pty.close"})
	var failure struct{ Error protocol.ErrorBody }
	must(t, json.Unmarshal([]byte(answer), &failure))
	if created == "" || failed == "" || failure.Error.Message == "" {
		t.Fatalf("created %q, failed %s", created, answer)
	}

	outcomes := map[protocol.CommandID]string{inBrowser: cookie, created: `"result":{`, failed: failure.Error.Message}
	for _, reader := range []struct {
		name string
		want bool
	}{{"alice", true}, {"bob", false}, {"carol", false}} {
		u := s.Ready.User(reader.name)
		_, list := ask(http.MethodGet, u.Base+"/commands?limit=1000&session_id="+string(s.Ready.SessionID), u.Token, nil)
		var all struct{ Commands []map[string]any }
		must(t, json.Unmarshal([]byte(list), &all))
		told := map[protocol.CommandID]map[string]any{}
		for _, c := range all.Commands {
			told[protocol.CommandID(c["id"].(string))] = c
		}
		theirs, err := u.Grant(ctx, s.Ready.SessionID)
		must(t, err)
		for id, part := range outcomes {
			status, one := ask(http.MethodGet, u.Base+"/commands/"+string(id), u.Token, nil)
			if status != http.StatusOK || !strings.Contains(one, `"status":`) || strings.Contains(one, part) != reader.want {
				t.Errorf("GET /commands/{id} by %s: %d, with the outcome? want %v: %s", reader.name, status, reader.want, one)
			}
			if c := told[id]; c == nil || (c["result"] != nil || c["error"] != nil) != reader.want {
				t.Errorf("GET /commands by %s, with the outcome? want %v: %v", reader.name, reader.want, c)
			}
			status, one = ask(http.MethodGet, u.Base+"/control/commands/"+string(id), theirs, nil)
			if strings.Contains(one, part) != reader.want || (status != http.StatusOK) != (id == inBrowser && !reader.want) {
				t.Errorf("at the relay by %s: %d, with the outcome? want %v: %s", reader.name, status, reader.want, one)
			}
		}
	}
	// A grant that its owner has narrowed reads no more than it allows.
	narrow, err := alice.Grant(ctx, s.Ready.SessionID, protocol.CapView)
	must(t, err)
	if status, one := ask(http.MethodGet, alice.Base+"/control/commands/"+string(created), narrow, nil); status != http.StatusOK || strings.Contains(one, string(pty)) {
		t.Errorf("by alice's grant to view: %d %s", status, one)
	}
}

// relayCredential returns the first relay's own, which opens /internal/sign.
func relayCredential(t *testing.T, s *Stack) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir, "relay-1", "credential"))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("the relay's credential: %v", found)
	}
	data, err := os.ReadFile(found[0])
	must(t, err)
	return strings.TrimSpace(string(data))
}

// TestFound09ForbiddenCDP: what the sandbox's browser isn't asked, no extension
// is asked either. The control plane signs none of it, whoever asks.
func TestFound09ForbiddenCDP(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant := mustGrant(ctx, t, s, "alice")
	page := listen(ctx, t, alice.Base, grant)
	credential := relayCredential(t, s)
	for _, c := range []struct {
		method string
		params map[string]any
		want   int
	}{
		{"Network.getAllCookies", nil, http.StatusForbidden},
		{"Network.getCookies", nil, http.StatusForbidden},
		{"Storage.getCookies", nil, http.StatusForbidden},
		{"Target.createTarget", map[string]any{"url": "https://example.com"}, http.StatusForbidden},
		{"Browser.close", nil, http.StatusForbidden},
		{"Fetch.enable", nil, http.StatusForbidden},
		{"DOM.setFileInputFiles", map[string]any{"files": []string{"/etc/passwd"}}, http.StatusForbidden},
		{"Page.setDownloadBehavior", map[string]any{"behavior": "allow"}, http.StatusForbidden},
		{"Runtime.evaluate", map[string]any{"expression": "1", "includeCommandLineAPI": true}, http.StatusForbidden},
		{"runtime.evaluate", map[string]any{"expression": "1"}, http.StatusForbidden},
		{"Page.navigate", map[string]any{"url": "file:///etc/passwd"}, http.StatusBadRequest},
		{"Page.navigate", map[string]any{"url": "javascript:alert(1)"}, http.StatusBadRequest},
	} {
		op := map[string]any{"method": c.method}
		if c.params != nil {
			op["params"] = c.params
		}
		body := toExtension(s, op)
		body["ttlMs"] = 1000
		status, answer, err := Call(ctx, http.MethodPost, alice.Base+"/commands", alice.Token, body)
		must(t, err)
		if status != c.want {
			t.Errorf("POST /commands with %s %v: %d, want %d: %s", c.method, c.params, status, c.want, answer)
		}
		body["grant"], body["idempotency_key"] = grant, string(protocol.NewCommandID())
		status, answer, err = Call(ctx, http.MethodPost, s.Ready.ControlPlane.URL+"/internal/sign", credential, body)
		must(t, err)
		if status != c.want || strings.Contains(string(answer), "eyJ") {
			t.Errorf("/internal/sign with %s %v: %d, want %d: %s", c.method, c.params, status, c.want, answer)
		}
	}
	select {
	case env := <-page.events:
		t.Errorf("the page got %s", payload[jws.Command](t, env.JWS).Op)
	default:
	}
}
