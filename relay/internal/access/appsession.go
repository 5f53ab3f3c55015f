package access

import (
	"crypto/rand"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// AppCookieName is the cookie of the web client: it opens its routes and sockets.
const AppCookieName = "fairlead_app"

// maxLoggedOut bounds the app sessions that are remembered as over. Beyond it any
// of them is forgotten.
const maxLoggedOut = 20_000

// An AppSession is what a cookie of the web client stands for. It is in the
// cookie itself, sealed, so that it outlives the relay.
type AppSession struct {
	ID      string             `json:"id"`
	User    protocol.UserID    `json:"user"`
	Session protocol.SessionID `json:"session"`
	Token   string             `json:"grant"` // in compact form
	Ends    int64              `json:"ends"`  // Unix seconds
}

// Expires returns when the cookie ends.
func (s AppSession) Expires() time.Time { return time.Unix(s.Ends, 0) }

// An AppSocket is what was opened by a cookie and is open.
type AppSocket interface {
	// Renew has it go on under a newer grant of its user.
	Renew(grant *jws.Grant, token string)
	// LoggedOut ends it.
	LoggedOut()
}

// AppSessions seals and opens cookies of the web client, and knows what is open
// by them at this relay.
type AppSessions struct {
	// Static after construction.
	cookies sealedCookies[AppSession]

	mu sync.Mutex
	// Guarded by mu.
	open      map[string]*appSockets // by id
	loggedOut map[string]time.Time   // ids; until when their cookies would be good
}

// appSockets are what is open by one cookie, and the newest grant that it was
// renewed with since the first of them was opened.
type appSockets struct {
	sockets map[AppSocket]struct{}
	grant   *jws.Grant // nil: it wasn't
	token   string
}

// NewAppSessions returns AppSessions that seal with a key of 32 bytes. Relays with
// the same key open each other's cookies. Without a key it makes one.
func NewAppSessions(key []byte) (*AppSessions, error) {
	cookies, err := newSealedCookies[AppSession](key, AppCookieName, "fairlead_app 1")
	if err != nil {
		return nil, err
	}
	return &AppSessions{cookies: cookies, open: map[string]*appSockets{}, loggedOut: map[string]time.Time{}}, nil
}

// Issue returns a cookie under a grant that was just verified. It is good for
// [protocol.CookieTTL], and not beyond the grant. If before is of the same user and
// session, the cookie continues it: what is open by it here goes on under the
// newer grant. A grant that is too large for a cookie fails with kind too_large.
func (a *AppSessions) Issue(grant *jws.Grant, token string, session protocol.SessionID, before AppSession) (string, AppSession, error) {
	now := time.Now()
	if grant.Over(now) {
		return "", AppSession{}, lifetime.ErrExpired
	}
	s := AppSession{
		ID: rand.Text(), User: grant.Subject, Session: session, Token: token,
		Ends: earlier(now.Add(protocol.CookieTTL), grant.Expires()).Unix(),
	}
	if before.ID != "" && before.User == s.User && before.Session == s.Session {
		s.ID = before.ID
	}
	value, err := a.cookies.issue(s)
	if err != nil {
		return "", AppSession{}, err
	}
	if s.ID == before.ID {
		a.renew(s.ID, grant, token)
	}
	return value, s, nil
}

// Presented returns what r's cookie stands for. The caller has to verify the grant
// in it. It fails with kind unauthenticated.
func (a *AppSessions) Presented(r *http.Request) (AppSession, error) {
	return a.cookies.presented(r, a.isOver)
}

// isOver reports whether somebody has logged out of s here.
func (a *AppSessions) isOver(s AppSession) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, over := a.loggedOut[s.ID]
	return over
}

// Attend notes what was opened by a cookie, a pointer, until leave. If the cookie was renewed
// in the meantime, it goes on under the newer grant at once.
func (a *AppSessions) Attend(s AppSession, grant *jws.Grant, socket AppSocket) (leave func()) {
	a.mu.Lock()
	group := a.open[s.ID]
	if group == nil {
		group = &appSockets{sockets: map[AppSocket]struct{}{}}
		a.open[s.ID] = group
	}
	group.sockets[socket] = struct{}{}
	newer, token := group.grant, group.token
	_, over := a.loggedOut[s.ID]
	a.mu.Unlock()
	switch {
	case over:
		socket.LoggedOut()
	case newer != nil && newer.ExpiresAt > grant.ExpiresAt:
		socket.Renew(newer, token)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if delete(group.sockets, socket); len(group.sockets) == 0 && a.open[s.ID] == group {
			delete(a.open, s.ID)
		}
	}
}

// attending returns what is open by a cookie. The caller holds mu.
func (a *AppSessions) attending(id string) (sockets []AppSocket) {
	if group := a.open[id]; group != nil {
		for socket := range group.sockets {
			sockets = append(sockets, socket)
		}
	}
	return sockets
}

// renew moves what is open by a cookie to a newer grant.
func (a *AppSessions) renew(id string, grant *jws.Grant, token string) {
	a.mu.Lock()
	sockets := a.attending(id)
	if group := a.open[id]; group != nil && (group.grant == nil || group.grant.ExpiresAt < grant.ExpiresAt) {
		group.grant, group.token = grant, token
	}
	a.mu.Unlock()
	for _, socket := range sockets {
		socket.Renew(grant, token)
	}
}

// LogOut ends what is open by a cookie at this relay, which takes it no more.
func (a *AppSessions) LogOut(s AppSession) {
	a.mu.Lock()
	if len(a.loggedOut) >= maxLoggedOut {
		a.sweep()
	}
	a.loggedOut[s.ID] = time.Now().Add(protocol.CookieTTL) // it may have been renewed elsewhere
	sockets := a.attending(s.ID)
	a.mu.Unlock()
	for _, socket := range sockets {
		socket.LoggedOut()
	}
}

// sweep makes room among those who have logged out. The caller holds mu.
func (a *AppSessions) sweep() {
	now := time.Now()
	for id, until := range a.loggedOut {
		if !now.Before(until) {
			delete(a.loggedOut, id)
		}
	}
	for id := range a.loggedOut {
		if len(a.loggedOut) < maxLoggedOut {
			return
		}
		delete(a.loggedOut, id)
	}
}

// SetCookie sets the cookie for the public origin that r was sent to.
func (s AppSession) SetCookie(w http.ResponseWriter, origin, value string, now time.Time) {
	http.SetCookie(w, pageCookie(AppCookieName, origin, value, secondsUntil(s.Expires(), now)))
}

// ClearAppCookie takes the cookie away.
func ClearAppCookie(w http.ResponseWriter, origin string) {
	http.SetCookie(w, pageCookie(AppCookieName, origin, "", -1))
}

// FromOwnPage refuses a request unless a page of ours has sent it: its Origin is
// one of ours, or absent where that is enough, and what the browser says of the
// page's site agrees.
func (o *Origins) FromOwnPage(r *http.Request, absent bool) error {
	if _, sent := r.Header["Origin"]; sent || !absent {
		if err := o.CheckOrigin(r); err != nil {
			return err
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" {
			return protocol.Fault(protocol.KindForbidden, nil)
		}
	}
	return nil
}
