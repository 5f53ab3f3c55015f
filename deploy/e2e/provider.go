package e2e

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fairlead/fairlead/protocol"
)

// A FakeGitHub is a local server that speaks as much of GitHub's OAuth and REST
// API as connecting an account and listing repositories takes.
type FakeGitHub struct {
	*httptest.Server
	Token string // the account's, which nobody but the control plane may see

	mu         sync.Mutex
	challenges map[string]string // by code; guarded by mu
}

// NewFakeGitHub starts one. Close it.
func NewFakeGitHub() *FakeGitHub {
	g := &FakeGitHub{Token: "gho_" + rand.Text(), challenges: make(map[string]string)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/oauth/authorize", g.authorize)
	mux.HandleFunc("POST /login/oauth/access_token", g.exchange)
	mux.HandleFunc("GET /user", g.api(`{"login":"octo","id":1,"email":"octo@example.com"}`))
	mux.HandleFunc("GET /user/repos", g.api(`[{"id":2,"name":"quay","full_name":"octo/quay","private":false,"owner":{"login":"octo"},"html_url":"https://example.com/octo/quay"}]`))
	g.Server = httptest.NewServer(mux)
	return g
}

// Setup writes a file for the control plane's --integrations into dir.
func (g *FakeGitHub) Setup(dir string) (path string, err error) {
	secret := filepath.Join(dir, "github-secret")
	if err := os.WriteFile(secret, []byte("client-secret"), 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "integrations.yaml")
	text := fmt.Sprintf("github:\n  client_id: fairlead-test\n  client_secret_file: %s\n  auth_url: %s/login/oauth/authorize\n  token_url: %s/login/oauth/access_token\n  api_url: %s\n",
		secret, g.URL, g.URL, g.URL)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// Connect goes the way of OAuth as u's browser does, and returns the id of the
// account that is u's then.
func (g *FakeGitHub) Connect(ctx context.Context, u User) (account string, err error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return "", err
	}
	browser := &http.Client{Jar: jar}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.Base+"/integrations/github/connect", strings.NewReader(`{}`))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+u.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := browser.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var begun struct {
		URL string `json:"url"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&begun); err != nil || begun.URL == "" {
		return "", fmt.Errorf("connect: %s: %w", resp.Status, err)
	}
	page, err := browser.Get(begun.URL)
	if err != nil {
		return "", err
	}
	defer page.Body.Close()
	if page.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(page.Body)
		return "", fmt.Errorf("callback: %s: %s", page.Status, text)
	}
	var list struct {
		Accounts []struct{ ID, Provider string } `json:"accounts"`
	}
	if err := call(ctx, http.StatusOK, &list, http.MethodGet, u.Base+"/integrations", u.Token, nil); err != nil {
		return "", err
	}
	if len(list.Accounts) != 1 || list.Accounts[0].Provider != "github" {
		return "", fmt.Errorf("accounts: %+v", list)
	}
	return list.Accounts[0].ID, nil
}

// An Attachment is an account at a terminal, or its absence.
type Attachment struct {
	user User
	url  string
	body map[string]any
}

// GitHubAt returns the attachment of an account to a terminal of the stack's
// first session.
func (s *Stack) GitHubAt(ctx context.Context, user, account string, pty protocol.PTYID) (*Attachment, error) {
	u := s.Ready.User(user)
	var me struct {
		Sessions []struct{ ID, Dashboard string } `json:"sessions"`
	}
	if err := call(ctx, http.StatusOK, &me, http.MethodGet, u.Base+"/auth/me", u.Token, nil); err != nil {
		return nil, err
	}
	for _, session := range me.Sessions {
		if session.ID == string(s.Ready.SessionID) {
			return &Attachment{
				user: u, url: fmt.Sprintf("%s/dashboards/%s/terminals/%s/integrations/github", u.Base, session.Dashboard, pty),
				body: map[string]any{
					"session_id": s.Ready.SessionID, "account_id": account, "policy": map[string]any{"read_only": true},
				},
			}, nil
		}
	}
	return nil, fmt.Errorf("no session %s in %+v", s.Ready.SessionID, me)
}

// Attach attaches the account to the terminal, for reading.
func (a *Attachment) Attach(ctx context.Context) error {
	return call(ctx, http.StatusOK, nil, http.MethodPut, a.url, a.user.Token, a.body)
}

// Detach takes it away.
func (a *Attachment) Detach(ctx context.Context) error {
	return call(ctx, http.StatusNoContent, nil, http.MethodDelete, fmt.Sprintf("%s?session_id=%s", a.url, a.body["session_id"]), a.user.Token, nil)
}

// authorize consents for the person at once.
func (g *FakeGitHub) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || q.Get("code_challenge_method") != "S256" || q.Get("state") == "" || q.Get("client_id") != "fairlead-test" {
		http.Error(w, "not a request for authorization with PKCE", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	g.mu.Lock()
	g.challenges[code] = q.Get("code_challenge")
	g.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

func (g *FakeGitHub) exchange(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	challenge, ok := g.challenges[r.FormValue("code")]
	delete(g.challenges, r.FormValue("code"))
	g.mu.Unlock()
	verifier := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	w.Header().Set("Content-Type", "application/json")
	if !ok || base64.RawURLEncoding.EncodeToString(verifier[:]) != challenge {
		json.NewEncoder(w).Encode(map[string]string{"error": "bad_verification_code"})
		return
	}
	json.NewEncoder(w).Encode(map[string]string{"access_token": g.Token, "token_type": "bearer", "scope": "repo,user:email"})
}

// api answers who has the token.
func (g *FakeGitHub) api(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if _, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); token != g.Token {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintln(w, `{"message":"Bad credentials"}`)
			return
		}
		fmt.Fprintln(w, answer)
	}
}
