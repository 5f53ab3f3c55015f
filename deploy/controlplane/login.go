package controlplane

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
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

// A login turns a provider's word into user tokens.
type login struct {
	// Static after construction.
	provider *oidc.Provider
	cfg      LoginConfig
	seal     cipher.AEAD // of the cookie
	clock    clock.Clock

	people *signIns // who come back
}

// newLogin returns nil when cfg names no provider.
func newLogin(cfg LoginConfig, stateDir string, clk clock.Clock) (*login, error) {
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
	return &login{
		provider: provider, cfg: cfg, seal: seal, clock: clk, people: newSignIns(),
	}, nil
}

// openLoginKey returns what seals cookies, and makes the key at first: it is in
// a file so that a sign-in survives a restart, and ends at another process.
func openLoginKey(path string) (cipher.AEAD, error) {
	key, err := readPrivate(path, 32)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		err = program.ReplaceFile(path, key, privateMode)
	}
	if err != nil {
		return nil, fmt.Errorf("login key: %w", err)
	}
	if len(key) != 32 {
		return nil, fmt.Errorf("login key %s: %d bytes, want 32", path, len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (l *login) close() {
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
func (l *login) cookie(a attempt) (*http.Cookie, error) {
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
func (l *login) newCookie(value string, life time.Duration) *http.Cookie {
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
func (l *login) open(r *http.Request) (attempt, bool) {
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

func refusedLogin(text string) error {
	return protocol.Errorf(protocol.KindUnauthenticated, "%s", text)
}

// getLoginConfig tells a console whether there is anything to sign in at.
func (s *Server) getLoginConfig(w *web.Writer, _ *http.Request) error {
	answer := struct {
		OIDC bool   `json:"oidc"`
		Name string `json:"name,omitempty"`
	}{}
	if s.login != nil {
		answer.OIDC, answer.Name = true, s.login.cfg.Name
	}
	return w.JSON(http.StatusOK, answer)
}

// getLogin sends a browser to the provider.
func (s *Server) getLogin(w *web.Writer, r *http.Request) error {
	l := s.login
	if l == nil {
		return protocol.Errorf(protocol.KindNotFound, "no sign-in provider is set up")
	}
	returnTo := r.URL.Query().Get("return_to")
	if returnTo == "" {
		returnTo = "/"
	}
	if !web.LocalPath(returnTo) {
		return protocol.Errorf(protocol.KindInvalid, "return_to must be a path")
	}
	a := attempt{
		Attempt:   oidc.Attempt{State: web.Secret(), Nonce: web.Secret(), Verifier: oauth2.GenerateVerifier()},
		ReturnTo:  returnTo,
		ExpiresAt: l.clock.Now().Add(loginLife).Unix(),
	}
	page, err := l.provider.Start(r.Context(), a.Attempt)
	if err != nil {
		return err
	}
	cookie, err := l.cookie(a)
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie)
	w.Redirect(page)
	return nil
}

// getLoginCallback is where the provider sends a browser back. It goes on to
// the console with a user token in the fragment, which no server sees.
func (s *Server) getLoginCallback(w *web.Writer, r *http.Request) error {
	if s.login == nil {
		return protocol.Errorf(protocol.KindNotFound, "no sign-in provider is set up")
	}
	http.SetCookie(w, s.login.newCookie("", 0))
	to, err := s.finishLogin(r)
	if err == nil {
		w.Redirect(to)
		return nil
	}
	if protocol.KindOf(err) == protocol.KindTooMany {
		s.metrics.Bounds.WithLabelValues(metrics.SignIns).Inc()
		w.RetryAfter(time.Second)
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return err
	}
	e := w.Note(r, err)
	return w.Page(e.Kind.Status(), loginPage, e.Error())
}

// finishLogin returns the console's address for whoever came back. Who comes
// without a code has nothing to spend.
func (s *Server) finishLogin(r *http.Request) (string, error) {
	l, q := s.login, r.URL.Query()
	a, ok := l.open(r)
	switch {
	case !ok || q.Get("state") != a.State:
		return "", refusedLogin("this browser has not begun a sign-in, or another one since")
	case l.clock.Now().Unix() >= a.ExpiresAt:
		return "", protocol.Errorf(protocol.KindExpired, "the sign-in took too long: begin again")
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return "", refusedLogin("the provider didn't sign you in")
	}
	ctx, done, err := l.people.redeem(r.Context(), intake.Relayed(r), a, l.clock.Now())
	if err != nil {
		return "", err
	}
	defer done()
	identity, err := l.provider.Finish(ctx, a.Attempt, q.Get("code"))
	if ctx.Err() != nil && r.Context().Err() == nil {
		return "", protocol.Errorf(protocol.KindTooMany, "too many people sign in from this address at the moment")
	}
	if err != nil {
		return "", err
	}
	token, err := s.admit(r.Context(), identity)
	if err != nil {
		return "", err
	}
	return l.cfg.PublicURL + a.ReturnTo + "#token=" + token, nil
}

var loginPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Not signed in</title>
<h1>Not signed in</h1>
<p>{{.}}</p>
<p><a href="/auth/login">Try again</a> or <a href="/">go back</a></p>
</html>
`))

// postLogout makes the token it comes with worthless.
func (s *Server) postLogout(w *web.Writer, r *http.Request) error {
	if _, err := s.gate.User(w, r); err != nil {
		return err
	}
	if err := s.store.People.RemoveToken(r.Context(), web.Bearer(r)); err != nil {
		return err
	}
	return w.None()
}
