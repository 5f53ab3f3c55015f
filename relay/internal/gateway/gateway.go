// Package gateway is the browser's way in: it mints tickets and upgrades
// terminal sockets after every check is done.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
)

// Gateway serves POST /pty-session and the terminal sockets.
type Gateway struct {
	Keys    *jws.Keys
	Origins *access.Origins
	Desk    *access.Desk
	Hubs    *hub.Set
	Revoked *jws.RevocationSet // ends open sockets as well; nil: nothing is revoked
	Rejects *rejects.Rejects   // of requests; those of sockets are the Metrics'
	Log     *slog.Logger
	Metrics *Metrics
	// SocketsPerPerson bounds the terminal sockets of one person; default
	// [DefaultSocketsPerPerson].
	SocketsPerPerson int

	crowd crowd
}

// Register adds the gateway's routes. It is called once, before any is used.
func (g *Gateway) Register(mux access.Router) {
	if g.Revoked != nil {
		g.Hubs.Heed(g.Revoked)
	}
	g.Desk.OnStolen(g.Metrics.Stolen.Inc)
	if g.SocketsPerPerson == 0 {
		g.SocketsPerPerson = DefaultSocketsPerPerson
	}
	mux.HandleFunc("POST /pty-session", g.ptySession)
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/ws", g.terminal)
}

// refuse answers a request with err and counts it.
func (g *Gateway) refuse(w http.ResponseWriter, err error) {
	g.Rejects.Count(rejects.Request, err)
	access.WriteError(w, err)
}

// ptySession turns a grant into a ticket and a cookie for one socket.
func (g *Gateway) ptySession(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	grant, token, err := access.Grant(r, g.Keys)
	if err != nil {
		g.refuse(w, err)
		return
	}
	var body struct {
		SessionID protocol.SessionID `json:"session_id"`
		PTYID     protocol.PTYID     `json:"pty_id"`
	}
	if err := access.ReadJSON(w, r, &body); err != nil {
		g.refuse(w, err)
		return
	}
	if !protocol.ValidID(body.SessionID) || !protocol.ValidID(body.PTYID) {
		g.refuse(w, protocol.Errorf(protocol.KindInvalid, "session_id and pty_id must be ids"))
		return
	}
	if !grant.Allows(body.SessionID, body.PTYID, protocol.CapView) {
		g.refuse(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal"))
		return
	}
	ticket, cookie, expires, err := g.Desk.Issue(access.Admission{
		Grant: grant, Token: token, Session: body.SessionID, PTY: body.PTYID,
	})
	if err != nil {
		g.refuse(w, err)
		return
	}
	path := "/sessions/" + string(body.SessionID) + "/ptys/" + string(body.PTYID) + "/ws"
	origin := g.Origins.Public(r)
	setCookie(w, origin, path, cookie, protocol.CookieTTL)
	g.Metrics.Session.Observe(time.Since(began).Seconds())
	access.WriteJSON(w, http.StatusOK, map[string]string{
		"ws_url":     socketURL(origin, path),
		"ticket":     ticket,
		"expires_at": expires.UTC().Format(time.RFC3339),
	})
}

// setCookie leaves a terminal's cookie with the browser: for its socket's path
// alone, and for no script.
func setCookie(w http.ResponseWriter, origin, path, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: access.CookieName, Value: value, Path: path, MaxAge: max(1, int(life/time.Second)),
		HttpOnly: true, Secure: strings.HasPrefix(origin, "https:"), SameSite: http.SameSiteStrictMode,
	})
}

// socketURL returns the absolute URL of path at the public origin.
func socketURL(origin, path string) string { return "ws" + strings.TrimPrefix(origin, "http") + path }

// terminal attaches a socket. All that can be refused is refused before the
// upgrade, with the kind's status and text alone.
func (g *Gateway) terminal(w http.ResponseWriter, r *http.Request) {
	asked := time.Now()
	offer := offered(r)
	guest, seat, err := g.admit(r, offer)
	if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok && elsewhere.Origin != "" {
		g.Metrics.Moved.Inc()
		g.endAtOnce(w, r, offer, protocol.Moved{Origin: elsewhere.Origin}, protocol.KindRestarting, "the terminal is at another relay")
		return
	}
	if errors.Is(err, errCrowded) {
		g.Metrics.Refused.WithLabelValues(protocol.KindTooMany.String()).Inc()
		g.Metrics.Crowded.Inc()
		g.endAtOnce(w, r, offer, nil, protocol.KindTooMany, "too many sockets of one person")
		return
	}
	if err != nil {
		kind := protocol.KindOf(err)
		g.Metrics.Refused.WithLabelValues(kind.String()).Inc()
		g.Log.Debug("terminal socket refused", "kind", kind, "err", err)
		access.WriteError(w, protocol.Fault(kind, nil))
		return
	}
	if seat.pass != nil {
		cookie, life := seat.pass.Cookie()
		setCookie(w, g.Origins.Public(r), r.URL.Path, cookie, life)
	}
	c, err := accept(w, r, offer.selectable)
	if err != nil {
		seat.leave()
		g.Log.Debug("upgrade failed", "err", err) // the library has answered
		return
	}
	guest.Socket, guest.Asked = c, asked
	// On a goroutine of its own, or the request's would keep its headers, its
	// buffers and a deep stack for as long as the viewer stays. The hubs'
	// Close waits for the handle.
	go func() {
		defer seat.leave()
		defer c.ws.CloseNow()
		g.serve(c, seat.handle.Join(guest), guest.Counts, seat.pass)
	}()
}

// endAtOnce upgrades only to say why not: a browser can't read what a refused
// upgrade says. m comes before the end, unless it is nil.
func (g *Gateway) endAtOnce(
	w http.ResponseWriter, r *http.Request, offer offer, m protocol.ServerMessage, kind protocol.Kind, cause string,
) {
	c, err := accept(w, r, offer.selectable)
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

// A seat is what a socket has while it is there: a terminal's hub, and a place
// among those of its person.
type seat struct {
	handle *hub.Handle
	free   func()       // the place among the person's
	pass   *access.Pass // what the page comes back with; nil: it came with a ticket
}

func (s seat) leave() {
	s.handle.Release()
	s.free()
}

// admit checks, in this order: Origin (Host was checked for every route), the
// request's form, ticket or cookie, how many sockets the person has, and the
// terminal itself.
func (g *Gateway) admit(r *http.Request, offer offer) (guest hub.Guest, s seat, err error) {
	if err := g.Origins.CheckOrigin(r); err != nil {
		return guest, s, err
	}
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return guest, s, protocol.Fault(protocol.KindInvalid, nil) // before it could spend a ticket
	}
	session, pty := protocol.SessionID(r.PathValue("sid")), protocol.PTYID(r.PathValue("pid"))
	if !protocol.ValidID(session) || !protocol.ValidID(pty) {
		return guest, s, protocol.Fault(protocol.KindInvalid, nil)
	}
	if guest, err = asked(r.URL.Query()); err != nil {
		return guest, s, err
	}
	guest.Counts = offer.counts
	if offer.hasTicket && offer.ticket == "" { // an empty one decides as well
		return guest, s, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	var cookie string
	if c, err := r.Cookie(access.CookieName); err == nil {
		cookie = c.Value
	}
	admission, pass, err := g.Desk.Redeem(access.Presented{
		Ticket: offer.ticket, Cookie: cookie, Client: guest.Client, Session: session, PTY: pty,
	})
	if err != nil {
		return guest, s, err
	}
	s.pass = pass
	defer func() {
		if err != nil && pass != nil {
			pass.Restore() // it opens nothing
		}
	}()
	if g.Revoked != nil && g.Revoked.Grant(admission.Grant) {
		return guest, s, protocol.Fault(protocol.KindUnauthenticated, errors.New("the grant was revoked"))
	}
	if guest.Exact && !admission.Grant.Allows(session, pty, protocol.CapRecord) {
		return guest, s, protocol.Errorf(protocol.KindForbidden, "the grant does not allow exact viewing")
	}
	guest.Grant, guest.Token = admission.Grant, admission.Token
	if s.free, err = g.crowd.enter(admission.Grant.Subject, g.SocketsPerPerson); err != nil {
		return guest, s, err
	}
	key := hub.Key{Sandbox: admission.Grant.Sandbox, Session: session, PTY: pty}
	if s.handle, err = g.Hubs.Open(r.Context(), key, admission.Grant, admission.Token); err != nil {
		s.free()
	}
	return guest, s, err
}

// asked returns what the query asks for. A position that can't be read is no
// error: such a client has lost its place, and an error would have it try the
// same again.
func asked(query url.Values) (guest hub.Guest, err error) {
	if since := query.Get(protocol.QuerySince); since != "" {
		pos, err := protocol.ParsePosition(since)
		if err == nil {
			guest.Since = &pos
		}
		guest.Astray = err != nil
	}
	guest.Client = query.Get(protocol.QueryClient)
	if query.Has(protocol.QueryClient) &&
		(guest.Client == "" || len(guest.Client) > protocol.MaxClientBytes || !utf8.ValidString(guest.Client)) {
		return guest, protocol.Errorf(protocol.KindInvalid, "client must be 1 to %d bytes of UTF-8", protocol.MaxClientBytes)
	}
	switch query.Get(protocol.QueryMode) {
	case "":
	case protocol.ViewExact:
		guest.Exact = true
	default:
		return guest, protocol.Errorf(protocol.KindInvalid, "mode must be %s", protocol.ViewExact)
	}
	switch query.Get(protocol.QuerySize) {
	case "":
	case protocol.SizeFollow:
		guest.Follow = true
	default:
		return guest, protocol.Errorf(protocol.KindInvalid, "size must be %s", protocol.SizeFollow)
	}
	return guest, nil
}

// An offer is what a client's subprotocols say.
type offer struct {
	ticket     string
	hasTicket  bool
	counts     bool     // it speaks terminal.v2
	selectable []string // the one that is echoed: terminal.v2, else the ticket's own, verbatim
}

// offered reads the subprotocols that the client offers.
func offered(r *http.Request) (o offer) {
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			name = strings.TrimSpace(name)
			ticket, isTicket := strings.CutPrefix(name, protocol.SubprotocolTicket)
			switch {
			case name == protocol.SubprotocolTerminal:
				o.counts, o.selectable = true, []string{name}
			case isTicket && !o.hasTicket:
				o.ticket, o.hasTicket = ticket, true
				if !o.counts {
					o.selectable = []string{name}
				}
			}
		}
	}
	return o
}

// serve runs an attached socket until it ends.
func (g *Gateway) serve(c *conn, v *hub.Viewer, counts bool, pass *access.Pass) {
	ctx, cancel := context.WithCancel(context.Background()) // the request's ends with the hijack
	defer cancel()
	if pass != nil {
		pass.Opened(cancel)
		defer pass.Closed()
	}
	written := make(chan struct{})
	go func() { // serve waits for it below
		defer close(written)
		v.Serve(ctx)
		cancel()
	}()
	err := g.read(ctx, c, v, counts, pass)
	v.Leave()
	if websocket.CloseStatus(err) == -1 && !errors.Is(err, context.Canceled) {
		g.Log.Debug("terminal socket ended", "err", err)
	}
	cancel()
	if fault, ok := errors.AsType[*frameFault](err); ok {
		g.Rejects.Count(rejects.Frame, protocol.Fault(fault.kind(), fault))
		c.linger()
	}
	c.ws.CloseNow()
	<-written
}

// read hands the viewer's frames to the hub until the socket ends.
func (g *Gateway) read(ctx context.Context, c *conn, v *hub.Viewer, counts bool, pass *access.Pass) error {
	for {
		kind, data, err := c.ws.Read(ctx)
		if err != nil {
			return err
		}
		c.hear()
		if kind == websocket.MessageBinary {
			if err := g.typed(ctx, v, counts, data); err != nil {
				return err
			}
			continue
		}
		m, err := protocol.DecodeClientMessage(data)
		if err != nil {
			v.Complain(err)
			continue
		}
		switch m.Type {
		case protocol.ClientPing:
			v.Pinged()
		case protocol.ClientAck:
			v.Ack(m.Offset)
		case protocol.ClientReauth:
			g.reauth(ctx, v, m.Grant, pass)
		case protocol.ClientExecute:
			v.Execute(m.Text)
		default:
			v.Say(m)
		}
	}
}

// typed hands over a binary frame of the viewer. It fails when the socket is
// over.
func (g *Gateway) typed(ctx context.Context, v *hub.Viewer, counts bool, data []byte) error {
	if !counts {
		return v.Type(ctx, data)
	}
	in, err := protocol.DecodeBrowserInput(data)
	if err != nil {
		v.Complain(err)
		return nil
	}
	v.TypeNumbered(in)
	return nil
}

// reauth puts the socket under a newer grant of the same user, which must still
// allow to view the terminal.
func (g *Gateway) reauth(ctx context.Context, v *hub.Viewer, token string, pass *access.Pass) {
	grant, err := g.Keys.Grant(ctx, token)
	if err == nil {
		err = access.Current(grant)
	}
	if err == nil {
		err = v.MayReauth(grant)
	}
	if err != nil {
		v.Complain(err)
		return
	}
	v.Reauth(grant, token)
	if pass != nil {
		pass.Renew(grant, token)
	}
}
