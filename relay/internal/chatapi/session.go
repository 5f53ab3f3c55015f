package chatapi

import (
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// SocketPath is the path of the chat socket (seed 002).
const SocketPath = "/ws"

// named returns the caller of a request that exchanges a grant for something else,
// with the session that its body or else the grant names. The grant must allow
// viewing it.
func (a *API) named(w http.ResponseWriter, r *http.Request) (webapp.Caller, error) {
	c, err := a.Desk.Bearer(r)
	if err != nil {
		return webapp.Caller{}, err
	}
	var body struct {
		SessionID protocol.SessionID `json:"session_id"`
	}
	if r.ContentLength != 0 {
		if err := access.ReadJSON(w, r, &body); err != nil {
			return webapp.Caller{}, err
		}
	}
	if body.SessionID != "" {
		c.Session = body.SessionID
	}
	switch {
	case c.Session == "":
		return webapp.Caller{}, webapp.ErrNoSession
	case !protocol.ValidID(c.Session):
		return webapp.Caller{}, protocol.Errorf(protocol.KindInvalid, "session_id must be an id")
	case !c.Grant.Allows(c.Session, "", protocol.CapView):
		return webapp.Caller{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session")
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
		before, _ := a.Desk.Apps.Presented(r) // none: a new one
		value, app, err = a.Desk.Apps.Issue(c.Grant, c.Token, c.Session, before)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	app.SetCookie(w, a.Desk.Origins.Public(r), value, time.Now())
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
		ticket, ends, err = a.Desk.Tickets.IssueTicket(access.Admission{
			Grant: c.Grant, Token: c.Token, Target: access.Target{Kind: access.TargetChat, Session: c.Session},
		})
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]string{
		"ws_url": gateway.SocketURL(a.Desk.Origins.Public(r), SocketPath), "ticket": ticket,
		"expires_at": ends.UTC().Format(time.RFC3339),
	})
}

// authStatus is GET /api/auth/status: there is nothing to set up, as accounts are
// the control plane's. Anybody may ask.
func (a *API) authStatus(w http.ResponseWriter, r *http.Request) {
	_, err := a.Desk.Identify(r)
	known := err == nil && a.Desk.Origins.FromOwnPage(r, true) == nil
	access.WriteJSON(w, http.StatusOK, map[string]bool{"needsSetup": false, "isAuthenticated": known})
}

// authUser is GET /api/auth/user.
func (a *API) authUser(w http.ResponseWriter, r *http.Request) {
	c, err := a.Desk.Authorize(r, protocol.CapView)
	if err != nil {
		a.refuseAPI(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]any{
		"user": map[string]any{"id": c.Grant.Subject, "username": c.Grant.Name},
	})
}

// logOut is POST /api/auth/logout: it ends the cookie and what is open by it here.
// Without a cookie it has nothing to do.
func (a *API) logOut(w http.ResponseWriter, r *http.Request) {
	if err := a.Desk.Origins.FromOwnPage(r, false); err != nil {
		a.refuseAPI(w, err)
		return
	}
	if app, err := a.Desk.Apps.Presented(r); err == nil {
		a.Desk.Apps.LogOut(app)
	}
	access.ClearAppCookie(w, a.Desk.Origins.Public(r))
	access.WriteJSON(w, http.StatusOK, map[string]any{"success": true, "message": "Logged out successfully"})
}

// accountsElsewhere answers login and register.
func (a *API) accountsElsewhere(w http.ResponseWriter, _ *http.Request) {
	a.refuseAPI(w, protocol.Errorf(protocol.KindUnsupported, "accounts are the control plane's: sign in there"))
}
