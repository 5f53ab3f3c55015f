package oidc_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc/oidctest"
	"github.com/fairlead/fairlead/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	now     = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	attempt = oidc.Attempt{State: "state-1", Nonce: "nonce-1", Verifier: strings.Repeat("v", 43)}
	ada     = map[string]any{"sub": "ada-1", "name": "Ada", "email": "Ada@Example.test", "email_verified": true}
)

const redirect = "http://127.0.0.1:8080/auth/callback"

func newProvider(t *testing.T, issuer string) *oidc.Provider {
	t.Helper()
	p, err := oidc.New(oidc.Config{
		Issuer: issuer, ClientID: oidctest.ClientID, ClientSecret: oidctest.ClientSecret,
		RedirectURL: redirect, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// code goes through the provider's page and returns what it sends back.
func code(t *testing.T, p *oidc.Provider, a oidc.Attempt) string {
	t.Helper()
	page, err := p.Start(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	back, err := url.Parse(res.Header.Get("Location"))
	if err != nil || !strings.HasPrefix(back.String(), redirect) || back.Query().Get("state") != a.State {
		t.Fatalf("sent back to %q, %v", back, err)
	}
	return back.Query().Get("code")
}

func TestSignIn(t *testing.T) {
	server := oidctest.New(t, func() time.Time { return now })
	server.SignIn(ada)
	p := newProvider(t, server.Issuer())
	got, err := p.Finish(t.Context(), attempt, code(t, p, attempt))
	want := oidc.Identity{Issuer: server.Issuer(), Subject: "ada-1", Name: "Ada", Email: "ada@example.test"}
	if err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestEmail: an address counts only if the provider has verified it.
func TestEmail(t *testing.T) {
	server := oidctest.New(t, func() time.Time { return now })
	p := newProvider(t, server.Issuer())
	for _, tt := range []struct {
		email, verified any
		want            string
	}{
		{"a@b.test", true, "a@b.test"},
		{"a@b.test", "true", "a@b.test"},
		{"a@b.test", false, ""},
		{"a@b.test", "false", ""},
		{"a@b.test", 1, ""},
		{"a@b.test", nil, ""},
		{nil, true, ""},
		{"a@b@c.test", true, ""},
		{"a b@c.test", true, ""},
		{"аda@example.test", true, ""}, // begins with a Cyrillic letter
		{"@c.test", true, ""},
	} {
		server.SignIn(map[string]any{"sub": "s", "email": tt.email, "email_verified": tt.verified})
		got, err := p.Finish(t.Context(), attempt, code(t, p, attempt))
		if err != nil || got.Email != tt.want {
			t.Errorf("%v verified %v: %q, %v; want %q", tt.email, tt.verified, got.Email, err, tt.want)
		}
	}
	server.SignIn(map[string]any{"sub": "s", "name": " Ada\n\u202eecalevoL\x1b[31m"})
	if got, err := p.Finish(t.Context(), attempt, code(t, p, attempt)); err != nil || got.Name != "AdaecalevoL[31m" {
		t.Errorf("name %q, %v", got.Name, err)
	}
}

// TestRefused spoils one thing about a sign-in after the other.
func TestRefused(t *testing.T) {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	with := func(name string, value any) oidctest.Wrong {
		return oidctest.Wrong{Claims: map[string]any{name: value}}
	}
	for _, tt := range []struct {
		name  string
		wrong oidctest.Wrong
	}{
		{"another nonce", with("nonce", "nonce-2")},
		{"no nonce", with("nonce", nil)},
		{"expired", with("exp", now.Add(-time.Second).Unix())},
		{"not valid yet", with("nbf", now.Add(time.Hour).Unix())},
		{"another audience", with("aud", "somebody")},
		{"several audiences", with("aud", []string{oidctest.ClientID, "somebody"})},
		{"another party", with("azp", "somebody")},
		{"another issuer", with("iss", "https://other.test")},
		{"nobody", with("sub", nil)},
		{"long subject", with("sub", strings.Repeat("s", 300))},
		{"another access token", with("at_hash", "AAAA")},
		{"alg none", oidctest.Wrong{Algorithm: "none"}},
		{"alg HS256", oidctest.Wrong{Algorithm: "HS256"}},
		{"alg RS256", oidctest.Wrong{Algorithm: "RS256"}},
		{"another key", oidctest.Wrong{Key: other}},
		{"no id token", oidctest.Wrong{NoToken: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := oidctest.New(t, func() time.Time { return now })
			server.SignIn(ada)
			server.Spoil(tt.wrong)
			p := newProvider(t, server.Issuer())
			if got, err := p.Finish(t.Context(), attempt, code(t, p, attempt)); protocol.KindOf(err) != protocol.KindUnauthenticated {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestFound08SharedKid: the provider has two keys of one kid. Neither is known to
// be the one that the token names.
func TestFound08SharedKid(t *testing.T) {
	server := oidctest.New(t, func() time.Time { return now })
	server.SignIn(ada)
	server.Spoil(oidctest.Wrong{SharedKid: true})
	p := newProvider(t, server.Issuer())
	if got, err := p.Finish(t.Context(), attempt, code(t, p, attempt)); protocol.KindOf(err) != protocol.KindUnauthenticated {
		t.Errorf("%+v, %v", got, err)
	}
	server.SignIn(ada) // the provider has mended its set
	_, err := p.Finish(t.Context(), attempt, code(t, p, attempt))
	for tries := 0; err != nil && tries < 10; tries++ { // who comes at once may be given the set that was just fetched
		_, err = p.Finish(t.Context(), attempt, code(t, p, attempt))
	}
	if err != nil {
		t.Error(err)
	}
}

func TestCode(t *testing.T) {
	server := oidctest.New(t, func() time.Time { return now })
	server.SignIn(ada)
	p := newProvider(t, server.Issuer())
	spent := code(t, p, attempt)
	if _, err := p.Finish(t.Context(), attempt, spent); err != nil {
		t.Fatal(err)
	}
	stranger := attempt
	stranger.Verifier = strings.Repeat("w", 43)
	for name, try := range map[string]func() (oidc.Identity, error){
		"spent":            func() (oidc.Identity, error) { return p.Finish(t.Context(), attempt, spent) },
		"made up":          func() (oidc.Identity, error) { return p.Finish(t.Context(), attempt, "x") },
		"another verifier": func() (oidc.Identity, error) { return p.Finish(t.Context(), stranger, code(t, p, attempt)) },
	} {
		if _, err := try(); protocol.KindOf(err) != protocol.KindUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAway: a provider that can't be reached is an upstream failure, and found
// when it is there again.
func TestAway(t *testing.T) {
	server := oidctest.New(t, func() time.Time { return now })
	server.Close()
	p := newProvider(t, server.Issuer())
	for range 2 {
		if _, err := p.Start(t.Context(), attempt); protocol.KindOf(err) != protocol.KindUpstream {
			t.Errorf("%v", err)
		}
	}
	if _, err := p.Finish(t.Context(), attempt, "x"); protocol.KindOf(err) != protocol.KindUpstream {
		t.Errorf("%v", err)
	}
}

func TestConfig(t *testing.T) {
	for _, issuer := range []string{"", "x", "http://provider.test", "https://u@provider.test", "https://provider.test?x=1", "ftp://127.0.0.1"} {
		if _, err := oidc.New(oidc.Config{Issuer: issuer, ClientID: "c"}); err == nil {
			t.Errorf("issuer %q is taken", issuer)
		}
	}
	if _, err := oidc.New(oidc.Config{Issuer: "https://provider.test"}); err == nil {
		t.Error("no client id is taken")
	}
}
