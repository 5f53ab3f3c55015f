// Package people signs people in, and tells them who they are.
package people

import (
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/oidc"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
)

// People answers for users.
type People struct {
	// Static after construction.
	Store    *store.People
	Sessions Sessions
	Login    *Login // nil: no sign-in provider
	Usage    access.Counter
	Gate     *access.Gate
	Metrics  *metrics.Metrics
	Clock    clock.Clock
	Logger   *slog.Logger
}

// Sessions has the sessions that people can reach.
type Sessions interface {
	Active(ctx context.Context, user protocol.UserID) ([]store.Session, error)
}

// Routes returns the routes that take a user token, or lead to one.
func (p *People) Routes() []web.Route {
	return []web.Route{
		web.Get("/auth/config", p.getLoginConfig),
		web.Get("/auth/login", p.getLogin),
		web.Get("/auth/callback", p.getLoginCallback),
		web.Post("/auth/logout", p.postLogout),
		web.Get("/auth/me", p.getMe),
	}
}

type meAnswer struct {
	User     meUser      `json:"user"`
	Sessions []meSession `json:"sessions"`
}

type meUser struct {
	ID   protocol.UserID `json:"id"`
	Name string          `json:"name"`
}

type meSession struct {
	ID           protocol.SessionID    `json:"id"`
	Dashboard    string                `json:"dashboard"`
	Sandbox      protocol.SandboxID    `json:"sandbox"`
	Capabilities []protocol.Capability `json:"capabilities"`
}

// getMe tells a user who they are and which sessions they can reach.
func (p *People) getMe(w *web.Writer, r *http.Request) error {
	user, err := p.Gate.User(w, r)
	if err != nil {
		return err
	}
	sessions, err := p.Sessions.Active(r.Context(), user.ID)
	if err != nil {
		return err
	}
	answer := meAnswer{User: meUser{user.ID, user.Name}, Sessions: []meSession{}}
	for _, session := range sessions {
		answer.Sessions = append(answer.Sessions, meSession{
			session.ID, session.Dashboard, session.Sandbox, access.Capabilities(session.Role, session.MemberCapabilities),
		})
	}
	return w.JSON(http.StatusOK, answer)
}

// getLoginConfig tells a console whether there is anything to sign in at.
func (p *People) getLoginConfig(w *web.Writer, _ *http.Request) error {
	answer := struct {
		OIDC bool   `json:"oidc"`
		Name string `json:"name,omitempty"`
	}{}
	if p.Login != nil {
		answer.OIDC, answer.Name = true, p.Login.cfg.Name
	}
	return w.JSON(http.StatusOK, answer)
}

// getLogin sends a browser to the provider.
func (p *People) getLogin(w *web.Writer, r *http.Request) error {
	l := p.Login
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
func (p *People) getLoginCallback(w *web.Writer, r *http.Request) error {
	if p.Login == nil {
		return protocol.Errorf(protocol.KindNotFound, "no sign-in provider is set up")
	}
	http.SetCookie(w, p.Login.newCookie("", 0))
	to, err := p.finishLogin(r)
	if err == nil {
		w.Redirect(to)
		return nil
	}
	if protocol.KindOf(err) == protocol.KindTooMany {
		p.Metrics.Bounds.WithLabelValues(metrics.SignIns).Inc()
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
func (p *People) finishLogin(r *http.Request) (string, error) {
	l, q := p.Login, r.URL.Query()
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
	ctx, done, err := l.people.redeem(r.Context(), intake.Relayed(r), a.State, time.Unix(a.ExpiresAt, 0), l.clock.Now())
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
	token, err := p.admit(r.Context(), identity)
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
func (p *People) postLogout(w *web.Writer, r *http.Request) error {
	if _, err := p.Gate.User(w, r); err != nil {
		return err
	}
	if err := p.Store.RemoveToken(r.Context(), web.Bearer(r)); err != nil {
		return err
	}
	return w.None()
}

// admit returns a user token for whom the provider vouches for, if they may
// come in: KindForbidden if not.
func (p *People) admit(ctx context.Context, id oidc.Identity) (token string, err error) {
	user, err := p.userOf(ctx, id)
	if err != nil {
		return "", err
	}
	token = "ut_" + web.Secret()
	if err := p.Store.AddToken(ctx, user.ID, token, "sign-in", p.Clock.Now().Add(tokenLife)); err != nil {
		return "", err
	}
	p.Usage.Count("", user.ID, store.UsageSignIns)
	p.Logger.Info("signed in", "user", user.ID)
	return token, nil
}

// userOf returns the user whom id stands for. The first time that is the user
// who was invited by its address, or a new one where sign-up is allowed; from
// then on only issuer and subject count, whatever address the provider tells.
func (p *People) userOf(ctx context.Context, id oidc.Identity) (store.User, error) {
	user, err := p.Store.UserByIdentity(ctx, id.Issuer, id.Subject)
	if err == nil || protocol.KindOf(err) != protocol.KindNotFound {
		return user, err
	}
	if id.Email != "" {
		user, err = p.Store.InvitedUser(ctx, id.Email)
		if err == nil {
			return p.Store.LinkIdentity(ctx, id.Issuer, id.Subject, user)
		}
		if protocol.KindOf(err) != protocol.KindNotFound {
			return store.User{}, err
		}
	}
	if !p.Login.cfg.allows(id) {
		return store.User{}, protocol.Errorf(protocol.KindForbidden,
			"nobody has invited you here: ask for an invitation to your address")
	}
	user = store.User{ID: protocol.NewUserID(), Name: id.Name, Email: id.Email}
	if user.Name == "" {
		user.Name, _, _ = strings.Cut(id.Email, "@")
	}
	if user.Name == "" {
		user.Name = string(user.ID)
	}
	return p.Store.LinkIdentity(ctx, id.Issuer, id.Subject, user)
}
