package e2e

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// A FakeGitHub is a local server that speaks as much of GitHub's OAuth and REST
// API as connecting an account and listing repositories takes.
type FakeGitHub struct {
	*httptest.Server
	Token string // the account's, which nobody but the control plane may see

	mu         sync.Mutex
	challenges map[string]string // by code; guarded by mu
	asked      []string          // paths of the API, guarded by mu
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

// Asked returns the paths of the API that were asked for with the token.
func (g *FakeGitHub) Asked() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]string(nil), g.asked...)
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
		g.mu.Lock()
		g.asked = append(g.asked, r.URL.Path)
		g.mu.Unlock()
		fmt.Fprintln(w, answer)
	}
}
