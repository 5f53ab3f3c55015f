package oauth

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "secret-of-client"

var epoch = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func write(t *testing.T, dir, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// load sets providers up as text says.
func load(t *testing.T, text string) (map[string]*Provider, error) {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "secret", secret+"\n", 0o600)
	write(t, dir, "open", secret, 0o644)
	write(t, dir, "empty", "\n", 0o600)
	providers, err := Load(write(t, dir, "setup.yaml", text, 0o644), func() time.Time { return epoch })
	t.Cleanup(func() {
		for _, p := range providers {
			p.Close()
		}
	})
	return providers, err
}

func TestLoad(t *testing.T) {
	providers, err := load(t, `
gmail: {client_id: c1, client_secret_file: secret}
github: {client_id: c/2, client_secret_file: secret, scopes: [repo], api_url: "https://ghe.example/api/v3/"}
google_drive: {client_id: c3, client_secret_file: secret, revoke_url: none}
`)
	if err != nil || len(providers) != 3 {
		t.Fatalf("%v, %v", providers, err)
	}
	u, err := url.Parse(providers["gmail"].AuthURL("https://fairlead.example", "state-1", "verifier-1"))
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	for name, want := range map[string]string{
		"client_id": "c1", "response_type": "code", "state": "state-1", "access_type": "offline", "prompt": "consent",
		"scope": "https://www.googleapis.com/auth/gmail.modify", "code_challenge_method": "S256",
		"redirect_uri": "https://fairlead.example/integrations/gmail/callback",
	} {
		if q.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, q.Get(name), want)
		}
	}
	if u.Host != "accounts.google.com" || q.Get("code_challenge") == "" || strings.Contains(u.String(), secret) {
		t.Errorf("%s", u)
	}
	github := providers["github"]
	if github.APIURL != "https://ghe.example/api/v3" || github.revokeURL != "https://api.github.com/applications/c%2F2/token" {
		t.Errorf("%s, %s", github.APIURL, github.revokeURL)
	}
	if err := providers["google_drive"].Revoke(t.Context(), Token{Access: "x"}); err != nil {
		t.Errorf("revoked where that is not possible: %v", err)
	}
	if none, err := load(t, ``); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
	for _, name := range Providers() {
		if services[name].apiURL == "" {
			t.Errorf("nothing is known of %s", name)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, problem string }{
		{"unknown provider", `gitlab: {client_id: c, client_secret_file: secret}`, "gitlab: no such provider"},
		{"unknown key", `gmail: {client_id: c, client_secret: x}`, "field client_secret not found"},
		{"no client", `gmail: {client_secret_file: secret}`, "want client_id and client_secret_file"},
		{"no secret", `gmail: {client_id: c}`, "want client_id and client_secret_file"},
		{"missing secret", `gmail: {client_id: c, client_secret_file: nowhere}`, "no such file"},
		{"secret that others read", `gmail: {client_id: c, client_secret_file: open}`, "mode 0644 lets others in"},
		{"empty secret", `gmail: {client_id: c, client_secret_file: empty}`, "is empty"},
		{"plain http", `gmail: {client_id: c, client_secret_file: secret, token_url: "http://example.com/token"}`, "token_url: want https, or http on loopback"},
		{"http that only looks local", `gmail: {client_id: c, client_secret_file: secret, api_url: "http://127.0.0.1.example.com"}`, "api_url: want https"},
		{"user in a URL", `gmail: {client_id: c, client_secret_file: secret, auth_url: "https://u:p@example.com/"}`, "auth_url: want a URL"},
		{"no URL", `gmail: {client_id: c, client_secret_file: secret, revoke_url: "example"}`, "revoke_url: want a URL"},
		{"a list", `[gmail]`, "cannot unmarshal"},
		{"too large", "#" + strings.Repeat("x", maxSetupBytes), "larger than"},
	} {
		_, err := load(t, tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.problem) || !strings.Contains(err.Error(), "setup.yaml") ||
			strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}

// newProvider sets one provider up at a server of the test's.
func newProvider(t *testing.T, name string, serve http.HandlerFunc) *Provider {
	t.Helper()
	srv := httptest.NewServer(serve)
	t.Cleanup(srv.Close)
	providers, err := load(t, fmt.Sprintf("%s: {client_id: c1, client_secret_file: secret, token_url: %q, revoke_url: %q}",
		name, srv.URL+"/token", srv.URL+"/revoke"))
	if err != nil {
		t.Fatal(err)
	}
	return providers[name]
}

// TestTokens: what is made of a token endpoint's answers. None of its words,
// which may hold what it was sent, get into an error.
func TestTokens(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
		status       int
		want         Token
		err          error // nil with no access token: some other error
	}{
		{"all", `{"access_token":"a","refresh_token":"r2","expires_in":100,"scope":"x,y z","token_type":"bearer"}`, 200,
			Token{Access: "a", Refresh: "r2", ExpiresAt: epoch.Add(100 * time.Second), Scopes: "x y z"}, nil},
		{"the refresh token stays", `{"access_token":"a","token_type":"bearer"}`, 200, Token{Access: "a", Refresh: "r1"}, nil},
		{"void", `{"error":"invalid_grant","error_description":"r1 was revoked"}`, 400, Token{}, ErrRefused},
		{"void, as GitHub says it", `{"error":"bad_refresh_token"}`, 200, Token{}, ErrRefused},
		{"a fault", `r1 is bad`, 500, Token{}, nil},
		{"no token", `{"token_type":"bearer"}`, 200, Token{}, nil},
		{"a token of two lines", `{"access_token":"a\nb"}`, 200, Token{}, nil},
		{"a token that is too long", `{"access_token":"` + strings.Repeat("a", maxTokenBytes+1) + `"}`, 200, Token{}, nil},
		{"endless", `{"access_token":"a","x":"` + strings.Repeat("a", 2*maxAnswer), 200, Token{}, nil},
		{"a redirect", ``, 302, Token{}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newProvider(t, "gmail", func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("grant_type") != "refresh_token" || r.FormValue("refresh_token") != "r1" || r.FormValue("client_secret") != secret {
					t.Errorf("%v", r.Form)
				}
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.answer)
			})
			got, err := p.Renew(t.Context(), Token{Access: "old", Refresh: "r1"})
			if tt.want.Access != "" {
				if err != nil || got != tt.want {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			if err == nil || tt.err != nil && !errors.Is(err, tt.err) || tt.err == nil && protocol.KindOf(err) != protocol.KindUpstream {
				t.Errorf("error %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "r1") || strings.Contains(err.Error(), secret)) {
				t.Errorf("error %v", err)
			}
		})
	}
	p := newProvider(t, "gmail", func(http.ResponseWriter, *http.Request) { t.Error("asked") })
	if _, err := p.Renew(t.Context(), Token{Access: "old"}); !errors.Is(err, ErrRefused) {
		t.Errorf("error %v", err)
	}
}

func TestFresh(t *testing.T) {
	for _, tt := range []struct {
		ends time.Time
		want bool
	}{
		{time.Time{}, true}, {epoch, false}, {epoch.Add(RenewBefore), false}, {epoch.Add(RenewBefore + 1), true},
	} {
		if got := (Token{Access: "a", ExpiresAt: tt.ends}).Fresh(epoch); got != tt.want {
			t.Errorf("%v: %v", tt.ends, got)
		}
	}
}

func TestRevoke(t *testing.T) {
	var got string
	status := http.StatusOK
	serve := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		user, password, _ := r.BasicAuth()
		got = fmt.Sprintf("%s %s %s:%s", r.Method, body, user, password)
		w.WriteHeader(status)
	}
	google, github := newProvider(t, "gmail", serve), newProvider(t, "github", serve)
	for _, tt := range []struct {
		p     *Provider
		token Token
		want  string
	}{
		{google, Token{Access: "a", Refresh: "r"}, "POST token=r :"},
		{google, Token{Access: "a"}, "POST token=a :"},
		{github, Token{Access: "a"}, `DELETE {"access_token":"a"} c1:` + secret},
	} {
		if err := tt.p.Revoke(t.Context(), tt.token); err != nil || got != tt.want {
			t.Errorf("%q, %v; want %q", got, err, tt.want)
		}
	}
	status = http.StatusInternalServerError
	if err := google.Revoke(t.Context(), Token{Access: "a"}); protocol.KindOf(err) != protocol.KindUpstream || err == nil {
		t.Errorf("error %v", err)
	}
}
