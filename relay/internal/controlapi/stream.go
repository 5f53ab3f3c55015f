package controlapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

const streamPath = "/control/stream"

var errNoBrowserID = protocol.Errorf(protocol.KindInvalid, "browser must be the id of an installation of the extension")

// openSession exchanges a grant for the cookie that opens the stream.
func (a *API) openSession(w http.ResponseWriter, r *http.Request) {
	grant, _, err := access.Grant(r, a.Keys)
	if err != nil {
		a.refuse(w, rejects.Request, err)
		return
	}
	var body struct {
		SessionID protocol.SessionID `json:"session_id"`
	}
	err = access.ReadJSON(w, r, &body)
	switch {
	case err != nil:
	case !protocol.ValidID(body.SessionID):
		err = protocol.Errorf(protocol.KindInvalid, "session_id must be an id")
	case !grant.Allows(body.SessionID, "", protocol.CapView):
		err = protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this session")
	}
	var cookie string
	if err == nil {
		cookie, err = a.StreamCookies.Issue(grant)
	}
	if err != nil {
		a.refuse(w, rejects.Request, err)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: access.StreamCookieName, Value: cookie, Path: streamPath, Expires: grant.Expires().UTC(),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: strings.HasPrefix(a.Origins.Public(r), "https:"),
	})
	access.WriteJSON(w, http.StatusOK, map[string]string{"expires_at": grant.Expires().UTC().Format(time.RFC3339)})
}

// stream sends the commands for the pages of one user, in the browser that the
// page names with ?browser=.
func (a *API) stream(w http.ResponseWriter, r *http.Request) {
	page, err := a.page(r)
	if err == nil {
		err = a.Pages.Serve(w, r, page)
	}
	if err != nil {
		a.refuse(w, rejects.Stream, err)
	}
}

// page returns the page that wants to listen.
func (a *API) page(r *http.Request) (page pagestream.Page, err error) {
	page.After = r.Header.Get("Last-Event-ID")
	if page.Grant, err = a.streamGrant(r); err != nil {
		return page, err
	}
	if named := r.URL.Query()["browser"]; len(named) > 0 {
		page.Browser = named[0]
		if len(named) > 1 || !op.ValidBrowserID(page.Browser) {
			return page, errNoBrowserID
		}
	}
	return page, nil
}

// streamGrant returns the grant that opens the stream. If a bearer token is
// presented, it alone decides.
func (a *API) streamGrant(r *http.Request) (*jws.Grant, error) {
	grant, err := a.presented(r)
	if err != nil {
		return nil, err
	}
	if !grant.Allows(grant.Session, "", protocol.CapView) {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view")
	}
	return grant, nil
}

func (a *API) presented(r *http.Request) (*jws.Grant, error) {
	if _, bears := r.Header["Authorization"]; bears {
		grant, _, err := access.Grant(r, a.Keys)
		return grant, err
	}
	cookie, err := r.Cookie(access.StreamCookieName)
	if err != nil {
		return nil, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	// SameSite compares sites only; pages of our host's other ports or names must
	// not open the stream either.
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return nil, protocol.Fault(protocol.KindForbidden, nil)
	}
	grant, err := a.StreamCookies.Grant(cookie.Value)
	if err == nil && a.Revoked.Grant(grant) {
		err = protocol.Errorf(protocol.KindUnauthenticated, "the grant was revoked")
	}
	return grant, err
}
