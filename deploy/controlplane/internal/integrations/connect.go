package integrations

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/oauth"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	connectCookie = "fairlead_connect"
	connectLife   = 10 * time.Minute // from leaving for the provider to coming back
)

// connect says where a user's browser goes to connect an account. A cookie
// ties what comes back to this browser: else somebody could have another one's
// account connected as their own.
func (s *accounts) connect(w *web.Writer, r *http.Request) error {
	user, err := s.people.User(w, r)
	if err != nil {
		return err
	}
	p, err := s.providers.find(r.PathValue("provider"))
	if err != nil {
		return err
	}
	var req struct {
		ReturnTo string `json:"return_to"` // a path; empty: a page that says how it went
	}
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	if req.ReturnTo != "" && !web.LocalPath(req.ReturnTo) {
		return protocol.Errorf(protocol.KindInvalid, "return_to must be a path")
	}
	origin, err := s.comeBackTo(r)
	if err != nil {
		return err
	}
	c := store.Connect{
		User: user.ID, Provider: p.Name, Origin: origin, ReturnTo: req.ReturnTo, ExpiresAt: s.clock.Now().Add(connectLife),
		State: web.Secret(), Browser: browserOf(r),
	}
	if c.Browser == "" {
		c.Browser = web.Secret()
	}
	if err := s.store.AddConnect(r.Context(), c); err != nil {
		return err
	}
	http.SetCookie(w, &http.Cookie{
		Name: connectCookie, Value: c.Browser, Path: "/integrations", MaxAge: int(connectLife / time.Second),
		HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: strings.HasPrefix(origin, "https:"),
	})
	return w.JSON(http.StatusOK, struct {
		URL string `json:"url"`
	}{p.AuthURL(origin, c.State, s.verifier(c.State))})
}

// comeBackTo returns the origin at which r's browser finds us again: the public
// one, or that of a registered relay, the browser's own if that is one of them.
// Only such an origin is ever named to a provider.
func (s *accounts) comeBackTo(r *http.Request) (string, error) {
	if s.publicURL != "" {
		return s.publicURL, nil
	}
	all, err := s.relays.Registered(r.Context())
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", protocol.Errorf(protocol.KindUnavailable, "no relay is connected to which the provider could send you back")
	}
	own := func(relay store.Relay) bool { return relay.PublicOrigin == r.Header.Get("Origin") }
	if i := slices.IndexFunc(all, own); i >= 0 {
		return all[i].PublicOrigin, nil
	}
	return all[0].PublicOrigin, nil
}

// browserOf returns what the browser keeps of an account that it is connecting,
// so that several may be on their way at a time.
func browserOf(r *http.Request) string {
	c, err := r.Cookie(connectCookie)
	if err != nil {
		return ""
	}
	if b, err := base64.RawURLEncoding.DecodeString(c.Value); err != nil || len(b) != 32 {
		return ""
	}
	return c.Value
}

// verifier returns the secret of PKCE that belongs to a state: nobody else can
// make it, and nothing has to be kept.
func (s *accounts) verifier(state string) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte("pkce " + state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// callback is where a provider sends a browser back.
func (s *accounts) callback(w *web.Writer, r *http.Request) error {
	account, c, err := s.finishConnect(r)
	if err == nil && c.ReturnTo != "" {
		w.Redirect(c.Origin + c.ReturnTo)
		return nil
	}
	if err != nil && !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return err
	}
	return s.writeConnectPage(w, r, account, err)
}

// finishConnect keeps the account of whoever came back.
func (s *accounts) finishConnect(r *http.Request) (account store.Account, c store.Connect, err error) {
	p, err := s.providers.find(r.PathValue("provider"))
	if err != nil {
		return account, c, err
	}
	q := r.URL.Query()
	c, err = s.store.TakeConnect(r.Context(), q.Get("state"), browserOf(r))
	if err != nil {
		return account, c, err
	}
	if c.Provider != p.Name {
		return account, c, protocol.Errorf(protocol.KindUnauthenticated, "an account of another provider is being connected")
	}
	if q.Get("error") != "" || q.Get("code") == "" {
		return account, c, protocol.Errorf(protocol.KindForbidden, "%s was not allowed to connect the account", p.Name)
	}
	select {
	case s.redeeming <- struct{}{}:
		defer func() { <-s.redeeming }()
	default:
		return account, c, protocol.Errorf(protocol.KindTooMany, "too many accounts are being connected at this moment")
	}
	// A code is good for once: what it bought is kept whoever waits.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), upstreamTimeout)
	defer cancel()
	token, err := p.Exchange(ctx, c.Origin, q.Get("code"), s.verifier(c.State))
	if err != nil {
		return account, c, err
	}
	account, err = s.addAccount(ctx, p, c.User, token)
	return account, c, err
}

// addAccount keeps an account with its tokens. One that the user has connected
// before gets them in place of the old ones, and stays attached.
func (s *accounts) addAccount(ctx context.Context, p *oauth.Provider, user protocol.UserID, token oauth.Token) (store.Account, error) {
	name, err := s.accountName(ctx, p, token)
	if err != nil {
		return store.Account{}, err
	}
	a, err := s.store.FindAccount(ctx, user, p.Name, name)
	if err != nil && protocol.KindOf(err) != protocol.KindNotFound {
		return store.Account{}, err
	}
	if err != nil {
		a = store.Account{ID: store.NewAccountID(), User: user, Provider: p.Name, Name: name}
	} else if token.Refresh == "" { // a provider may give that the first time only
		if old, err := s.tokens.open(a); err == nil {
			token.Refresh = old.Refresh
		}
	}
	a.Scopes = string(mask([]byte(token.Scopes), secretsOf(token)))
	if a.KeyID, a.Sealed, err = s.tokens.seal(a, token); err != nil {
		return store.Account{}, err
	}
	if a, err = s.store.PutAccount(ctx, a); err != nil {
		return store.Account{}, err
	}
	s.logger.Info("account connected", "account", a.ID, "provider", p.Name, "user", user)
	return a, nil
}

// accountName asks the provider whose account a token is.
func (s *accounts) accountName(ctx context.Context, p *oauth.Provider, token oauth.Token) (string, error) {
	bearer, err := s.tokens.bearer(p, "", token)
	if err != nil {
		return "", err
	}
	name, err := provider.Account(ctx, p.Name, &http.Client{Transport: bearer, Timeout: upstreamTimeout}, p.APIURL)
	if err != nil {
		return "", upstreamError(err, bearer.secrets())
	}
	if strings.Contains(string(mask([]byte(name), bearer.secrets())), masked) {
		return "", protocol.Errorf(protocol.KindUpstream, "%s did not tell whose account it is", p.Name)
	}
	return name, nil
}

var connectPage = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<h1>{{.Title}}</h1>
<p>{{.Text}}</p>
<p><a href="/">Back to the console</a></p>
</html>
`))

// writeConnectPage tells a person how it went.
func (s *accounts) writeConnectPage(w *web.Writer, r *http.Request, a store.Account, err error) error {
	page := struct{ Title, Text string }{"Account connected", a.Provider + ": " + a.Name}
	status := http.StatusOK
	if err != nil {
		e := w.Note(r, err)
		status, page.Title, page.Text = e.Kind.Status(), "Account not connected", e.Error()
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	return w.Page(status, connectPage, page)
}
