package chatapi

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
)

// SocketPath is the path of the chat socket (seed 002).
const SocketPath = "/ws"

// named returns the caller of a request that exchanges a grant for something else,
// with the session that its body or else the grant names. The grant must allow
// viewing it.
func (a *API) named(w http.ResponseWriter, r *http.Request) (caller, error) {
	c, err := a.bearer(r)
	if err != nil {
		return caller{}, err
	}
	var body struct {
		SessionID protocol.SessionID `json:"session_id"`
	}
	if r.ContentLength != 0 {
		if err := access.ReadJSON(w, r, &body); err != nil {
			return caller{}, err
		}
	}
	if body.SessionID != "" {
		c.session = body.SessionID
	}
	switch {
	case c.session == "":
		return caller{}, errNoSession
	case !protocol.ValidID(c.session):
		return caller{}, protocol.Errorf(protocol.KindInvalid, "session_id must be an id")
	case !c.grant.Allows(c.session, "", protocol.CapView):
		return caller{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session")
	}
	return c, nil
}

// openApp is POST /app-session: it exchanges a grant for the cookie of the web
// client. Beside a good cookie of the same user and session it renews that.
func (a *API) openApp(w http.ResponseWriter, r *http.Request) {
	c, err := a.named(w, r)
	var value string
	var app access.AppSession
	if err == nil {
		before, _ := a.Apps.Presented(r) // none: a new one
		value, app, err = a.Apps.Issue(c.grant, c.token, c.session, before)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	app.SetCookie(w, a.Origins.Public(r), value, time.Now())
	access.WriteJSON(w, http.StatusOK, map[string]any{
		"session_id": app.Session, "expires_at": app.Expires().UTC().Format(time.RFC3339),
	})
}

// issueTicket is POST /chat-session: it exchanges a grant for a ticket, which
// opens one chat socket.
func (a *API) issueTicket(w http.ResponseWriter, r *http.Request) {
	c, err := a.named(w, r)
	var ticket string
	var ends time.Time
	if err == nil {
		ticket, ends, err = a.Tickets.IssueTicket(access.Admission{
			Grant: c.grant, Token: c.token, Target: access.Target{Kind: access.TargetChat, Session: c.session},
		})
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]string{
		"ws_url": gateway.SocketURL(a.Origins.Public(r), SocketPath), "ticket": ticket,
		"expires_at": ends.UTC().Format(time.RFC3339),
	})
}

// authStatus is GET /api/auth/status: there is nothing to set up, as accounts are
// the control plane's. Anybody may ask.
func (a *API) authStatus(w http.ResponseWriter, r *http.Request) {
	_, err := a.identify(r)
	known := err == nil && a.Origins.FromOwnPage(r, true) == nil
	access.WriteJSON(w, http.StatusOK, map[string]bool{"needsSetup": false, "isAuthenticated": known})
}

// authUser is GET /api/auth/user.
func (a *API) authUser(w http.ResponseWriter, r *http.Request) {
	c, err := a.authorize(r, protocol.CapView)
	if err != nil {
		a.refuseAPI(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]any{
		"user": map[string]any{"id": c.grant.Subject, "username": c.grant.Name},
	})
}

// logOut is POST /api/auth/logout: it ends the cookie and what is open by it here.
// Without a cookie it has nothing to do.
func (a *API) logOut(w http.ResponseWriter, r *http.Request) {
	if err := a.Origins.FromOwnPage(r, false); err != nil {
		a.refuseAPI(w, err)
		return
	}
	if app, err := a.Apps.Presented(r); err == nil {
		a.Apps.LogOut(app)
	}
	access.ClearAppCookie(w, a.Origins.Public(r))
	access.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "message": "Logged out successfully"})
}

// accountsElsewhere answers login and register.
func (a *API) accountsElsewhere(w http.ResponseWriter, _ *http.Request) {
	a.refuseAPI(w, protocol.Errorf(protocol.KindUnsupported, "accounts are the control plane's: sign in there"))
}
