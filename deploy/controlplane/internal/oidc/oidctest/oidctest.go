// Package oidctest is a small OpenID Connect provider for tests: discovery,
// keys and the code flow with PKCE, and tokens that are wrong on request.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// The client that every Provider knows.
const (
	ClientID     = "fairlead"
	ClientSecret = "secret-of-the-client"
)

// A Provider signs in whoever comes, as Person.
type Provider struct {
	// Static after construction.
	t      testing.TB
	server *httptest.Server
	key    *ecdsa.PrivateKey
	now    func() time.Time

	// Guarded by mu.
	mu     sync.Mutex
	person map[string]any
	wrong  Wrong
	codes  map[string]asked
}

// asked is what a code was given out for.
type asked struct {
	redirect, nonce, challenge string
}

// A Wrong is what is wrong with the next tokens; its zero value: nothing.
type Wrong struct {
	Claims    map[string]any // replace those of the token; nil removes one
	Algorithm string         // "none": no signature
	Key       *ecdsa.PrivateKey
	NoToken   bool
	SharedKid bool // the key set has another key of the same kid
}

// New starts a provider, which ends with the test.
func New(t testing.TB, now func() time.Time) *Provider {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provider{t: t, key: key, now: now, codes: make(map[string]asked)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.discovery)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.server = httptest.NewServer(mux)
	t.Cleanup(p.server.Close)
	return p
}

// Issuer returns the provider's URL.
func (p *Provider) Issuer() string { return p.server.URL }

// Close stops the provider before the test's end.
func (p *Provider) Close() { p.server.Close() }

// SignIn sets who comes next, by their claims.
func (p *Provider) SignIn(person map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person, p.wrong = person, Wrong{}
}

// Spoil sets what is wrong from now on.
func (p *Provider) Spoil(w Wrong) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = w
}

func (p *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	p.write(w, http.StatusOK, map[string]any{
		"issuer":                                p.Issuer(),
		"authorization_endpoint":                p.Issuer() + "/authorize",
		"token_endpoint":                        p.Issuer() + "/token",
		"jwks_uri":                              p.Issuer() + "/keys",
		"response_types_supported":              []string{"code"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256", "HS256", "none"},
	})
}

func (p *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	point, err := p.key.PublicKey.Bytes()
	if err != nil {
		p.t.Error(err)
	}
	key := map[string]any{
		"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "k1",
		"x": encode(point[1:33]), "y": encode(point[33:]),
	}
	keys := []any{key}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong.SharedKid {
		keys = append(keys, map[string]any{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "k1", "n": key["x"], "e": "AQAB"})
	}
	p.write(w, http.StatusOK, map[string]any{"keys": keys})
}

// authorize sends the browser back with a code, as if Person had agreed.
func (p *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	switch {
	case err != nil || q.Get("response_type") != "code", q.Get("client_id") != ClientID,
		!strings.Contains(" "+q.Get("scope")+" ", " openid "), q.Get("state") == "", q.Get("nonce") == "",
		q.Get("code_challenge_method") != "S256", q.Get("code_challenge") == "":
		p.t.Errorf("authorize: %v, %v", q, err)
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	code := rand.Text()
	p.mu.Lock()
	p.codes[code] = asked{q.Get("redirect_uri"), q.Get("nonce"), q.Get("code_challenge")}
	p.mu.Unlock()
	back.RawQuery = url.Values{"code": {code}, "state": {q.Get("state")}}.Encode()
	http.Redirect(w, r, back.String(), http.StatusFound)
}

// token redeems a code once, for whoever knows the client's secret and the
// verifier of the code's challenge.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	if id == "" {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	code, known := p.codes[r.PostFormValue("code")]
	delete(p.codes, r.PostFormValue("code"))
	digest := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	switch {
	case id != ClientID || secret != ClientSecret:
		p.write(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
	case !known, r.PostFormValue("grant_type") != "authorization_code",
		r.PostFormValue("redirect_uri") != code.redirect, encode(digest[:]) != code.challenge:
		p.write(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
	default:
		answer := map[string]any{"access_token": "at_" + rand.Text(), "token_type": "Bearer", "expires_in": 300}
		if !p.wrong.NoToken {
			answer["id_token"] = p.sign(code.nonce)
		}
		p.write(w, http.StatusOK, answer)
	}
}

// sign makes the id token of the person, called with mu held.
func (p *Provider) sign(nonce string) string {
	claims := map[string]any{
		"iss": p.Issuer(), "aud": ClientID, "nonce": nonce,
		"iat": p.now().Unix(), "exp": p.now().Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, p.person)
	maps.Copy(claims, p.wrong.Claims)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	header := map[string]any{"alg": "ES256", "kid": "k1"}
	if p.wrong.Algorithm != "" {
		header["alg"] = p.wrong.Algorithm
	}
	signed := p.part(header) + "." + p.part(claims)
	if p.wrong.Algorithm == "none" {
		return signed + "."
	}
	key := p.key
	if p.wrong.Key != nil {
		key = p.wrong.Key
	}
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		p.t.Error(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature)
}

func (p *Provider) part(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		p.t.Error(err)
	}
	return encode(data)
}

func (p *Provider) write(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }
