package controlplane

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/protocol"
)

func commandCall(token, body string) call { return call{"POST", "/commands", token, body, nil} }

const createBody = `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create"}}`

func TestCommand(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer string
		status int
		want   map[string]any
	}{
		{"ok", `"status":"ok","result":{"kind":"pty.create","ptyId":"pty_9"}`, 200,
			map[string]any{"status": "ok", "result": map[string]any{"kind": "pty.create", "ptyId": "pty_9"}}},
		{"error", `"status":"error","error":{"message":"no such directory","name":"RequestError"}`, 400,
			map[string]any{"status": "error", "error": map[string]any{"message": "no such directory", "name": "RequestError"}}},
		{"error without a reason", `"status":"error"`, 500,
			map[string]any{"status": "error", "error": map[string]any{"message": "the sandbox gave no reason", "name": "InternalError"}}},
		{"refused before it ran", `"status":"error","error":{"message":"busy","name":"InternalError"},"telemetry":{"durationMs":1,"attempt":0}`, 503,
			map[string]any{"status": "error", "error": map[string]any{"message": "busy", "name": "InternalError"}}},
		{"too many before it ran", `"status":"error","error":{"message":"full","name":"LimitError"},"telemetry":{"durationMs":1,"attempt":0}`, 429,
			map[string]any{"status": "error", "error": map[string]any{"message": "full", "name": "LimitError"}}},
		{"unknown", `"status":"unknown"`, 200, map[string]any{"status": "unknown"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t)
			relay := newFakeRelay(t, callback(tt.answer))
			p.register("rl_1", relayToken, relay.URL)
			status, body, _ := p.do(commandCall(aliceToken, createBody))
			envs := relay.got()
			if len(envs) != 1 {
				t.Fatalf("%d commands dispatched, status %d, %v", len(envs), status, body)
			}
			tt.want["commandId"], tt.want["revision"] = string(envs[0].CommandID), "rev1"
			if status != tt.status || !reflect.DeepEqual(body, tt.want) {
				t.Errorf("%d %v, want %d %v", status, body, tt.status, tt.want)
			}
			cmd := verifyCommand(t, p.keys(), envs[0].JWS)
			if cmd.UserID != "usr_alice" || cmd.GrantID != "" || cmd.TTLMs != 30000 || cmd.Kind() != "pty.create" {
				t.Errorf("signed %+v", cmd)
			}
		})
	}
}

// TestDispatch offers one command to several relays.
func TestDispatch(t *testing.T) {
	ok := callback(`"status":"ok"`)
	garbled := func(w http.ResponseWriter, _ protocol.CommandEnvelope) { w.Write([]byte("hello")) }
	broken := func(http.ResponseWriter, protocol.CommandEnvelope) { panic(http.ErrAbortHandler) }
	foreign := func(w http.ResponseWriter, _ protocol.CommandEnvelope) {
		callback(`"status":"ok"`)(w, protocol.CommandEnvelope{CommandID: "cmd_other"})
	}
	type answer = func(http.ResponseWriter, protocol.CommandEnvelope)
	for _, tt := range []struct {
		name    string
		relays  []answer // nil: nobody listens there
		status  int
		outcome string
		errName string
	}{
		{"first", []answer{ok, status(500)}, 200, "ok", ""},
		{"not there", []answer{status(404), ok}, 200, "ok", ""},
		{"restarting", []answer{status(503), ok}, 200, "ok", ""},
		{"lost the tunnel", []answer{status(502), ok}, 200, "ok", ""},
		{"relay is gone", []answer{nil, ok}, 200, "ok", ""},
		{"died in the middle", []answer{broken, ok}, 200, "ok", ""},
		{"nowhere", []answer{status(404), nil}, 503, "error", "InternalError"},
		{"lost", []answer{status(502), status(404)}, 200, "unknown", "InternalError"},
		{"broke off", []answer{broken}, 200, "unknown", "InternalError"},
		{"refused", []answer{status(429), ok}, 429, "error", "LimitError"},
		{"garbled", []answer{garbled, ok}, 503, "error", "InternalError"},
		{"of another command", []answer{foreign}, 503, "error", "InternalError"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t)
			credentials := []string{relayToken, relay2Token}
			for i, a := range slices.Backward(tt.relays) { // the latest is asked first
				relay := newFakeRelay(t, a)
				if a == nil {
					relay.Close()
				}
				p.register([]string{"rl_1", "rl_2"}[i], credentials[i], relay.URL)
				p.clock.Advance(time.Millisecond)
			}
			body := p.want(commandCall(aliceToken, createBody), tt.status, tt.errName)
			if body["status"] != tt.outcome {
				t.Errorf("%v, want %s", body, tt.outcome)
			}
		})
	}
}

// TestCommandKey repeats a command under one idempotency key.
func TestCommandKey(t *testing.T) {
	p := newPlane(t)
	down := true
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
		if down {
			status(503)(w, env)
			return
		}
		callback(`"status":"ok","result":{"kind":"pty.create"}`)(w, env)
	})
	p.register("rl_1", relayToken, relay.URL)
	c := commandCall(aliceToken, createBody)
	c.header = map[string]string{"Idempotency-Key": "k1"}
	p.want(c, http.StatusServiceUnavailable, "InternalError")
	down = false
	first := p.want(c, http.StatusOK, "")
	if again := p.want(c, http.StatusOK, ""); !reflect.DeepEqual(first, again) {
		t.Errorf("%v, then %v", first, again)
	}
	envs := relay.got()
	if len(envs) != 2 || envs[0].CommandID != envs[1].CommandID {
		t.Errorf("dispatched %v, want the same command twice: the third answer is the stored one", envs)
	}
	c.body = `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","cols":9}}`
	p.want(c, http.StatusConflict, "RequestError")
	c.header["Idempotency-Key"] = "not visible\x00"
	p.want(c, http.StatusBadRequest, "RequestError")
}

// TestRefusedBeforeItRan: a refusal is the fate of a key unless the executor
// hadn't begun and the reason passes.
func TestRefusedBeforeItRan(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		status       int
		errName      string
		again        bool
	}{
		{"a fault", `"error":{"message":"m","name":"InternalError"},"telemetry":{"durationMs":0,"attempt":0}`, 503, "InternalError", true},
		{"a limit", `"error":{"message":"m","name":"LimitError"},"telemetry":{"durationMs":0,"attempt":0}`, 429, "LimitError", true},
		{"no reason", `"telemetry":{"durationMs":0,"attempt":0}`, 503, "InternalError", true},
		{"for good", `"error":{"message":"m","name":"RequestError"},"telemetry":{"durationMs":0,"attempt":0}`, 400, "RequestError", false},
		{"it ran", `"error":{"message":"m","name":"InternalError"},"telemetry":{"durationMs":0,"attempt":1}`, 500, "InternalError", false},
		{"attempts aren't counted", `"error":{"message":"m","name":"InternalError"},"telemetry":{"durationMs":0}`, 500, "InternalError", false},
		{"no telemetry", `"error":{"message":"m","name":"InternalError"}`, 500, "InternalError", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlane(t)
			tries := 0
			relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
				if tries++; tries == 1 {
					callback(`"status":"error",`+tt.answer)(w, env)
					return
				}
				callback(`"status":"ok"`)(w, env)
			})
			p.register("rl_1", relayToken, relay.URL)
			c := commandCall(aliceToken, createBody)
			c.header = map[string]string{"Idempotency-Key": "k1"}
			p.want(c, tt.status, tt.errName)
			if tt.again {
				p.want(c, http.StatusOK, "")
			} else {
				p.want(c, tt.status, tt.errName)
			}
			if want := len(relay.got()); (want == 2) != tt.again {
				t.Errorf("dispatched %d times", want)
			}
		})
	}
}

func TestCommandRefused(t *testing.T) {
	p := newPlane(t)
	p.want(commandCall(aliceToken, createBody), http.StatusServiceUnavailable, "InternalError") // no relay
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	p.register("rl_1", relayToken, relay.URL)
	for _, tt := range []struct {
		token, body string
		status      int
		name        string
	}{
		{bobToken, createBody, 403, "AuthError"},
		{carolToken, createBody, 403, "AuthError"},
		{daveToken, createBody, 404, "TargetError"},
		{aliceToken, `{"target":{"sessionId":"ses_2"},"op":{"kind":"pty.create"}}`, 404, "TargetError"},
		{aliceToken, `{"target":{"sessionId":"ses_1","sandbox_id":"sb_2"},"op":{"kind":"pty.create"}}`, 404, "TargetError"},
		{aliceToken, `{"target":{"sandboxId":"sb_2"},"op":{"kind":"session.create"}}`, 404, "TargetError"},
		{bobToken, `{"target":{"sandboxId":"sb_1"},"op":{"kind":"session.create"}}`, 403, "AuthError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.dance"}}`, 501, "UnsupportedError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{},"op":{"kind":"pty.create"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"a","session_id":"b"},"op":{"kind":"pty.create"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.close"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1","ptyId":"a b"},"op":{"kind":"pty.close"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1","ptyId":"pty_1"},"op":{"kind":"pty.signal"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1","ptyId":"pty_1"},"op":{"kind":"session.delete"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sandboxId":"sb_1","sessionId":"ses_9"},"op":{"kind":"session.create"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","shell":"zsh"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","rows":-1}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create","rows":"80"}}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create"},"ttlMs":0}`, 400, "RequestError"},
		{aliceToken, `{"target":{"sessionId":"ses_1"},"op":{"kind":"pty.create"},"ttlMs":600001}`, 400, "RequestError"},
	} {
		p.want(commandCall(tt.token, tt.body), tt.status, tt.name)
	}
	if n := len(relay.got()); n != 0 {
		t.Errorf("%d refused commands were dispatched", n)
	}
}

// TestSessionLife makes a session, uses it and ends it.
func TestSessionLife(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	p.register("rl_1", relayToken, relay.URL)
	p.want(commandCall(aliceToken, `{"target":{"sandbox_id":"sb_1"},"op":{"kind":"session.create"}}`), http.StatusOK, "")
	id := relay.got()[0].Target.SessionID
	if !protocol.ValidID(id) {
		t.Fatalf("session id %q", id)
	}
	me := p.want(call{"GET", "/auth/me", carolToken, "", nil}, http.StatusOK, "")
	if n := len(me["sessions"].([]any)); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	p.grant(carolToken, `{"session_id":"`+string(id)+`"}`)
	p.want(commandCall(aliceToken, `{"target":{"session_id":"`+string(id)+`"},"op":{"kind":"session.delete"}}`), http.StatusOK, "")
	p.want(call{"POST", "/grants", aliceToken, `{"session_id":"` + string(id) + `"}`, nil}, http.StatusGone, "TargetError")
}

// TestSessionNotMade: a session that the sandbox refused doesn't exist.
func TestSessionNotMade(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, callback(`"status":"error","error":{"message":"full","name":"LimitError"}`))
	p.register("rl_1", relayToken, relay.URL)
	p.want(commandCall(aliceToken, `{"target":{"sandboxId":"sb_1"},"op":{"kind":"session.create"}}`), http.StatusTooManyRequests, "LimitError")
	id := relay.got()[0].Target.SessionID
	p.want(call{"POST", "/grants", aliceToken, `{"session_id":"` + string(id) + `"}`, nil}, http.StatusNotFound, "TargetError")
}

func TestRelays(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	body := func(url, tunnel, origin string) string {
		return `{"url":"` + url + `","tunnel":"` + tunnel + `","public_origin":"` + origin + `"}`
	}
	good := body(relay.URL, "127.0.0.1:1", "https://fairlead.example")
	answer := p.want(call{"PUT", "/internal/relays/rl_1", relayToken, good, nil}, http.StatusOK, "")
	if want := p.clock.Now().Add(relays.Life).Format(time.RFC3339); answer["expires_at"] != want {
		t.Errorf("answer %v, want expiry %s", answer, want)
	}
	p.want(call{"PUT", "/internal/relays/rl_2", relayToken, good, nil}, http.StatusForbidden, "AuthError")
	for _, bad := range []string{
		body("", "127.0.0.1:1", "https://a"),
		body("http://relay.example", "127.0.0.1:1", "https://a"),
		body("https://user@relay.example", "127.0.0.1:1", "https://a"),
		body("https://relay.example/path", "127.0.0.1:1", "https://a"),
		body("ftp://127.0.0.1", "127.0.0.1:1", "https://a"),
		body("https://a", "127.0.0.1", "https://a"),
		body("https://a", "127.0.0.1:1", "null"),
	} {
		p.want(call{"PUT", "/internal/relays/rl_1", relayToken, bad, nil}, http.StatusBadRequest, "RequestError")
	}
	p.clock.Advance(relays.Life)
	p.want(commandCall(aliceToken, createBody), http.StatusOK, "")
	p.clock.Advance(time.Millisecond)
	p.want(commandCall(aliceToken, createBody), http.StatusServiceUnavailable, "InternalError")
}

// TestFound23AskedAgain: 503 is for what nobody has had. What a relay may have got
// when it was asked for first stays unknown, whatever can't be reached since, until
// the executor itself says what became of it, or that it came too late to be run.
func TestFound23AskedAgain(t *testing.T) {
	p := newPlane(t)
	var answer atomic.Pointer[func(http.ResponseWriter, protocol.CommandEnvelope)]
	say := func(f func(http.ResponseWriter, protocol.CommandEnvelope)) { answer.Store(&f) }
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) { (*answer.Load())(w, env) })
	p.register("rl_1", relayToken, relay.URL)
	ask := func(key string) string {
		t.Helper()
		code, body, _ := p.do(call{"POST", "/commands", aliceToken, `{` + createPTY + `}`, map[string]string{"Idempotency-Key": key}})
		return fmt.Sprint(code, " ", body["status"])
	}
	expired := func(w http.ResponseWriter, _ protocol.CommandEnvelope) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"error":{"message":"too late","name":"ExpiredError"}}`)
	}
	type step struct {
		answer func(http.ResponseWriter, protocol.CommandEnvelope)
		want   string
	}
	done := callback(`"status":"ok","result":{"kind":"pty.create","ptyId":"pty_9"}`)
	for name, steps := range map[string][]step{
		"never sent":        {{status(503), "503 error"}, {status(404), "503 error"}, {done, "200 ok"}, {status(503), "200 ok"}},
		"lost, then away":   {{status(502), "200 unknown"}, {status(503), "200 unknown"}, {status(429), "200 unknown"}, {done, "200 ok"}},
		"lost, then late":   {{status(502), "200 unknown"}, {expired, "401 error"}},
		"lost, not begun":   {{status(502), "200 unknown"}, {callback(`"status":"error","error":{"name":"InternalError","message":"m"},"telemetry":{"attempt":0}`), "503 error"}},
		"away, then lost":   {{status(503), "503 error"}, {status(504), "200 unknown"}, {status(503), "200 unknown"}},
		"unknown, and away": {{callback(`"status":"unknown"`), "200 unknown"}, {status(503), "200 unknown"}},
	} {
		for i, s := range steps {
			say(s.answer)
			if got := ask(strings.ReplaceAll(name, " ", "-")); got != s.want {
				t.Errorf("%s, step %d: %s, want %s", name, i+1, got, s.want)
			}
		}
	}
	// A command that was signed, and whose outcome nobody stored: the control plane
	// was killed under it, or a relay had it signed and dispatches it itself.
	p.want(signCall(p.grant(aliceToken, `{"session_id":"ses_1"}`), "signed", createPTY), http.StatusOK, "")
	say(status(503))
	if got := ask("signed"); got != "200 unknown" {
		t.Errorf("signed, and nothing known: %s", got)
	}
	// All relays are gone: nothing else can be said of what was asked for before.
	p.clock.Advance(relays.Life + time.Second)
	for key, want := range map[string]string{
		"lost,-then-away": "200 ok", "signed": "200 unknown", "away,-then-lost": "200 unknown", "never-asked": "503 <nil>",
	} {
		if got := ask(key); got != want {
			t.Errorf("%s, without a relay: %s, want %s", key, got, want)
		}
	}
}

// TestFound23SessionMayBeMade: of a route that makes a session the outcome isn't
// known either.
func TestFound23SessionMayBeMade(t *testing.T) {
	p := newPlane(t)
	relay := newFakeRelay(t, status(http.StatusBadGateway))
	p.register("rl_1", relayToken, relay.URL)
	if code, body, _ := p.do(call{"POST", "/sessions", aliceToken, "", nil}); code != http.StatusBadGateway || body["status"] != "unknown" {
		t.Errorf("%d %v", code, body)
	}
}

// TestFound23AskedMeanwhile: who asks by the same key while the command is under
// way gets what it comes to, which isn't unknown where nobody has had it.
func TestFound23AskedMeanwhile(t *testing.T) {
	p := newPlane(t)
	asked, free := make(chan struct{}, 20), make(chan struct{})
	relay := newFakeRelay(t, func(w http.ResponseWriter, env protocol.CommandEnvelope) {
		asked <- struct{}{}
		<-free
		status(503)(w, env)
	})
	p.register("rl_1", relayToken, relay.URL)
	c := commandCall(aliceToken, createBody)
	c.header = map[string]string{"Idempotency-Key": "k1"}
	var posts sync.WaitGroup
	for range 20 {
		posts.Go(func() { p.want(c, http.StatusServiceUnavailable, "InternalError") })
	}
	<-asked
	close(free)
	posts.Wait()
}
