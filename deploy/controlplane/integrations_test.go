package controlplane

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/integrations"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/vault"
	"github.com/fairlead/fairlead/protocol"
)

// TestConnect: an account is connected by whoever began it, once.
func TestConnect(t *testing.T) {
	p, up := newIntegratedPlane(t)
	state, cookie := p.beginConnect(up, aliceToken, "github", `{"return_to":"/?dashboard=dash_1"}`)

	// Neither another browser nor another provider's route takes the state; each
	// try costs one.
	for _, tt := range []struct{ provider, query, cookie string }{
		{"github", "code=code-1&state=" + state, ""},
		{"github", "code=code-1&state=" + state, cookie},
	} {
		if w := p.comeBack(tt.provider, tt.query, tt.cookie); w.Code != http.StatusUnauthorized {
			t.Errorf("%+v: %d %s", tt, w.Code, w.Body)
		}
	}
	state, cookie = p.beginConnect(up, aliceToken, "github", `{}`)
	if w := p.comeBack("gmail", "code=code-1&state="+state, cookie); w.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := p.comeBack("github", "code=code-1&state=other", cookie); w.Code != http.StatusUnauthorized {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if up.tokens != 0 {
		t.Error("the provider was asked for a token")
	}

	state, cookie = p.beginConnect(up, aliceToken, "github", `{"return_to":"/?dashboard=dash_1"}`)
	w := p.comeBack("github", "code=code-1&state="+state, cookie)
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "http://127.0.0.1:8080/?dashboard=dash_1" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	if w := p.comeBack("github", "code=code-1&state="+state, cookie); w.Code != http.StatusUnauthorized {
		t.Errorf("a second time: %d %s", w.Code, w.Body)
	}
	answer := p.want(getAs(aliceToken, "/integrations"), http.StatusOK, "")
	accounts := answer["accounts"].([]any)
	if len(accounts) != 1 {
		t.Fatalf("%v", answer)
	}
	account := accounts[0].(map[string]any)
	if account["name"] != "octo" || account["provider"] != "github" || account["needs_reconnect"] != false || account["scopes"] != "repo read:user" {
		t.Errorf("%v", account)
	}
	setUp := make(map[string]bool)
	for _, v := range answer["providers"].([]any) {
		one := v.(map[string]any)
		setUp[one["name"].(string)] = one["set_up"].(bool)
	}
	if len(setUp) != 4 || !setUp["github"] || !setUp["gmail"] || setUp["google_drive"] {
		t.Errorf("%v", setUp)
	}
	if others := p.want(getAs(bobToken, "/integrations"), http.StatusOK, "")["accounts"].([]any); len(others) != 0 {
		t.Errorf("bob sees %v", others)
	}

	// Connected again it is the same account.
	again := p.connectAccount(up, aliceToken, "github")
	if again != account["id"] {
		t.Errorf("%s, want %v", again, account["id"])
	}
	p.checkSecrecy("access-", "refresh-", clientSecret)
}

// checkSecrecy fails if a secret is in the log or in the database.
func (p *plane) checkSecrecy(secrets ...string) {
	p.t.Helper()
	texts := map[string]string{"log": p.log.String()}
	if p.database == "" {
		for _, name := range []string{statedir.DatabaseFile, statedir.DatabaseFile + "-wal"} {
			data, err := os.ReadFile(filepath.Join(p.dir, "state", name))
			if err != nil && !os.IsNotExist(err) {
				p.t.Fatal(err)
			}
			texts[name] = string(data)
		}
	}
	for name, text := range texts {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				p.t.Errorf("%s: %q", name, text[max(0, i-100):min(len(text), i+100)])
			}
		}
	}
}

func TestConnectRefused(t *testing.T) {
	p, up := newIntegratedPlane(t)
	for _, tt := range []struct {
		call   call
		status int
		name   string
	}{
		{call{"POST", "/integrations/github/connect", aliceToken, `{"return_to":"https://evil.example/"}`, nil}, 400, "RequestError"},
		{call{"POST", "/integrations/github/connect", aliceToken, `{"return_to":"//evil.example/"}`, nil}, 400, "RequestError"},
		{call{"POST", "/integrations/github/connect", aliceToken, `{"to":"/"}`, nil}, 400, "RequestError"},
		{call{"POST", "/integrations/google_drive/connect", aliceToken, `{}`, nil}, 503, "InternalError"},
		{call{"POST", "/integrations/gitlab/connect", aliceToken, `{}`, nil}, 404, "TargetError"},
		{call{"DELETE", "/integrations/accounts/acc_1", aliceToken, ``, nil}, 404, "TargetError"},
		{call{"DELETE", "/integrations/accounts/a%20b", aliceToken, ``, nil}, 404, "TargetError"},
	} {
		p.want(tt.call, tt.status, tt.name)
	}
	for _, tt := range []struct {
		name, query string
		before      func()
		status      int
		text        string
	}{
		{"refused by the person", "error=access_denied", func() {}, 403, "was not allowed"},
		{"no code", "", func() {}, 403, "was not allowed"},
		{"too late", "code=code-1", func() { p.clock.Advance(11 * time.Minute) }, 401, "took too long"},
		{"wrong code", "code=code-2", func() {}, 502, "did not connect the account: status 400"},
		{"no word about whose it is", "code=code-1", func() { up.set(func() { up.login = "" }) }, 502, ""},
		{"the token for a name", "code=code-1", func() { up.set(func() { up.login = "access-1-0123456789" }) }, 502, "whose account"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			state, cookie := p.beginConnect(up, aliceToken, "github", `{}`)
			up.set(func() { up.tokens = 0 })
			tt.before()
			w := p.comeBack("github", tt.query+"&state="+state, cookie)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.text) || strings.Contains(w.Body.String(), "access-1") {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	if a := p.want(getAs(aliceToken, "/integrations"), http.StatusOK, "")["accounts"].([]any); len(a) != 0 {
		t.Errorf("%v", a)
	}
	w := p.serve(call{"GET", "/integrations/github/callback?state=%3Cb%3E", "", "", map[string]string{"Accept": "text/html"}})
	if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), "Account not connected") ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// TestConnectTooMany: nobody fills the store with attempts.
func TestConnectTooMany(t *testing.T) {
	p, up := newIntegratedPlane(t)
	for range 20 {
		p.beginConnect(up, aliceToken, "github", `{}`)
	}
	p.want(call{"POST", "/integrations/github/connect", aliceToken, `{}`, nil}, http.StatusTooManyRequests, "LimitError")
	p.beginConnect(up, bobToken, "github", `{}`)
	p.clock.Advance(11 * time.Minute)
	p.beginConnect(up, aliceToken, "github", `{}`)
}

// TestConnectOrigin: without a public URL browsers come back to the relay through
// which they came, and to none that isn't registered.
func TestConnectOrigin(t *testing.T) {
	p, up := newIntegratedPlane(t, func(cfg *Config) { cfg.Login.PublicURL = "" })
	connect := func(origin string) (string, *http.Cookie) {
		t.Helper()
		w := p.serve(call{"POST", "/integrations/github/connect", aliceToken, `{"return_to":"/x"}`, map[string]string{"Origin": origin}})
		var answer struct{ URL string }
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		u, err := url.Parse(answer.URL)
		if err != nil {
			t.Fatal(err)
		}
		up.set(func() { up.challenge = u.Query().Get("code_challenge") })
		cookie := w.Result().Cookies()[0]
		to := u.Query().Get("redirect_uri")
		back := p.comeBack("github", "code=code-1&state="+u.Query().Get("state"), cookie.Name+"="+cookie.Value)
		if back.Code != http.StatusSeeOther || back.Header().Get("Location") != strings.TrimSuffix(to, "/integrations/github/callback")+"/x" {
			t.Errorf("%d to %s from %s", back.Code, back.Header().Get("Location"), to)
		}
		return to, cookie
	}
	p.want(call{"POST", "/integrations/github/connect", aliceToken, `{}`, nil}, http.StatusServiceUnavailable, "InternalError")
	for id, credential := range map[string]string{"rl_1": relayToken, "rl_2": relay2Token} {
		p.want(call{"PUT", "/internal/relays/" + id, credential,
			`{"url":"http://127.0.0.1:1","tunnel":"127.0.0.1:4433","public_origin":"https://` + strings.Replace(id, "_", "-", 1) + `.example"}`, nil}, http.StatusOK, "")
	}
	for origin, want := range map[string]string{
		"https://rl-1.example": "https://rl-1.example/integrations/github/callback",
		"https://rl-2.example": "https://rl-2.example/integrations/github/callback",
	} {
		if got, cookie := connect(origin); got != want || !cookie.Secure {
			t.Errorf("%s: %s, %v", origin, got, cookie)
		}
	}
	for _, origin := range []string{"", "https://evil.example"} {
		if got, _ := connect(origin); !strings.HasPrefix(got, "https://rl-") {
			t.Errorf("%s: %s", origin, got)
		}
	}
}

// TestNoIntegrations: without a setup everything says so, and nothing fails.
func TestNoIntegrations(t *testing.T) {
	p := newPlane(t)
	answer := p.want(getAs(aliceToken, "/integrations"), http.StatusOK, "")
	if len(answer["accounts"].([]any)) != 0 || len(answer["providers"].([]any)) != 4 {
		t.Errorf("%v", answer)
	}
	p.want(call{"POST", "/integrations/github/connect", aliceToken, `{}`, nil}, http.StatusServiceUnavailable, "InternalError")
	p.want(attachCall(aliceToken, "pty_1", "github", "acc_1", ""), http.StatusServiceUnavailable, "InternalError")
}

// TestAttach: owners and editors attach their own accounts, and the sandbox is
// told of each change.
func TestAttach(t *testing.T) {
	p, up := newIntegratedPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	p.register("rl_1", relayToken, relay.URL)
	account := p.connectAccount(up, aliceToken, "github")
	bobs := p.connectAccount(up, bobToken, "github")

	attached := p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")["attachment"].(map[string]any)
	if attached["policy_version"] != 1.0 || attached["account_name"] != "octo" || attached["policy"].(map[string]any)["read_only"] != true {
		t.Errorf("%v", attached)
	}
	p.wantPushes(relay, 1)
	p.want(attachCall(aliceToken, "pty_1", "github", account, `{"read_only":true}`), http.StatusOK, "") // the same again
	changed := p.want(attachCall(aliceToken, "pty_1", "github", account, `{"github":{"repos":["acme/*"]}}`), http.StatusOK, "")["attachment"].(map[string]any)
	if changed["policy_id"] != attached["policy_id"] || changed["policy_version"] != 2.0 {
		t.Errorf("%v after %v", changed, attached)
	}
	p.wantPushes(relay, 2)
	bob := p.want(attachCall(bobToken, "pty_1", "github", bobs, ""), http.StatusOK, "")["attachment"].(map[string]any)
	if bob["policy_id"] == attached["policy_id"] || bob["policy_version"] != 1.0 || bob["account_user"] != "usr_bob" {
		t.Errorf("%v", bob)
	}
	p.wantPushes(relay, 3)

	list := p.want(getAs(carolToken, "/dashboards/dash_1/integrations?session_id=ses_1"), http.StatusOK, "")["attachments"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["account_id"] != bobs {
		t.Errorf("%v", list)
	}
	path := "/dashboards/dash_1/terminals/pty_1/integrations/github?session_id=ses_1"
	p.want(call{"DELETE", path, carolToken, "", nil}, http.StatusForbidden, "AuthError")
	if w := p.serve(call{"DELETE", path, aliceToken, "", nil}); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	p.wantPushes(relay, 4)
	p.want(call{"DELETE", path, aliceToken, "", nil}, http.StatusNotFound, "TargetError")
}

// wantPushes waits until the relay got n commands, and checks the last one.
func (p *plane) wantPushes(relay *fakeRelay, n int) {
	p.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for len(relay.got()) < n && time.Now().Before(deadline) {
		select {
		case <-time.After(time.Millisecond):
		case <-p.t.Context().Done():
		}
	}
	got := relay.got()
	if len(got) != n {
		p.t.Fatalf("%d commands, want %d\n%s", len(got), n, p.log)
	}
	cmd := verifyCommand(p.t, p.keys(), got[n-1].JWS)
	want := protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1", PTYID: "pty_1"}
	if string(cmd.Op) != `{"kind":"integrations.changed"}` || cmd.Target != want || cmd.UserID != "" {
		p.t.Errorf("%s for %+v by %q", cmd.Op, cmd.Target, cmd.UserID)
	}
}

func TestAttachRefused(t *testing.T) {
	p, up := newIntegratedPlane(t)
	account := p.connectAccount(up, aliceToken, "github")
	mails := p.connectAccount(up, aliceToken, "gmail")
	put := func(path, body string) call { return call{"PUT", path, aliceToken, body, nil} }
	const path = "/dashboards/dash_1/terminals/pty_1/integrations/github"
	for _, tt := range []struct {
		name   string
		call   call
		status int
		error  string
	}{
		{"a viewer", attachCall(carolToken, "pty_1", "github", account, ""), 403, "AuthError"},
		{"not a member", attachCall(daveToken, "pty_1", "github", account, ""), 404, "TargetError"},
		{"another's account", attachCall(bobToken, "pty_1", "github", account, ""), 400, "RequestError"},
		{"no such account", attachCall(aliceToken, "pty_1", "github", "acc_9", ""), 400, "RequestError"},
		{"another provider's account", attachCall(aliceToken, "pty_1", "github", mails, ""), 400, "RequestError"},
		{"no such provider", attachCall(aliceToken, "pty_1", "gitlab", account, ""), 404, "TargetError"},
		{"a provider that is not set up", attachCall(aliceToken, "pty_1", "google_drive", account, ""), 503, "InternalError"},
		{"a board provider", attachCall(aliceToken, "pty_1", "tasks", account, ""), 404, "TargetError"},
		{"a terminal that is no id", attachCall(aliceToken, "a%20b", "github", account, ""), 404, "TargetError"},
		{"an unknown session", put(path, `{"session_id":"ses_9","account_id":"`+account+`"}`), 404, "TargetError"},
		{"no session", put(path, `{"account_id":"`+account+`"}`), 400, "RequestError"},
		{"an unknown member", put(path, `{"session_id":"ses_1","account_id":"`+account+`","polcy":{}}`), 400, "RequestError"},
		{"a policy with an unknown action", attachCall(aliceToken, "pty_1", "github", account, `{"deny":["github.delete_repo"]}`), 400, "RequestError"},
		{"a policy that is a list", attachCall(aliceToken, "pty_1", "github", account, `[]`), 400, "RequestError"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := *p
			p.t = t
			p.want(tt.call, tt.status, tt.error)
		})
	}
}

// TestAccountRemoved: an account that is gone is attached nowhere, and its
// tokens are taken back.
func TestAccountRemoved(t *testing.T) {
	p, up := newIntegratedPlane(t)
	relay := newFakeRelay(t, callback(`"status":"ok"`))
	p.register("rl_1", relayToken, relay.URL)
	account := p.connectAccount(up, aliceToken, "github")
	p.want(attachCall(aliceToken, "pty_1", "github", account, ""), http.StatusOK, "")
	p.wantPushes(relay, 1)
	p.want(call{"DELETE", "/integrations/accounts/" + account, bobToken, "", nil}, http.StatusNotFound, "TargetError")
	if w := p.serve(call{"DELETE", "/integrations/accounts/" + account, aliceToken, "", nil}); w.Code != http.StatusNoContent {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	p.wantPushes(relay, 2)
	if len(up.revoked) != 1 || up.revoked[0] != `DELETE {"access_token":"access-1-0123456789"}` {
		t.Errorf("%q", up.revoked)
	}
	if a := p.want(getAs(aliceToken, "/dashboards/dash_1/integrations"), http.StatusOK, "")["attachments"].([]any); len(a) != 0 {
		t.Errorf("%v", a)
	}
}

// TestMemberRemoved: who may not work in a dashboard any more takes their
// accounts along.
func TestMemberRemoved(t *testing.T) {
	p, up := newIntegratedPlane(t)
	account := p.connectAccount(up, bobToken, "github")
	const bob = "/dashboards/dash_1/members/usr_bob"
	for _, leave := range []call{
		{"PUT", bob, aliceToken, `{"role":"viewer"}`, nil},
		{"DELETE", bob, aliceToken, "", nil},
	} {
		p.want(call{"PUT", bob, aliceToken, `{"role":"editor"}`, nil}, http.StatusOK, "")
		p.want(attachCall(bobToken, "pty_1", "github", account, ""), http.StatusOK, "")
		if w := p.serve(leave); w.Code/100 != 2 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		p.want(call{"PUT", bob, aliceToken, `{"role":"editor"}`, nil}, http.StatusOK, "") // back again
		if a := p.want(getAs(aliceToken, "/dashboards/dash_1/integrations"), http.StatusOK, "")["attachments"].([]any); len(a) != 0 {
			t.Errorf("%s: %v", leave.method, a)
		}
	}
}

// TestRotateVault: a server that runs goes on with tokens under a new key.
func TestRotateVault(t *testing.T) {
	p, up := newIntegratedPlane(t)
	account := p.connectAccount(up, aliceToken, "github")
	before, err := p.server.store.Integrations.Account(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{}
	p.configure(&cfg)
	rotation := integrations.VaultRotation{
		Location: statedir.Location{StateDir: filepath.Join(p.dir, "state"), Database: p.database}, KeyFile: cfg.Integrations.VaultKeyFile, NewKey: true, DropOld: true,
	}
	for range 2 {
		report, err := integrations.RotateVault(context.Background(), rotation)
		if err != nil || report.Resealed != 1 || report.KeyID == before.KeyID {
			t.Fatalf("%+v, %v", report, err)
		}
		after, err := p.server.store.Integrations.Account(t.Context(), account)
		if err != nil || after.KeyID != report.KeyID || after.Version != before.Version+1 {
			t.Fatalf("%+v after %+v, %v", after, before, err)
		}
		keys, err := vault.Open(rotation.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := keys.Open(after.KeyID, after.Sealed, "usr_alice", "github", account); err != nil || !strings.Contains(string(plain), up.valid) {
			t.Errorf("%v", err)
		}
		before = after
	}
	// Tokens whose key is lost are named, and no key is dropped for them.
	other := filepath.Join(t.TempDir(), "other.key")
	if err := vault.Create(other); err != nil {
		t.Fatal(err)
	}
	rotation.KeyFile, rotation.NewKey = other, false
	if _, err := integrations.RotateVault(context.Background(), rotation); err == nil || !strings.Contains(err.Error(), "account "+account) {
		t.Errorf("error %v", err)
	}
}

// TestSessionCDP: without an extension, cdp.send goes to the session's own
// browser, through its sandbox.
func TestSessionCDP(t *testing.T) {
	p := newPlane(t)
	p.register("rl_1", relayToken, "http://127.0.0.1:1")
	grant := p.grant(aliceToken, `{"session_id":"ses_1"}`)
	answer := p.want(signCall(grant, "k1", `"target":{"sessionId":"ses_1"},"op":{"kind":"cdp.send","method":"Page.reload"}`), http.StatusOK, "")
	cmd := verifyCommand(t, p.keys(), answer["envelope"].(map[string]any)["jws"].(string))
	if want := (protocol.CommandTarget{SandboxID: "sb_1", SessionID: "ses_1"}); cmd.Target != want || string(cmd.Op) != `{"kind":"cdp.send","method":"Page.reload"}` {
		t.Errorf("%+v %s", cmd.Target, cmd.Op)
	}
	narrow := p.grant(aliceToken, `{"session_id":"ses_1","capabilities":["view","control"]}`)
	p.want(signCall(narrow, "k2", `"target":{"sessionId":"ses_1"},"op":{"kind":"cdp.send","method":"Page.reload"}`), http.StatusForbidden, "AuthError")
}
