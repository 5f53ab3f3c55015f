// Package gateway admits browsers: it issues tickets, and upgrades sockets
// after every check has passed.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
)

// Gateway admits sockets to targets of any kind: see [Targets].
type Gateway struct {
	Origins *access.Origins
	Tickets *access.TicketStore
	Grants  *lifetime.Grants // those of open sockets
	Log     *slog.Logger
	Metrics *Metrics
	// SocketsPerPerson bounds the sockets of one person; default
	// [DefaultSocketsPerPerson].
	SocketsPerPerson int

	sockets Tally
}

// Targets are all targets of one kind: what is special about their sockets. The
// gateway does what all kinds share.
type Targets interface {
	// Name is what people call such a target.
	Name() string
	// Cookie is the name of the cookie that opens a socket where a ticket can't be
	// sent.
	Cookie() string
	// Ask reads what a request asks for: the target, the page's id for itself, and
	// whatever else the socket needs. It spends nothing.
	Ask(r *http.Request, offered Offer) (access.Presented, Socket, error)
}

// A Socket leads to a target. Its methods are called in this order.
type Socket interface {
	// Check reports whether a grant that was good enough for admission also allows
	// what the socket asks for.
	Check(grant *jws.Grant) error
	// Open opens the target.
	Open(ctx context.Context, a access.Admission) error
	// Serve serves an upgraded socket until it ends; it must end with its grant.
	// It waits for the goroutines it starts.
	Serve(c *Conn, pass *access.Pass)
	// Close releases what Open has opened.
	Close()
}

// Issue answers r with a ticket and a cookie that open one socket to a target
// at path. The caller has checked the grant's rights.
func (g *Gateway) Issue(w http.ResponseWriter, r *http.Request, targets Targets, a access.Admission, path string) error {
	ticket, cookie, expires, err := g.Tickets.Issue(a)
	if err != nil {
		return err
	}
	origin := g.Origins.Public(r)
	setCookie(w, targets.Cookie(), origin, path, cookie, protocol.CookieTTL)
	access.WriteJSON(w, http.StatusOK, map[string]string{
		"ws_url":     SocketURL(origin, path),
		"ticket":     ticket,
		"expires_at": expires.UTC().Format(time.RFC3339),
	})
	return nil
}

// Sockets returns the handler of the route of one kind of targets. It refuses
// before the upgrade whatever it can, with the kind's status and text only. It
// is called once for each kind, before any request.
func (g *Gateway) Sockets(targets Targets) http.HandlerFunc {
	g.Tickets.OnStolen(g.Metrics.Stolen.Inc)
	return func(w http.ResponseWriter, r *http.Request) { g.socket(w, r, targets) }
}

func (g *Gateway) socket(w http.ResponseWriter, r *http.Request, targets Targets) {
	offer := Offered(r)
	in, err := g.admit(r, offer, targets)
	if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok && elsewhere.Origin != "" {
		g.Metrics.Moved.Inc()
		g.endAtOnce(w, r, offer, protocol.Moved{Origin: elsewhere.Origin}, protocol.KindRestarting, "the "+targets.Name()+" is at another relay")
		return
	}
	if errors.Is(err, ErrTooManySockets) {
		g.Metrics.Refused.WithLabelValues(protocol.KindTooMany.String()).Inc()
		g.Metrics.TooMany.Inc()
		g.endAtOnce(w, r, offer, nil, protocol.KindTooMany, "too many sockets of one person")
		return
	}
	if err != nil {
		kind := protocol.KindOf(err)
		g.Metrics.Refused.WithLabelValues(kind.String()).Inc()
		g.Log.Debug(targets.Name()+" socket refused", "kind", kind, "err", err)
		access.WriteError(w, protocol.Fault(kind, nil))
		return
	}
	if in.pass != nil {
		cookie, life := in.pass.Cookie()
		setCookie(w, targets.Cookie(), g.Origins.Public(r), r.URL.Path, cookie, life)
	}
	c, err := accept(w, r, offer.selectable, protocol.MaxBrowserMessage)
	if err != nil {
		in.leave()
		g.Log.Debug("upgrade failed", "err", err) // the library has answered
		return
	}
	// Serve runs on a goroutine of its own: the request's would keep its headers,
	// its buffers and a deep stack for as long as the socket lives. Whoever closes
	// the targets waits for in.leave.
	go func() {
		defer in.leave()
		defer c.ws.CloseNow()
		in.socket.Serve(c, in.pass)
	}()
}

// endAtOnce upgrades only to say why the socket is refused, as a browser can't
// read the answer to a refused upgrade. It sends m first, unless that is nil.
func (g *Gateway) endAtOnce(
	w http.ResponseWriter, r *http.Request, offer Offer, m protocol.ServerMessage, kind protocol.Kind, cause string,
) {
	c, err := accept(w, r, offer.selectable, protocol.MaxBrowserMessage)
	if err != nil {
		g.Log.Debug("upgrade failed", "err", err) // the library has answered
		return
	}
	defer c.ws.CloseNow()
	if m != nil && c.WriteFrames(net.Buffers{replay.AppendTextFrame(nil, protocol.EncodeServerMessage(m))}) != nil {
		return
	}
	c.Close(kind.CloseCode(), cause)
}

// An admitted is what a socket holds while it is open.
type admitted struct {
	socket Socket
	free   func()       // releases its slot among the person's sockets
	pass   *access.Pass // for reconnecting; nil: it was opened with a ticket
}

func (in admitted) leave() {
	in.socket.Close()
	in.free()
}

// admit checks, in this order: Origin (Host was checked for every route), the
// request's form, ticket or cookie, how many sockets the person has, and the
// target itself.
func (g *Gateway) admit(r *http.Request, offer Offer, targets Targets) (in admitted, err error) {
	if err := g.Origins.CheckOrigin(r); err != nil {
		return in, err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return in, protocol.Fault(protocol.KindInvalid, nil) // checked before a ticket is spent
	}
	presented, socket, err := targets.Ask(r, offer)
	if err != nil {
		return in, err
	}
	if offer.hasTicket && offer.ticket == "" { // even an empty ticket decides
		return in, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	presented.Ticket = offer.ticket
	if c, err := r.Cookie(targets.Cookie()); err == nil {
		presented.Cookie = c.Value
	}
	admission, pass, err := g.Tickets.Redeem(presented)
	if err != nil {
		return in, err
	}
	defer func() {
		if err != nil && pass != nil {
			pass.Restore() // no socket was opened with it
		}
	}()
	if g.Grants.Revoked(admission.Grant) {
		return in, protocol.Fault(protocol.KindUnauthenticated, errors.New("the grant was revoked"))
	}
	if err := socket.Check(admission.Grant); err != nil {
		return in, err
	}
	free, err := g.sockets.Enter(admission.Grant.Subject, cmp.Or(g.SocketsPerPerson, DefaultSocketsPerPerson))
	if err != nil {
		return in, err
	}
	if err := socket.Open(r.Context(), admission); err != nil {
		free()
		return in, err
	}
	return admitted{socket, free, pass}, nil
}
