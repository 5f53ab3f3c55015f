package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// payload returns what a token says, unverified.
func payload[T any](t *testing.T, token string) T {
	t.Helper()
	parts := strings.Split(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(parts[1])
	must(t, err)
	var v T
	must(t, json.Unmarshal(data, &v))
	return v
}

// controlplane runs a subcommand on the stack's state and returns what it
// prints and its exit code.
func controlplane(t *testing.T, s *Stack, args ...string) (string, int) {
	t.Helper()
	args = append(args, "--state-dir", filepath.Join(s.Dir, "controlplane"))
	out, err := exec.Command(filepath.Join(programs, "controlplane"), args...).CombinedOutput()
	exit, failed := errors.AsType[*exec.ExitError](err)
	if err != nil && !failed {
		t.Fatal(err)
	}
	if failed {
		return string(out), exit.ExitCode()
	}
	return string(out), 0
}

// TestRevokedGrantClosesSockets: within a second, and what was held under it is
// free. Of a few revocations the quickest counts: a busy machine may hold up any
// of them.
func TestRevokedGrantClosesSockets(t *testing.T) {
	var took []time.Duration
	for range 5 {
		took = append(took, revokeGrant(t))
		if took[len(took)-1] <= slowdown*time.Second {
			return
		}
	}
	t.Errorf("the sockets were closed after %v", took)
}

// revokeGrant revokes the grant of a terminal's controller, and returns how long
// it took until the socket was closed.
func revokeGrant(t *testing.T) (took time.Duration) {
	t.Helper()
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	id := newPTY(t, s, "")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, id)
	must(t, err)
	a, err := Dial(ctx, ticket, alice.Base)
	must(t, err)
	t.Cleanup(a.Close)
	_, err = a.ExpectMessage(ctx, protocol.ServerControlState, controller(alice.ID))
	must(t, err)
	b := attach(t, s, "bob", id)
	_, err = b.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)

	jti := payload[jws.Grant](t, grant).ID
	if status, answer, err := Call(ctx, http.MethodDelete, s.Ready.User("bob").Base+"/grants/"+string(jti), s.Ready.User("bob").Token, nil); err != nil || status < 400 {
		t.Errorf("bob revokes alice's grant: %d %s %v", status, answer, err)
	}
	began := time.Now()
	status, answer, err := Call(ctx, http.MethodDelete, alice.Base+"/grants/"+string(jti), alice.Token, nil)
	must(t, err)
	if status != http.StatusNoContent {
		t.Fatalf("revocation: %d %s", status, answer)
	}
	code, err := a.ExpectClose(ctx)
	must(t, err)
	if took = time.Since(began); code != websocket.StatusCode(4401) {
		t.Errorf("closed with %d after %v", code, took)
	}
	must(t, b.Await(ctx, "a free terminal", func(_ []byte, messages []Message, _ error) bool {
		return lastController(messages) == ""
	}))
	if status, _, err := Call(ctx, http.MethodGet, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, nil); err != nil || status != http.StatusUnauthorized {
		t.Errorf("REST with the revoked grant: %d, %v", status, err)
	}
	must(t, b.Say(ctx, Message{"type": "take_control"}))
	_, err = b.ExpectMessage(ctx, protocol.ServerControlTaken, controller(s.Ready.User("bob").ID))
	must(t, err)
	return took
}

// A stream is an open GET /control/stream.
type stream struct {
	events chan protocol.CommandEnvelope
	status int
}

func listen(ctx context.Context, t *testing.T, base, grant string) *stream {
	t.Helper()
	return listenIn(ctx, t, base, grant, "")
}

// listenIn is listen for a page in a browser; browser may be empty.
func listenIn(ctx context.Context, t *testing.T, base, grant, browser string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/control/stream?"+browser, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+grant)
	req.Header.Set("Origin", base)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	s := &stream{make(chan protocol.CommandEnvelope, 16), resp.StatusCode}
	go func() { // ends with the test
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
			var env protocol.CommandEnvelope
			if ok && json.Unmarshal(data, &env) == nil {
				s.events <- env
			}
		}
	}()
	return s
}

// TestCommandToAnExtension goes all of seed 003's way, with this test as page
// and extension: stream, execution, callback, and its repetition.
func TestCommandToAnExtension(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	page := listen(ctx, t, alice.Base, grant)
	bobs, err := s.Ready.User("bob").Grant(ctx, s.Ready.SessionID)
	must(t, err)
	other := listen(ctx, t, alice.Base, bobs)
	if page.status != http.StatusOK || other.status != http.StatusOK {
		t.Fatalf("streams: %d, %d", page.status, other.status)
	}

	answered := make(chan string, 1)
	go func() { // received below
		_, body, _ := Call(ctx, http.MethodPost, alice.Base+"/commands", alice.Token, map[string]any{
			"target": map[string]any{"sessionId": s.Ready.SessionID, "extensionId": "ekklpckfabcdefghijklmnopabcdefgh", "tabId": 123},
			"op":     map[string]any{"kind": "cdp.send", "method": "Runtime.evaluate", "params": map[string]any{"expression": "1+1"}},
		})
		answered <- string(body)
	}()
	var env protocol.CommandEnvelope
	select {
	case env = <-page.events:
	case answer := <-answered:
		t.Fatalf("answered before it was run: %s", answer)
	case <-ctx.Done():
		t.Fatal("the page got nothing")
	}
	cmd := payload[jws.Command](t, env.JWS)
	if cmd.Audience != jws.AudienceExtension || cmd.UserID != alice.ID || cmd.Reply == nil ||
		cmd.Reply.URL != alice.Base+"/control/callback" || cmd.Target.TabID != 123 {
		t.Fatalf("command %+v", cmd)
	}
	callback := func(value int) protocol.ExecutionCallback {
		return protocol.ExecutionCallback{
			Type: protocol.CallbackType, CommandID: cmd.CommandID, TraceID: cmd.TraceID, At: time.Now().UnixMilli(),
			Status: protocol.StatusOK, Telemetry: &protocol.Telemetry{DurationMs: 12, Attempt: 1},
			Result: json.RawMessage(`{"kind":"cdp.send","tabId":123,"method":"Runtime.evaluate","response":{"result":{"type":"number","value":` + string(rune('0'+value)) + `}}}`),
		}
	}
	report := func(token string, body protocol.ExecutionCallback) int {
		status, _, err := Call(ctx, http.MethodPost, cmd.Reply.URL, token, body)
		must(t, err)
		return status
	}
	if status := report("ct_wrong", callback(7)); status != http.StatusUnauthorized {
		t.Errorf("a wrong callback token: %d", status)
	}
	unknown := callback(7)
	unknown.CommandID = protocol.NewCommandID()
	if status := report(cmd.Reply.CallbackToken, unknown); status != http.StatusNotFound && status != http.StatusUnauthorized {
		t.Errorf("an unknown command: %d", status)
	}
	for _, value := range []int{2, 3} { // the second changes nothing
		if status := report(cmd.Reply.CallbackToken, callback(value)); status/100 != 2 {
			t.Errorf("callback %d: %d", value, status)
		}
	}
	select {
	case answer := <-answered:
		if !strings.Contains(answer, `"value":2`) {
			t.Errorf("POST /commands: %s", answer)
		}
	case <-ctx.Done():
		t.Fatal("POST /commands was not answered")
	}
	status, body, err := Call(ctx, http.MethodGet, alice.Base+"/commands/"+string(cmd.CommandID), alice.Token, nil)
	must(t, err)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`"value":2`)) || !bytes.Contains(body, []byte(`"ok"`)) {
		t.Errorf("what is stored: %d %s", status, body)
	}
	select {
	case env := <-other.events:
		t.Errorf("bob got alice's command %s", env.CommandID)
	default:
	}
}

// TestKeysTurnOver: a new key signs, the old one verifies until it is revoked,
// and then it is dead within half a minute, at relay and agent.
func TestKeysTurnOver(t *testing.T) {
	t.Parallel() // it mostly waits
	s := own(t)
	ctx := within(t)
	alice := s.Ready.User("alice")
	old := signer(t, s)
	before, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket, err := alice.Ticket(ctx, before, s.Ready.SessionID, s.Ready.PTYID)
	must(t, err)
	open, err := Dial(ctx, ticket, alice.Base)
	must(t, err)
	t.Cleanup(open.Close)
	if out, code := controlplane(t, s, "keys", "rotate", "--now"); code != 0 {
		t.Fatalf("rotate: %d %s", code, out)
	}
	url := alice.Base + "/sessions/" + string(s.Ready.SessionID) + "/ptys"
	list := func(grant string) int {
		status, _, err := Call(ctx, http.MethodGet, url, grant, nil)
		must(t, err)
		return status
	}
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		after, err := alice.Grant(ctx, s.Ready.SessionID)
		must(t, err)
		if kid(t, after) != old.Kid() {
			if status := list(after); status != http.StatusOK {
				t.Errorf("a grant by the new key: %d", status)
			}
			break
		}
		<-poll.C
	}
	if status := list(before); status != http.StatusOK {
		t.Errorf("a grant by the old key: %d", status)
	}
	if out, code := controlplane(t, s, "keys", "revoke", old.Kid()); code != 0 {
		t.Fatalf("revoke: %d %s", code, out)
	}
	revoked := time.Now()
	for list(before) == http.StatusOK {
		<-poll.C
	}
	cmd := command(s, protocol.NewPTYID())
	for { // a command by the old key, at the agent too
		cmd.CommandID, cmd.IssuedAt = protocol.NewCommandID(), time.Now().UnixMilli()
		token, err := old.SignCommand(cmd)
		must(t, err)
		if _, callback := post(ctx, t, s, envelope(cmd, token)); callback.Error != nil && callback.Error.Name == "AuthError" {
			break
		}
		cmd.Target.PTYID = protocol.NewPTYID()
		<-poll.C
	}
	if code, err := open.ExpectClose(ctx); err != nil || code != websocket.StatusCode(4401) {
		t.Errorf("the socket that the key had opened: %d, %v", code, err)
	}
	if took := time.Since(revoked); took > 30*time.Second {
		t.Errorf("the revoked key was good for %v", took)
	} else {
		t.Logf("the revoked key was dead after %v", took)
	}
	if out, code := controlplane(t, s, "keys", "list"); code != 0 || !strings.Contains(out, "revoked") {
		t.Errorf("list: %d %s", code, out)
	}
	// The sandbox, whose certificate the key had signed, comes back with another.
	for {
		if _, err := s.NewPTY(ctx, alice, "cat"); err == nil {
			break
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			t.Fatal("the sandbox doesn't come back")
		}
	}
	t.Logf("the sandbox was back after %v", time.Since(revoked))
}

func kid(t *testing.T, token string) string {
	t.Helper()
	head, _, _ := strings.Cut(token, ".")
	data, err := base64.RawURLEncoding.DecodeString(head)
	must(t, err)
	var h struct {
		Kid string `json:"kid"`
	}
	must(t, json.Unmarshal(data, &h))
	return h.Kid
}
