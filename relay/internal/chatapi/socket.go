package chatapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/gateway"
)

// extensionScheme begins the origins of browser extensions, for which /ws is
// another socket (seed 000). None is let in.
const extensionScheme = "chrome-extension://"

// A credential is what a request for a socket presents, of which the first counts:
// a ticket, a grant, the cookie of the web client.
type credential struct {
	ticket  string
	tickets bool // one is presented, if only an empty one
	grant   bool
	cookie  bool
}

func (c credential) none() bool { return !c.tickets && !c.grant && !c.cookie }

func (c credential) onlyCookie() bool { return !c.tickets && !c.grant }

// presented returns what r presents.
func presented(r *http.Request, offer gateway.Offer) (c credential) {
	if c.ticket, c.tickets = offer.Ticket(); !c.tickets {
		query := r.URL.Query()
		c.ticket, c.tickets = query.Get("token"), query.Has("token")
	}
	_, c.grant = r.Header["Authorization"]
	c.cookie = len(r.CookiesNamed(access.AppCookieName)) > 0
	return c
}

// ForeignOrigin answers a request for a socket from a page that is not ours.
func ForeignOrigin(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.Header.Get("Origin"), extensionScheme) && presented(r, gateway.Offered(r)).none() {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "forbidden origin")
		return
	}
	access.WriteError(w, protocol.Fault(protocol.KindForbidden, nil))
}

// serveSocket is GET /ws. It refuses before the upgrade whatever it can, with the
// kind's status and text only.
func (a *API) serveSocket(w http.ResponseWriter, r *http.Request) {
	offer := gateway.Offered(r)
	c, err := a.admit(r, presented(r, offer))
	if err != nil {
		kind := protocol.KindOf(err)
		a.Metrics.SocketsRefused.WithLabelValues(kind.String()).Inc()
		a.Log.Debug("chat socket refused", "kind", kind, "err", err)
		access.WriteError(w, protocol.Fault(kind, nil))
		return
	}
	leave, full := a.people.Enter(c.grant.Subject, cmp.Or(a.SocketsPerPerson, gateway.DefaultSocketsPerPerson))
	conn, err := offer.Upgrade(w, r, protocol.MaxChatFrame)
	switch {
	case err != nil:
		a.Log.Debug("upgrade failed", "err", err) // the library has answered
		if full == nil {
			leave()
		}
	case full != nil: // a browser can't read the answer to a refused upgrade
		a.Metrics.SocketsRefused.WithLabelValues(protocol.KindTooMany.String()).Inc()
		conn.Close(protocol.KindTooMany.CloseCode(), "too many sockets of one person")
		conn.End(nil, a.Rejects)
	default:
		c.token = strings.Clone(c.token) // it may be a part of the request's headers
		// The request's goroutine would keep its headers, its buffers and a deep stack
		// for as long as the socket lives. The hubs wait for their sockets.
		go func() {
			defer leave()
			a.serve(conn, c)
		}()
	}
}

// admit checks, in this order: whether there is a credential, the page's origin
// (Host was checked for every route), the request's form, the credential.
func (a *API) admit(r *http.Request, with credential) (c caller, err error) {
	if with.none() {
		return c, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	// A page at another relay of ours comes with a ticket or a grant.
	err = a.Origins.CheckOrigin(r)
	if with.onlyCookie() {
		err = a.Origins.FromOwnPage(r, false)
	}
	if err != nil {
		return c, err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return c, protocol.Fault(protocol.KindInvalid, nil) // checked before a ticket is spent
	}
	switch {
	case with.tickets:
		c, err = a.redeem(with.ticket)
	case with.grant:
		c, err = a.bearer(r)
	default:
		c, err = a.fromCookie(r)
	}
	switch {
	case err != nil:
	case c.session == "":
		err = errNoSession
	case !c.grant.Allows(c.session, "", protocol.CapView):
		err = protocol.Fault(protocol.KindForbidden, nil)
	default:
		err = a.Grants.Check(c.grant)
	}
	return c, err
}

// redeem returns the caller that a ticket was issued to.
func (a *API) redeem(ticket string) (caller, error) {
	admission, err := a.Tickets.RedeemTicket(ticket, access.TargetChat)
	if err != nil {
		return caller{}, err
	}
	return caller{grant: admission.Grant, token: admission.Token, session: admission.Session}, nil
}

// serve serves an upgraded socket until it ends.
func (a *API) serve(conn *gateway.Conn, c caller) {
	defer conn.End(nil, nil)
	socket, err := a.Hubs.Socket(conn, chathub.Guest{Grant: c.grant, Token: c.token, Session: c.session})
	if err != nil {
		e := protocol.AsError(err)
		conn.Close(e.Kind.CloseCode(), e.Kind.Text())
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // the request's context ends with the hijack
	defer cancel()
	one := &client{api: a, socket: socket, user: c.grant.Subject, session: c.session, ctx: ctx}
	if c.app.ID != "" {
		defer a.Apps.Attend(c.app, c.grant, one)()
	}
	written := make(chan struct{})
	go func() { // serve waits for it below
		defer close(written)
		socket.Serve(ctx)
		cancel()
	}()
	err = one.read(conn)
	if websocket.CloseStatus(err) == -1 && !errors.Is(err, context.Canceled) {
		a.Log.Debug("chat socket ended", "err", err)
	}
	cancel()
	conn.End(err, a.Rejects)
	<-written
}
