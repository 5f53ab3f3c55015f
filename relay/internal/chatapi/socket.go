package chatapi

import (
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
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// ForeignOrigin answers a request for a socket from a page that is not ours.
func ForeignOrigin(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.Header.Get("Origin"), access.ExtensionScheme) && webapp.Presented(r, gateway.Offered(r)).None() {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "forbidden origin")
		return
	}
	access.WriteError(w, protocol.Fault(protocol.KindForbidden, nil))
}

// socket is GET /ws. A listed extension that presents nothing of the chat's means
// its side panel's terminal.
func (a *API) socket() http.HandlerFunc {
	chat := a.Desk.Socket(webapp.Route{Name: "chat", Need: protocol.CapView, MaxFrame: protocol.MaxChatFrame, To: a})
	return func(w http.ResponseWriter, r *http.Request) {
		if a.Panel != nil && a.Desk.Origins.FromExtension(r) && webapp.Presented(r, gateway.Offered(r)).None() {
			a.Panel.ServeHTTP(w, r)
			return
		}
		chat(w, r)
	}
}

// Refused implements [webapp.Server].
func (a *API) Refused(kind protocol.Kind) {
	a.Metrics.SocketsRefused.WithLabelValues(kind.String()).Inc()
}

// Serve implements [webapp.Server].
func (a *API) Serve(conn *gateway.Conn, c webapp.Caller) {
	defer conn.End(nil, nil)
	socket, err := a.Hubs.Socket(conn, chathub.Guest{Grant: c.Grant, Token: c.Token, Session: c.Session})
	if err != nil {
		e := protocol.AsError(err)
		conn.Close(e.Kind.CloseCode(), e.Kind.Text())
		return
	}
	ctx, cancel := context.WithCancel(context.Background()) // the request's context ends with the hijack
	defer cancel()
	one := &client{api: a, socket: socket, user: c.Grant.Subject, session: c.Session, ctx: ctx}
	if c.App.ID != "" {
		defer a.Desk.Apps.Attend(c.App, c.Grant, one)()
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
