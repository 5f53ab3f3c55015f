package people

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
)

// A LoginConfig lets people sign in at an OpenID Connect provider.
type LoginConfig struct {
	Issuer       string // URL; empty: nobody can
	ClientID     string
	ClientSecret string
	Name         string // what people read on the button
	PublicURL    string // the origin at which browsers find us, through a relay

	// Who may come without an invitation; at most one of these.
	AllowSignUp    bool     // everybody whom the provider knows
	AllowedDomains []string // whoever has a verified address in one of them
}

const (
	loginCookie  = "fairlead_login"
	loginLife    = 10 * time.Minute // of one attempt
	loginKeyFile = "login.key"
	tokenLife    = 12 * time.Hour // of a user token that a sign-in gives
)

// A Login turns a provider's word into user tokens.
type Login struct {
	// Static after construction.
	provider *oidc.Provider
	cfg      LoginConfig
	seal     cipher.AEAD // of the cookie
	clock    clock.Clock

	people *signIns // who come back
}

// NewLogin returns nil when cfg names no provider.
func NewLogin(cfg LoginConfig, stateDir string, clk clock.Clock) (*Login, error) {
	if cfg.Issuer == "" {
		return nil, nil
	}
	base, err := web.Origin("public URL", cfg.PublicURL)
	if err != nil {
		return nil, err
	}
	cfg.PublicURL = base
	if cfg.Name == "" {
		cfg.Name = "Single sign-on"
	}
	if cfg.AllowSignUp && len(cfg.AllowedDomains) > 0 {
		return nil, errors.New("sign-up for everybody and for some domains only: choose one")
	}
	for i, domain := range cfg.AllowedDomains {
		cfg.AllowedDomains[i] = strings.ToLower(domain)
		if !oidc.ValidEmail("a@" + cfg.AllowedDomains[i]) {
			return nil, fmt.Errorf("allowed domain %q is not a domain", domain)
		}
	}
	seal, err := openLoginKey(filepath.Join(stateDir, loginKeyFile))
	if err != nil {
		return nil, err
	}
	provider, err := oidc.New(oidc.Config{
		Issuer: cfg.Issuer, ClientID: cfg.ClientID, ClientSecret: cfg.ClientSecret,
		RedirectURL: base + "/auth/callback", Now: clk.Now,
	})
	if err != nil {
		return nil, fmt.Errorf("sign-in provider: %w", err)
	}
	return &Login{
		provider: provider, cfg: cfg, seal: seal, clock: clk, people: newSignIns(),
	}, nil
}

// openLoginKey returns what seals cookies, and makes the key at first: it is in
// a file so that a sign-in survives a restart, and ends at another process.
func openLoginKey(path string) (cipher.AEAD, error) {
	key, err := private.Key(path, 32)
	if err != nil {
		return nil, fmt.Errorf("login key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Close closes idle connections to the provider.
func (l *Login) Close() {
	if l != nil {
		l.provider.Close()
	}
}

// An attempt is what the cookie of a sign-in under way holds, sealed.
type attempt struct {
	oidc.Attempt
	ReturnTo  string
	ExpiresAt int64 // Unix seconds
}

// cookie seals a.
func (l *Login) cookie(a attempt) (*http.Cookie, error) {
	data, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, l.seal.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	sealed := l.seal.Seal(nonce, nonce, data, []byte(loginCookie))
	return l.newCookie(base64.RawURLEncoding.EncodeToString(sealed), loginLife), nil
}

// newCookie returns a cookie that comes back with the browser from another
// site, but only to us. A life of zero deletes it.
func (l *Login) newCookie(value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{
		Name: loginCookie, Value: value, Path: "/auth", MaxAge: int(life / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(l.cfg.PublicURL, "https:"),
	}
	if life == 0 {
		c.MaxAge = -1
	}
	return c
}

// open returns the attempt in r's cookie.
func (l *Login) open(r *http.Request) (attempt, bool) {
	var a attempt
	c, err := r.Cookie(loginCookie)
	if err != nil {
		return a, false
	}
	sealed, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(sealed) < l.seal.NonceSize() {
		return a, false
	}
	n := l.seal.NonceSize()
	data, err := l.seal.Open(nil, sealed[:n], sealed[n:], []byte(loginCookie))
	if err != nil || json.Unmarshal(data, &a) != nil {
		return a, false
	}
	return a, true
}

// allows reports whether id may come without an invitation.
func (cfg *LoginConfig) allows(id oidc.Identity) bool {
	_, domain, _ := strings.Cut(id.Email, "@")
	return cfg.AllowSignUp || domain != "" && slices.Contains(cfg.AllowedDomains, domain)
}
