package controlplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const createPTY = `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","cols":80,"rows":24}`

func signCall(grant, key, rest string) call {
	return call{"POST", "/internal/sign", relayToken, `{"grant":"` + grant + `","idempotency_key":"` + key + `",` + rest + `}`, nil}
}

func TestSign(t *testing.T) {
	p := newPlane(t)
	keys := p.keys()
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	token := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	grant, err := keys.Grant(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	answer := p.want(signCall(token, "k1", createPTY+`,"ttlMs":5000`), http.StatusOK, "")
	envelope := answer["envelope"].(map[string]any)
	cmd := verifyCommand(t, keys, envelope["jws"].(string))
	if cmd.Reply == nil || cmd.Reply.URL != "http://127.0.0.1:8080/control/callback" || len(cmd.Reply.CallbackToken) < 20 {
		t.Errorf("reply %+v", cmd.Reply)
	}
	want := jws.Command{
		Issuer: jws.Issuer, Audience: jws.AudienceAgent, CommandID: cmd.CommandID, TraceID: cmd.TraceID,
		IssuedAt: p.clock.Now().UnixMilli(), TTLMs: 5000,
		Target:  protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1"},
		Op:      json.RawMessage(`{"kind":"pty.create","creatorId":"usr_alice","creatorName":"Alice","cols":80,"rows":24}`),
		Reply:   cmd.Reply,
		GrantID: grant.ID, UserID: "usr_alice",
	}
	if !reflect.DeepEqual(*cmd, want) {
		t.Errorf("signed %+v, want %+v", *cmd, want)
	}
	if envelope["type"] != "control.command" || envelope["commandId"] != string(cmd.CommandID) || envelope["ttlMs"] != 5000.0 {
		t.Errorf("envelope %v", envelope)
	}
}

// TestSignTwice: one command per user and key, ever, also in the next process.
func TestSignTwice(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	alice := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	first := p.want(signCall(alice, "k1", createPTY), http.StatusOK, "")

	p.clock.Advance(protocol.MaxGrantTTL - time.Second)
	p.start()
	alice = p.grant(aliceToken, `{"session_id":"ses_1"}`)
	for _, same := range []string{
		createPTY,
		`"op":{"rows":24,"cols":80,"kind":"pty.create","creatorId":"usr_alice"},"target":{"session_id":"ses_1"},"ttlMs":30000`,
	} {
		if again := p.want(signCall(alice, "k1", same), http.StatusOK, ""); !reflect.DeepEqual(again, first) {
			t.Errorf("again %v, want %v", again, first)
		}
	}
	for _, other := range []string{
		createPTY + `,"ttlMs":1`,
		`"target":{"sessionId":"ses_1","ptyId":"pty_1"},"op":{"kind":"pty.create","cols":80,"rows":24}`,
		`"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","cols":81,"rows":24}`,
	} {
		p.want(signCall(alice, "k1", other), http.StatusConflict, "RequestError")
	}
	if other := p.want(signCall(alice, "k2", createPTY), http.StatusOK, ""); reflect.DeepEqual(other, first) {
		t.Error("another key got the same command")
	}
}

// TestSignMessage: a message is one command for its key, with its sender's name,
// and another message under that key is a conflict; who lacks chat, or approve
// where questions are lifted or answered, gets none.
func TestSignMessage(t *testing.T) {
	p := newPlane(t)
	keys := p.keys()
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	alice := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	message := func(rest string) string {
		return `"target":{"sessionId":"ses_1"},"op":{"kind":"chat.send","conversation":"c-1"` + rest + `}`
	}
	hi := message(`,"message":{"content":"hi"},"clientMessageId":"m1"`)
	first := p.want(signCall(alice, "chat-m1", hi), http.StatusOK, "")
	cmd := verifyCommand(t, keys, first["envelope"].(map[string]any)["jws"].(string))
	if want := `{"kind":"chat.send","conversation":"c-1","message":{"content":"hi"},"senderName":"Alice","clientMessageId":"m1"}`; string(cmd.Op) != want {
		t.Errorf("signed %s, want %s", cmd.Op, want)
	}
	for range 2 {
		if again := p.want(signCall(alice, "chat-m1", hi), http.StatusOK, ""); !reflect.DeepEqual(again, first) {
			t.Errorf("again %v, want %v", again, first)
		}
	}
	for _, other := range []string{
		message(`,"message":{"content":"ho"},"clientMessageId":"m1"`),
		message(`,"message":{"content":"hi","images":[{"data":"data:,"}]},"clientMessageId":"m1"`),
		message(`,"messageSha256":"` + strings.Repeat("ab", 32) + `","clientMessageId":"m1"`),
		message(`,"message":{"content":"hi"},"clientMessageId":"m1","options":{"model":"x"}`),
	} {
		p.want(signCall(alice, "chat-m1", other), http.StatusConflict, "RequestError")
	}
	without := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view","approve"]}`)
	chatting := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view","chat"]}`)
	decide := `"target":{"sessionId":"ses_1"},"op":{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"deny","message":"no"}`
	for i, tt := range []struct {
		what, grant, rest string
		status            int
	}{
		{"without chat", without, hi, 403},
		{"with chat", chatting, hi, 200},
		{"lifting questions", chatting, message(`,"message":{"content":"hi"},"options":{"skipPermissions":true}`), 403},
		{"in another mode", chatting, message(`,"message":{"content":"hi"},"options":{"permissionMode":"bypassPermissions"}`), 403},
		{"with an allow-list", chatting, message(`,"message":{"content":"hi"},"options":{"allowedTools":["Bash"]}`), 403},
		{"by who may", alice, message(`,"message":{"content":"hi"},"options":{"allowedTools":["Bash"]}`), 200},
		{"under another's name", alice, message(`,"message":{"content":"hi"},"senderName":"Bob"`), 403},
		{"without a message", alice, message(``), 400},
		{"aborting", chatting, `"target":{"sessionId":"ses_1"},"op":{"kind":"chat.abort","conversation":"c-1"}`, 200},
		{"aborting without chat", without, `"target":{"sessionId":"ses_1"},"op":{"kind":"chat.abort","conversation":"c-1"}`, 403},
		{"creating", chatting, `"target":{"sessionId":"ses_1"},"op":{"kind":"chat.create","provider":"claude","projectPath":"/w"}`, 200},
		{"deciding", without, decide, 200},
		{"deciding without approve", chatting, decide, 403},
	} {
		if status, answer, _ := p.do(signCall(tt.grant, fmt.Sprint("k", i), tt.rest)); status != tt.status {
			t.Errorf("%s: %d %v, want %d", tt.what, status, answer, tt.status)
		}
	}
}

func TestSignParallel(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	answers := make([]any, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = p.want(signCall(grant, "k", createPTY), http.StatusOK, "")["envelope"]
		})
	}
	wg.Wait()
	for _, a := range answers {
		if !reflect.DeepEqual(a, answers[0]) {
			t.Fatalf("two commands under one key: %v and %v", answers[0], a)
		}
	}
}

func TestSignRefused(t *testing.T) {
	p := newPlane(t)
	alice := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	p.want(signCall(alice, "k", createPTY), http.StatusServiceUnavailable, "InternalError") // not registered
	p.register("rl_1", relayToken, "http://127.0.0.1:1")

	narrow := p.grant(aliceToken, `{"session_id":"ses_1","pty_id":"pty_1"}`)
	viewing := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view"]}`)
	shell := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view","shell"]}`)
	chatting := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view","shell","chat"]}`)
	bob := p.grant(bobToken, `{"session_id":"ses_1"}`)
	closePTY := func(pty string) string {
		return `"target":{"sessionId":"ses_1","ptyId":"` + pty + `"},"op":{"kind":"pty.close"}`
	}
	for _, tt := range []struct {
		what, grant, rest string
		status            int
		name              string
	}{
		{"no grant", "", createPTY, 401, "AuthError"},
		{"a user token", aliceToken, createPTY, 401, "AuthError"},
		{"broken signature", alice[:len(alice)-4] + "AAAA", createPTY, 401, "AuthError"},
		{"without the capability", bob, createPTY, 403, "AuthError"},
		{"capability not asked for", viewing, createPTY, 403, "AuthError"},
		{"a recorded terminal", shell, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","record":true}`, 403, "AuthError"},
		{"one that isn't", shell, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","record":false}`, 200, ""},
		{"with the capability", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","record":true}`, 200, ""},
		{"a conversation's terminal", shell, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","conversation":"c-1"}`, 403, "AuthError"},
		{"a conversation's terminal for who may not approve", chatting, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","conversation":"c-1"}`, 403, "AuthError"},
		{"a conversation's terminal with the capabilities", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","conversation":"c-1"}`, 200, ""},
		{"a conversation's terminal with a command", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","conversation":"c-1","command":"x"}`, 400, "RequestError"},
		{"recording no terminal", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"record.start"}`, 400, "RequestError"},
		{"another terminal", narrow, closePTY("pty_2"), 403, "AuthError"},
		{"its own terminal", narrow, closePTY("pty_1"), 200, ""},
		{"another session", alice, `"target":{"sessionId":"ses_2"},"op":{"kind":"pty.create"}`, 403, "AuthError"},
		{"another sandbox", alice, `"target":{"sessionId":"ses_1","sandboxId":"sb_2"},"op":{"kind":"pty.create"}`, 404, "TargetError"},
		{"a name of one's own", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","creatorName":"Bob"}`, 403, "AuthError"},
		{"another creator", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","creatorId":"usr_bob"}`, 403, "AuthError"},
		{"session.delete", alice, `"target":{"sessionId":"ses_1"},"op":{"kind":"session.delete"}`, 501, "UnsupportedError"},
		{"no op", alice, `"target":{"sessionId":"ses_1"}`, 400, "RequestError"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			p.t = t
			p.want(signCall(tt.grant, "k-"+strings.ReplaceAll(tt.what, " ", "-"), tt.rest), tt.status, tt.name)
		})
	}
	p.t = t
	p.want(signCall(alice, "", createPTY), http.StatusBadRequest, "RequestError")
	p.want(signCall(alice, "a b", createPTY), http.StatusBadRequest, "RequestError")

	_, _, header := p.do(signCall("x", "k", createPTY))
	if got := header.Get("WWW-Authenticate"); got != `Bearer realm="grant", error="invalid_token"` {
		t.Errorf("a bad grant and a bad credential look alike: %q", got)
	}
	p.clock.Advance(protocol.MaxGrantTTL + protocol.ClockSkew + time.Second)
	p.want(signCall(alice, "k", createPTY), http.StatusUnauthorized, "ExpiredError")
}

// TestSignAfterDemotion: a grant is worth no more than its user is now.
func TestSignAfterDemotion(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	seed := testSeed()
	seed.Dashboards[0].Members[0].Role = "viewer"
	if err := p.server.store.Load(t.Context(), &seed); err != nil {
		t.Fatal(err)
	}
	p.want(signCall(grant, "k", createPTY), http.StatusForbidden, "AuthError")
}
