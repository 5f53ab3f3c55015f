package panelapi

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// Mint is POST /pty-session without a body: it exchanges a grant for a cookie and a
// token, either of which opens one socket to a new terminal.
func (a *API) Mint(w http.ResponseWriter, r *http.Request) {
	grant, bearer, err := a.authorize(r)
	if err != nil {
		a.refuse(w, err)
		return
	}
	a.give(w, r, under{grant, bearer}, protocol.NewPTYID(), false, nil)
}

// give answers with a pass to a terminal, and with more.
func (a *API) give(w http.ResponseWriter, r *http.Request, by under, pty protocol.PTYID, again bool, more map[string]any) {
	if _, err := a.Tunnels.Session(by.grant.Sandbox); err != nil {
		a.refuse(w, protocol.Errorf(protocol.KindUnavailable, "terminal-agent not ready"))
		return
	}
	origin, _ := a.Origins.Extension(r)
	out, gaveWay, err := a.passes.issue(pass{
		grant: by.grant, bearer: strings.Clone(by.bearer), origin: strings.Clone(origin), pty: pty, again: again,
	})
	if gaveWay {
		a.Metrics.PassesDropped.Inc()
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	public := a.Origins.Public(r)
	cookie := http.Cookie{
		Name: access.PanelCookieName, Value: out.cookie, Path: "/", MaxAge: max(1, int(time.Until(out.cookieEnds)/time.Second)),
		HttpOnly: true, Secure: strings.HasPrefix(public, "https:"), SameSite: http.SameSiteStrictMode,
	}
	http.SetCookie(w, &cookie)
	cookie.Name, cookie.Secure, cookie.SameSite = access.PanelSocketCookieName, true, http.SameSiteNoneMode
	http.SetCookie(w, &cookie)
	body := map[string]any{
		"terminalPort": portOf(public), "expiresAt": out.cookieEnds.UnixMilli(), "sessionId": pty,
		"attachToken": out.token, "ptySessionToken": out.token, "leaseExpiresAt": by.grant.Expires().UnixMilli(),
	}
	for name, v := range more {
		body[name] = v
	}
	answer(w, http.StatusOK, body)
}

// portOf returns the port of an origin.
func portOf(origin string) int {
	u, err := url.Parse(origin)
	if err != nil {
		return 0
	}
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// A named is a body that names a terminal, as the panel's session.
type named struct {
	SessionID protocol.PTYID `json:"sessionId"`
	AuthToken string         `json:"authToken"` // of a beacon, which can't send headers
}

// read reads a body whatever its type says it is: panels send JSON as text.
func read(w http.ResponseWriter, r *http.Request) (n named, err error) {
	body, err := access.ReadBody(w, r, maxNamed)
	if err != nil {
		return n, err
	}
	if len(body) > 0 && protocol.UnmarshalObject(body, &n) != nil || n.SessionID != "" && !protocol.ValidID(n.SessionID) {
		return n, protocol.Errorf(protocol.KindInvalid, "the body must be a JSON object with a sessionId")
	}
	return n, nil
}

// maxNamed bounds such a body, in bytes: a grant may be in it.
const maxNamed = 2 * protocol.MaxTokenBytes

// reattach is POST /pty-session/reattach {sessionId}: a pass to a terminal that the
// panel has left. 410 if it is gone.
func (a *API) reattach(w http.ResponseWriter, r *http.Request) {
	grant, bearer, err := a.authorize(r)
	var n named
	if err == nil {
		n, err = read(w, r)
	}
	if err == nil && n.SessionID == "" {
		err = protocol.Errorf(protocol.KindInvalid, "sessionId is missing")
	}
	if err == nil {
		err = may(grant, n.SessionID)
	}
	if err == nil {
		err = a.thereFor(r.Context(), under{grant, bearer}, n.SessionID)
		if protocol.KindOf(err) == protocol.KindNotFound && err != nil {
			answer(w, http.StatusGone, map[string]any{"error": "the session is gone"})
			return
		}
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	a.give(w, r, under{grant, bearer}, n.SessionID, true, nil)
}

// restart is POST /pty-restart {sessionId?}: it ends the panel's terminal, or all
// that this person's panels have open here, and gives a pass to a new one.
func (a *API) restart(w http.ResponseWriter, r *http.Request) {
	grant, bearer, err := a.authorize(r)
	var n named
	if err == nil {
		n, err = read(w, r)
	}
	if err == nil {
		err = may(grant, n.SessionID)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	killed := a.end(r, under{grant, bearer}, n.SessionID, true)
	a.give(w, r, under{grant, bearer}, protocol.NewPTYID(), false, map[string]any{"killed": killed})
}

// dispose is POST /pty-dispose {sessionId, authToken}: a page that goes away ends
// its terminal. A beacon bears its grant in the body.
func (a *API) dispose(w http.ResponseWriter, r *http.Request) {
	n, err := read(w, r)
	var grant *jws.Grant
	bearer := n.AuthToken
	switch _, bears := r.Header["Authorization"]; {
	case err != nil:
	case bears || bearer == "":
		grant, bearer, err = a.authorize(r)
	default:
		grant, err = access.Verified(r, a.Keys, bearer)
	}
	if err == nil && n.SessionID == "" {
		err = protocol.Errorf(protocol.KindInvalid, "sessionId is missing")
	}
	if err == nil {
		err = may(grant, n.SessionID)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	a.end(r, under{grant, bearer}, n.SessionID, false)
	answer(w, http.StatusOK, map[string]any{"ok": true})
}

// end ends a terminal, or all that the person's panels have open here, and tells
// their sockets so if anew follows. It returns how many it ended.
func (a *API) end(r *http.Request, by under, pty protocol.PTYID, anew bool) (ended int) {
	terminals := map[protocol.PTYID]bool{}
	if pty != "" {
		terminals[pty] = true
	}
	for s, at := range a.here.at(place{by.grant.Subject, by.grant.Session}) {
		if pty != "" && at != pty {
			continue
		}
		terminals[at] = true
		if anew {
			s.restarted()
		}
	}
	for id := range terminals {
		if may(by.grant, id) == nil && a.closeTerminal(r.Context(), by, id) == nil {
			ended++
		}
	}
	return ended
}
