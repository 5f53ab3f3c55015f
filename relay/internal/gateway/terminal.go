package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

// Terminals serve POST /pty-session and the sockets of terminals. They are
// [Targets]; a hub shares each terminal among its viewers.
type Terminals struct {
	Gateway *Gateway
	Keys    *jws.Keys
	Hubs    *hub.Set
	Rejects *rejects.Rejects // of requests; those of sockets are the gateway's Metrics
	// Panel serves POST /pty-session without a body, which is the side panel's; nil:
	// nobody does.
	Panel http.Handler
}

// Register adds the routes. It is called once, before any is used.
func (t *Terminals) Register(mux access.Router) {
	t.Hubs.Under(t.Gateway.Grants)
	mux.HandleFunc("POST /pty-session", t.ptySession)
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/ws", t.Gateway.Sockets(t))
}

// Name implements Targets.
func (*Terminals) Name() string { return "terminal" }

// Cookie implements Targets.
func (*Terminals) Cookie() string { return access.CookieName }

// refuse answers a request with err and counts it.
func (t *Terminals) refuse(w http.ResponseWriter, err error) {
	t.Rejects.Count(rejects.Request, err)
	access.WriteError(w, err)
}

// ptySession exchanges a grant for a ticket and a cookie for one socket.
func (t *Terminals) ptySession(w http.ResponseWriter, r *http.Request) {
	if t.Panel != nil && r.ContentLength == 0 {
		t.Panel.ServeHTTP(w, r)
		return
	}
	began := time.Now()
	grant, token, err := access.Grant(r, t.Keys)
	if err != nil {
		t.refuse(w, err)
		return
	}
	var body struct {
		SessionID protocol.SessionID `json:"session_id"`
		PTYID     protocol.PTYID     `json:"pty_id"`
	}
	if err := access.ReadJSON(w, r, &body); err != nil {
		t.refuse(w, err)
		return
	}
	if !protocol.ValidID(body.SessionID) || !protocol.ValidID(body.PTYID) {
		t.refuse(w, protocol.Errorf(protocol.KindInvalid, "session_id and pty_id must be ids"))
		return
	}
	if !grant.Allows(body.SessionID, body.PTYID, protocol.CapView) {
		t.refuse(w, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal"))
		return
	}
	path := "/sessions/" + string(body.SessionID) + "/ptys/" + string(body.PTYID) + "/ws"
	err = t.Gateway.Issue(w, r, t, access.Admission{
		Grant: grant, Token: token, Target: terminal(body.SessionID, body.PTYID),
	}, path)
	if err != nil {
		t.refuse(w, err)
		return
	}
	t.Gateway.Metrics.Session.Observe(time.Since(began).Seconds())
}

// terminal returns the target for a terminal.
func terminal(session protocol.SessionID, pty protocol.PTYID) access.Target {
	return access.Target{Kind: access.TargetTerminal, Session: session, PTY: pty}
}

// A visit is the socket of a terminal's viewer. It is a [Socket].
type visit struct {
	of     *Terminals
	key    hub.Key
	guest  hub.Guest
	handle *hub.Handle // set by Open
}

// Ask implements Targets.
func (t *Terminals) Ask(r *http.Request, offered Offer) (access.Presented, Socket, error) {
	v := &visit{of: t}
	v.key.Session, v.key.PTY = protocol.SessionID(r.PathValue("sid")), protocol.PTYID(r.PathValue("pid"))
	if !protocol.ValidID(v.key.Session) || !protocol.ValidID(v.key.PTY) {
		return access.Presented{}, nil, protocol.Fault(protocol.KindInvalid, nil)
	}
	var err error
	if v.guest, err = asked(r.URL.Query()); err != nil {
		return access.Presented{}, nil, err
	}
	v.guest.Counts, v.guest.Asked = offered.counts, time.Now()
	return access.Presented{Client: v.guest.Client, Target: terminal(v.key.Session, v.key.PTY)}, v, nil
}

// Check implements Socket.
func (v *visit) Check(grant *jws.Grant) error {
	if v.guest.Exact && !grant.Allows(v.key.Session, v.key.PTY, protocol.CapRecord) {
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow exact viewing")
	}
	return nil
}

// Open implements Socket.
func (v *visit) Open(ctx context.Context, a access.Admission) (err error) {
	v.guest.Grant, v.guest.Token, v.key.Sandbox = a.Grant, a.Token, a.Grant.Sandbox
	v.handle, err = v.of.Hubs.Open(ctx, v.key, a.Grant, a.Token)
	return err
}

// Close implements Socket.
func (v *visit) Close() { v.handle.Release() }

// Serve implements Socket.
func (v *visit) Serve(c *Conn, pass *access.Pass) {
	v.guest.Socket = c
	v.of.serve(c, v.handle.Join(v.guest), v.guest.Counts, pass)
}

// asked returns what the query asks for. An unreadable position is no error:
// the client has lost its place, and after an error it would retry with the
// same one.
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

// serve runs an attached socket until it ends.
func (t *Terminals) serve(c *Conn, v *hub.Viewer, counts bool, pass *access.Pass) {
	ctx, cancel := context.WithCancel(context.Background()) // the request's context ends with the hijack
	defer cancel()
	keep := c.Until(ctx)
	defer keep()
	if pass != nil {
		pass.Opened(cancel)
		defer pass.Closed()
	}
	stop := v.Start(cancel)
	err := t.read(ctx, c, v, counts, pass)
	v.Leave()
	if websocket.CloseStatus(err) == -1 && !errors.Is(err, context.Canceled) {
		t.Gateway.Log.Debug("terminal socket ended", "err", err)
	}
	keep() // End closes the socket, once the client could read why
	cancel()
	c.End(err, t.Rejects)
	stop()
}

// read hands the viewer's frames to the hub until the socket ends.
func (t *Terminals) read(ctx context.Context, c *Conn, v *hub.Viewer, counts bool, pass *access.Pass) error {
	for {
		kind, data, err := c.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageBinary {
			if err := t.typed(ctx, v, counts, data); err != nil {
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
			t.reauth(ctx, v, m.Grant, pass)
		case protocol.ClientExecute:
			v.Execute(m.Text)
		default:
			v.Say(m)
		}
	}
}

// typed passes a viewer's binary frame on. It fails if the socket is over.
func (t *Terminals) typed(ctx context.Context, v *hub.Viewer, counts bool, data []byte) error {
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

// reauth puts the socket under a newer grant of the same user, which must allow
// viewing the terminal.
func (t *Terminals) reauth(ctx context.Context, v *hub.Viewer, token string, pass *access.Pass) {
	grant, err := t.Keys.Grant(ctx, token)
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
