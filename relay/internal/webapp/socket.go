package webapp

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
)

// A Credential is what a request for a socket presents: a ticket, or the cookie of
// the web client. A grant opens no socket.
type Credential struct {
	ticket  string
	tickets bool // one is presented, if only an empty one
	cookie  bool
}

// None reports whether nothing is presented.
func (c Credential) None() bool { return !c.tickets && !c.cookie }

// Presented returns what r presents. Of several tickets the first counts: the
// subprotocol's, the one in the URL (?token=), that of the header Authorization.
func Presented(r *http.Request, offer gateway.Offer) (c Credential) {
	c.cookie = len(r.CookiesNamed(access.AppCookieName)) > 0
	if c.ticket, c.tickets = offer.Ticket(); c.tickets {
		return c
	}
	if query := r.URL.Query(); query.Has("token") {
		c.ticket, c.tickets = query.Get("token"), true
		return c
	}
	if headers, sent := r.Header["Authorization"]; sent {
		c.tickets = true // even what can't be read decides
		if scheme, ticket, _ := strings.Cut(headers[0], " "); len(headers) == 1 && strings.EqualFold(scheme, "Bearer") {
			c.ticket = ticket
		}
	}
	return c
}

// A Route is a route of sockets.
type Route struct {
	Name     string              // of its sockets, for the log
	Need     protocol.Capability // in the session
	MaxFrame int                 // of a message, in bytes; more ends a socket with 1009
	To       Server
}

// A Server serves the sockets of a route.
type Server interface {
	// Refused counts a socket that is refused.
	Refused(kind protocol.Kind)
	// Serve serves an upgraded socket until it ends, on a goroutine of its own. It
	// must end with the grant. Whoever closes the server waits for it.
	Serve(*gateway.Conn, Caller)
}

// Socket returns the handler of a route. It refuses before the upgrade whatever it
// can, with the kind's status and text only.
func (d *Desk) Socket(route Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		offer := gateway.Offered(r)
		c, err := d.Admit(r, Presented(r, offer), route.Need)
		if err != nil {
			kind := protocol.KindOf(err)
			route.To.Refused(kind)
			d.Log.Debug(route.Name+" socket refused", "kind", kind, "err", err)
			access.WriteError(w, protocol.Fault(kind, nil))
			return
		}
		leave, full := d.Enter(c)
		conn, err := offer.Upgrade(w, r, route.MaxFrame)
		switch {
		case err != nil:
			d.Log.Debug("upgrade failed", "err", err) // the library has answered
			if full == nil {
				leave()
			}
		case full != nil: // a browser can't read the answer to a refused upgrade
			route.To.Refused(protocol.KindTooMany)
			conn.Close(protocol.KindTooMany.CloseCode(), "too many sockets of one person")
			conn.End(nil, nil)
		default:
			c.Token = strings.Clone(c.Token) // it may be a part of the request's headers
			// The request's goroutine would keep its headers, its buffers and a deep stack
			// for as long as the socket lives.
			go func() { // ends with the socket, for which its route's owner waits
				defer leave()
				route.To.Serve(conn, c)
			}()
		}
	}
}

// Enter counts one more socket of the caller, or fails with
// [gateway.ErrTooManySockets].
func (d *Desk) Enter(c Caller) (leave func(), err error) {
	return d.people.Enter(c.Grant.Subject, cmp.Or(d.SocketsPerPerson, gateway.DefaultSocketsPerPerson))
}

// Admit returns who asks for a socket, and must have need in the session. It
// checks, in this order: whether there is a credential, the page's origin (Host was
// checked for every route), the request's form, the credential.
func (d *Desk) Admit(r *http.Request, with Credential, need protocol.Capability) (c Caller, err error) {
	if with.None() {
		return c, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	// A page at another relay of ours comes with a ticket.
	switch {
	case with.tickets && d.Origins.FromExtension(r): // as a side panel does
	case with.tickets:
		err = d.Origins.CheckOrigin(r)
	default:
		err = d.Origins.FromOwnPage(r, false)
	}
	if err != nil {
		return c, err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return c, protocol.Fault(protocol.KindInvalid, nil) // checked before a ticket is spent
	}
	if with.tickets {
		c, err = d.redeem(with.ticket)
	} else {
		c, err = d.fromCookie(r)
	}
	switch {
	case err != nil:
	case c.Session == "":
		err = ErrNoSession
	case !c.Grant.Allows(c.Session, "", need):
		err = protocol.Fault(protocol.KindForbidden, nil)
	default:
		err = d.Grants.Check(c.Grant)
	}
	return c, err
}

// redeem returns the caller that a ticket was issued to. One ticket opens one
// socket, of whichever route.
func (d *Desk) redeem(ticket string) (Caller, error) {
	admission, err := d.Tickets.RedeemTicket(ticket, access.TargetChat)
	if err != nil {
		return Caller{}, err
	}
	return Caller{Grant: admission.Grant, Token: admission.Token, Session: admission.Session}, nil
}
