// Package webapp tells who the requests and sockets of the web client of seed 002
// are from: by its cookie, by a ticket, or by a grant.
package webapp

import (
	"log/slog"
	"net/http"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
)

// A Desk admits the web client. It is safe for concurrent use.
type Desk struct {
	// Static.
	Origins *access.Origins
	Tickets *access.TicketStore // the web client's own
	Apps    *access.AppSessions
	Grants  *lifetime.Grants
	Keys    *jws.Keys
	// SocketsPerPerson bounds the sockets of one person that this desk admits, of
	// all routes; default [gateway.DefaultSocketsPerPerson].
	SocketsPerPerson int
	Log              *slog.Logger

	people gateway.Tally
}

// A Caller is whoever has sent a request.
type Caller struct {
	Grant   *jws.Grant
	Token   string // the grant as it was presented
	Session protocol.SessionID
	App     access.AppSession // its zero value: there was no cookie
}

// ErrNoSession says that a grant for all sessions of a dashboard isn't enough.
var ErrNoSession = protocol.Errorf(protocol.KindInvalid, "the grant must name its session")

// Bearer returns the caller whose grant r bears.
func (d *Desk) Bearer(r *http.Request) (Caller, error) {
	grant, token, err := access.Grant(r, d.Keys)
	if err != nil {
		return Caller{}, err
	}
	return Caller{Grant: grant, Token: token, Session: grant.Session}, nil
}

// fromCookie returns the caller whose cookie of the web client r has.
func (d *Desk) fromCookie(r *http.Request) (Caller, error) {
	app, err := d.Apps.Presented(r)
	if err != nil {
		return Caller{}, err
	}
	grant, err := access.Verified(r, d.Keys, app.Token)
	if err != nil {
		return Caller{}, err
	}
	if grant.Subject != app.User {
		return Caller{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	return Caller{Grant: grant, Token: app.Token, Session: app.Session, App: app}, nil
}

// Identify returns the caller of r. A grant that r bears alone decides.
func (d *Desk) Identify(r *http.Request) (Caller, error) {
	if _, bears := r.Header["Authorization"]; bears {
		return d.Bearer(r)
	}
	return d.fromCookie(r)
}

// Authorize returns the caller of a route of the web client, who must have need in
// the session. The cookie, which a browser sends by itself, is for pages of ours
// alone, which methods that change something must come from. Who bears a grant may
// be no page; Guard has checked an Origin that is sent.
func (d *Desk) Authorize(r *http.Request, need protocol.Capability) (Caller, error) {
	if _, bears := r.Header["Authorization"]; !bears {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if err := d.Origins.FromOwnPage(r, reads); err != nil {
			return Caller{}, err
		}
	}
	c, err := d.Identify(r)
	switch {
	case err != nil:
		return Caller{}, err
	case c.Session == "":
		return Caller{}, ErrNoSession
	case !c.Grant.Allows(c.Session, "", need):
		return Caller{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %q here", need)
	}
	return c, nil
}
