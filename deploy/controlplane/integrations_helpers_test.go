package controlplane

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/integrations"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/vault"
	"github.com/fairlead/fairlead/protocol"
)

const (
	clientID     = "client-1"
	clientSecret = "secret-of-client-0123456789"
)

// An upstream is a provider: its sign-in, its tokens and some of its interface.
type upstream struct {
	*httptest.Server
	t *testing.T

	mu sync.Mutex
	// Guarded by mu.
	challenge string // of the code that it gave last
	tokens    int    // how many it has given
	renewals  int
	refuse    string // error of the token endpoint; empty: none
	echoScope bool   // it names the access token among the scopes
	noRefresh bool   // it gives no refresh tokens
	expiresIn int    // seconds
	valid     string // the access token that it takes
	revoked   []string
	login     string
	asked     []string                                     // requests to its interface, "GET /user"
	answer    func(w http.ResponseWriter, r *http.Request) // of its interface beside who one is; nil: a list of repositories
}

func newUpstream(t *testing.T) *upstream {
	t.Helper()
	u := &upstream{t: t, expiresIn: 3600, login: "octo"}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", u.token)
	mux.HandleFunc("/revoke", u.revoke)
	mux.HandleFunc("/", u.api)
	u.Server = httptest.NewServer(mux)
	t.Cleanup(u.Close)
	return u
}

func (u *upstream) set(change func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	change()
}

func (u *upstream) token(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.FormValue("client_id") != clientID || r.FormValue("client_secret") != clientSecret {
		u.t.Errorf("token request by %v", r.Form)
	}
	w.Header().Set("Content-Type", "application/json")
	refuse := u.refuse
	if r.FormValue("grant_type") == "authorization_code" {
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if r.FormValue("code") != "code-1" || base64.RawURLEncoding.EncodeToString(sum[:]) != u.challenge {
			refuse = "invalid_request"
		}
	} else {
		u.renewals++
		if r.FormValue("refresh_token") != fmt.Sprintf("refresh-%d", u.tokens) {
			refuse = "invalid_grant"
		}
	}
	if refuse != "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q,"error_description":"not %s"}`, refuse, r.FormValue("refresh_token"))
		return
	}
	u.tokens++
	u.valid = fmt.Sprintf("access-%d-0123456789", u.tokens)
	answer := map[string]any{"access_token": u.valid, "token_type": "Bearer", "scope": "repo read:user"}
	if u.echoScope {
		answer["scope"] = "repo " + u.valid
	}
	if !u.noRefresh {
		answer["refresh_token"], answer["expires_in"] = fmt.Sprintf("refresh-%d", u.tokens), u.expiresIn
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		u.t.Error(err)
	}
}

func (u *upstream) revoke(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		u.t.Error(err)
	}
	u.set(func() { u.revoked = append(u.revoked, r.Method+" "+string(body)) })
	w.WriteHeader(http.StatusNoContent)
}

func (u *upstream) api(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	valid, login, answer := u.valid, u.login, u.answer
	u.asked = append(u.asked, r.Method+" "+r.URL.Path)
	u.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if r.Header.Get("Authorization") != "Bearer "+valid {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, `{"message":"Bad credentials"}`)
		return
	}
	switch {
	case r.URL.Path == "/user":
		fmt.Fprintf(w, `{"login":%q}`, login)
	case r.URL.Path == "/gmail/v1/users/me/profile":
		fmt.Fprintf(w, `{"emailAddress":"%s@example.com"}`, login)
	case answer != nil:
		answer(w, r)
	default:
		io.WriteString(w, `[{"full_name":"acme/site","description":"Ours"},{"full_name":"evil/site","description":"Theirs"}]`)
	}
}

// calls returns what its interface was asked, and forgets it.
func (u *upstream) calls() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := strings.Join(u.asked, ", ")
	u.asked = nil
	return all
}

// newIntegratedPlane returns a control plane at which GitHub and Gmail are set
// up, and what stands for both.
func newIntegratedPlane(t *testing.T, change ...func(*Config)) (*plane, *upstream) {
	t.Helper()
	up := newUpstream(t)
	dir := t.TempDir()
	if err := vault.Create(filepath.Join(dir, "vault.key")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "client.secret"), []byte(clientSecret+"\n"), 0o600)
	entry := func(name string) string {
		return fmt.Sprintf("%s:\n  client_id: %s\n  client_secret_file: client.secret\n  auth_url: %s/auth\n  token_url: %s/token\n"+
			"  revoke_url: %s/revoke\n  api_url: %s\n", name, clientID, up.URL, up.URL, up.URL, up.URL)
	}
	writeFile(t, filepath.Join(dir, "integrations.yaml"), []byte(entry("github")+entry("gmail")), 0o600)
	p := newPlaneWith(t, func(cfg *Config) {
		cfg.Login.PublicURL = "http://127.0.0.1:8080"
		cfg.Integrations = integrations.Config{
			File: filepath.Join(dir, "integrations.yaml"), VaultKeyFile: filepath.Join(dir, "vault.key"),
		}
		for _, f := range change {
			f(cfg)
		}
	})
	return p, up
}

// beginConnect has a user leave for a provider, and returns the state that comes
// back and the browser's cookie.
func (p *plane) beginConnect(up *upstream, token, provider, body string) (state, cookie string) {
	p.t.Helper()
	w := p.serve(call{"POST", "/integrations/" + provider + "/connect", token, body, nil})
	var answer struct{ URL string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != http.StatusOK {
		p.t.Fatalf("connect: %d %s", w.Code, w.Body)
	}
	u, err := url.Parse(answer.URL)
	if err != nil || !strings.HasPrefix(answer.URL, up.URL+"/auth?") {
		p.t.Fatalf("%s, %v", answer.URL, err)
	}
	q := u.Query()
	if q.Get("client_id") != clientID || q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" ||
		q.Get("redirect_uri") != "http://127.0.0.1:8080/integrations/"+provider+"/callback" {
		p.t.Errorf("%v", q)
	}
	up.set(func() { up.challenge = q.Get("code_challenge") })
	cookies := w.Result().Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteLaxMode {
		p.t.Fatalf("cookies %v", cookies)
	}
	return q.Get("state"), cookies[0].Name + "=" + cookies[0].Value
}

// comeBack brings a browser back from a provider.
func (p *plane) comeBack(provider, query, cookie string) *httptest.ResponseRecorder {
	p.t.Helper()
	return p.serve(call{"GET", "/integrations/" + provider + "/callback?" + query, "", "", map[string]string{"Cookie": cookie}})
}

// connectAccount connects an account of a user and returns its id.
func (p *plane) connectAccount(up *upstream, token, provider string) string {
	p.t.Helper()
	state, cookie := p.beginConnect(up, token, provider, `{}`)
	if w := p.comeBack(provider, "code=code-1&state="+state, cookie); w.Code != http.StatusOK {
		p.t.Fatalf("callback: %d %s", w.Code, w.Body)
	}
	for _, v := range p.want(getAs(token, "/integrations"), http.StatusOK, "")["accounts"].([]any) {
		if a := v.(map[string]any); a["provider"] == provider {
			return a["id"].(string)
		}
	}
	p.t.Fatal("the account is not listed")
	return ""
}

// integrate leaves a turn, an attachment and the records of some requests behind,
// for lists that must not be empty.
func (p *plane) integrate(up *upstream) {
	p.t.Helper()
	b := p.enrolled(p.agentListener(), "sb_1")
	account := p.connectAccount(up, aliceToken, "github")
	p.want(attachCall(aliceToken, "pty_1", "github", account, `{"github":{"repos":["acme/*"]}}`), http.StatusOK, "")
	for _, action := range []string{"github.list_repos", "tasks.list"} {
		if status, answer := b.execute(p, "pty_1", action, `{}`); status != http.StatusOK {
			p.t.Fatalf("%d %v", status, answer)
		}
	}
	if status, answer := b.send(p, "POST", "/pty-completed", testTurn(p)); status != http.StatusNoContent {
		p.t.Fatalf("%d %v", status, answer)
	}
}

func attachCall(token, pty, provider, account, policy string) call {
	body := `{"session_id":"ses_1","account_id":"` + account + `"`
	if policy != "" {
		body += `,"policy":` + policy
	}
	return call{"PUT", "/dashboards/dash_1/terminals/" + pty + "/integrations/" + provider, token, body + "}", nil}
}

// send sends a signed request of a sandbox, and returns its status and answer.
func (b *testSandbox) send(p *plane, method, target string, body any) (int, map[string]any) {
	p.t.Helper()
	data, ok := body.([]byte)
	if !ok && body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			p.t.Fatal(err)
		}
	}
	return p.sendSigned(method, target, data, b.headers(p.t, method, target, data, p.clock.Now()))
}

// headers sign a request.
func (b *testSandbox) headers(t *testing.T, method, target string, body []byte, at time.Time) map[string]string {
	t.Helper()
	transcript := protocol.DeviceTranscript(b.id, method, target, sha256.Sum256(body), at.UnixMilli())
	return map[string]string{
		protocol.CertificateHeader: b.certificate,
		protocol.SignedAtHeader:    strconv.FormatInt(at.UnixMilli(), 10),
		protocol.SignatureHeader:   base64.StdEncoding.EncodeToString(b.sign(t, transcript)),
	}
}

func (p *plane) sendSigned(method, target string, body []byte, headers map[string]string) (int, map[string]any) {
	p.t.Helper()
	r := httptest.NewRequestWithContext(p.t.Context(), method, target, bytes.NewReader(body))
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	w := &deadlineRecorder{httptest.NewRecorder()}
	p.server.agentHandler().ServeHTTP(w, r)
	var answer map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			p.t.Errorf("%s %s: %q is not JSON", method, target, w.Body)
		}
	}
	return w.Code, answer
}

// execute asks the gateway for something in the name of a terminal's program.
func (b *testSandbox) execute(p *plane, pty, action, args string) (int, map[string]any) {
	p.t.Helper()
	provider, _, _ := strings.Cut(action, ".")
	return b.send(p, "POST", "/internal/gateway/"+provider+"/execute", protocol.GatewayRequest{
		SessionID: "ses_1", PTYID: protocol.PTYID(pty), Action: action, Args: json.RawMessage(args),
	})
}

// codeIn returns the code of an error.
func codeIn(answer map[string]any) string {
	e, _ := answer["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}
