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
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc"
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
	maxReturnTo  = 1024           // bytes
)

// A login turns a provider's word into user tokens.
type login struct {
	// Static after construction.
	provider *oidc.Provider
	cfg      LoginConfig
	seal     cipher.AEAD // of the cookie
	now      func() time.Time

	people *signIns // who come back
}

// newLogin returns nil when cfg names no provider.
func newLogin(cfg LoginConfig, stateDir string, now func() time.Time) (*login, error) {
	if cfg.Issuer == "" {
		return nil, nil
	}
	base, err := origin("public URL", cfg.PublicURL)
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
		RedirectURL: base + "/auth/callback", Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("sign-in provider: %w", err)
	}
	return &login{
		provider: provider, cfg: cfg, seal: seal, now: now, people: newSignIns(),
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

// localPath reports whether text is a path on this origin and nothing else: a
// browser takes "//host" and "/\host" for another one, and strips what it
// doesn't print.
func localPath(text string) bool {
	if len(text) > maxReturnTo || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '\\' || c == '#' {
			return false
		}
	}
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "" && u.Host == "" && !strings.HasPrefix(u.Path, "//")
}

// getLoginConfig tells a console whether there is anything to sign in at.
func (s *Server) getLoginConfig(w http.ResponseWriter, _ *http.Request) error {
	answer := struct {
		OIDC bool   `json:"oidc"`
		Name string `json:"name,omitempty"`
		revised
	}{revised: s.stamp()}
	if s.login != nil {
		answer.OIDC, answer.Name = true, s.login.cfg.Name
	}
	return s.write(w, http.StatusOK, answer)
}

// getLogin sends a browser to the provider.
func (s *Server) getLogin(w http.ResponseWriter, r *http.Request) error {
	l := s.login
	if l == nil {
		return protocol.Errorf(protocol.KindNotFound, "no sign-in provider is set up")
	}
	returnTo := r.URL.Query().Get("return_to")
	if returnTo == "" {
		returnTo = "/"
	}
	if !localPath(returnTo) {
		return protocol.Errorf(protocol.KindInvalid, "return_to must be a path")
	}
	a := attempt{
		Attempt:   oidc.Attempt{State: secretText(), Nonce: secretText(), Verifier: oauth2.GenerateVerifier()},
		ReturnTo:  returnTo,
		ExpiresAt: l.now().Add(loginLife).Unix(),
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
	redirect(w, page)
	return nil
}

// secretText returns 256 random bits.
func secretText() string {
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		panic(err) // crypto/rand doesn't fail
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// redirect sends a browser elsewhere without a word about where it was.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// getLoginCallback is where the provider sends a browser back. It goes on to
// the console with a user token in the fragment, which no server sees.
func (s *Server) getLoginCallback(w http.ResponseWriter, r *http.Request) error {
	if s.login == nil {
		return protocol.Errorf(protocol.KindNotFound, "no sign-in provider is set up")
	}
	http.SetCookie(w, s.login.newCookie("", 0))
	to, err := s.finishLogin(r)
	if err == nil {
		redirect(w, to)
		return nil
	}
	if protocol.KindOf(err) == protocol.KindTooMany {
		s.metrics.bounds.WithLabelValues(boundSignIns).Inc()
		retryAfter(w, time.Second)
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return err
	}
	return s.writeLoginPage(w, r, err)
}

// finishLogin returns the console's address for whoever came back. Who comes
// without a code has nothing to spend.
func (s *Server) finishLogin(r *http.Request) (string, error) {
	l, q := s.login, r.URL.Query()
	a, ok := l.open(r)
	switch {
	case !ok || q.Get("state") != a.State:
		return "", refusedLogin("this browser has not begun a sign-in, or another one since")
	case l.now().Unix() >= a.ExpiresAt:
		return "", protocol.Errorf(protocol.KindExpired, "the sign-in took too long: begin again")
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return "", refusedLogin("the provider didn't sign you in")
	}
	ctx, done, err := l.people.redeem(r.Context(), intake.Relayed(r), a, l.now())
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

// writeLoginPage tells a person, rather than a program, why they can't come in.
func (s *Server) writeLoginPage(w http.ResponseWriter, r *http.Request, err error) error {
	e := s.note(r, err)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	w.WriteHeader(e.Kind.Status())
	if err := loginPage.Execute(w, e.Error()); err != nil {
		s.logger.Debug("an answer was not taken", "error", err)
	}
	return nil
}

// postLogout makes the token it comes with worthless.
func (s *Server) postLogout(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.asUser(w, r); err != nil {
		return err
	}
	if err := s.store.People.RemoveToken(r.Context(), bearer(r)); err != nil {
		return err
	}
	return none(w)
}
