package panelapi

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// pingInterval is how often an unopened socket is pinged, and pongTimeout when it
	// counts as dead. Later the hub does that.
	pingInterval = 25 * time.Second
	pongTimeout  = 60 * time.Second // it has had two pings by then
	// leaveTime bounds the end of a terminal whose panel has closed its socket.
	leaveTime = 10 * time.Second
)

// subprotocol begins the token's subprotocol.
const subprotocol = "gstack-pty."

// offered returns what r presents, and the subprotocol to echo.
func (a *API) offered(r *http.Request) (with presented, echo []string) {
	with.origin, _ = a.Origins.Extension(r)
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			name = strings.TrimSpace(name)
			if token, found := strings.CutPrefix(name, subprotocol); found || name != "" {
				with.token, with.tokens = token, true // a bare one is a token, too
				return with, []string{name}
			}
		}
	}
	for _, name := range []string{access.PanelCookieName, access.PanelSocketCookieName} {
		if c, err := r.Cookie(name); err == nil && with.cookie == "" {
			with.cookie = c.Value
		}
	}
	return with, nil
}

// Socket is GET /ws of an extension that presents nothing of the chat's. It refuses
// before the upgrade, in the words of the seed's terminal agent.
func (a *API) Socket(w http.ResponseWriter, r *http.Request) {
	with, echo := a.offered(r)
	p, err := a.admit(r, with)
	if err != nil {
		kind := protocol.KindOf(err)
		a.Metrics.Refused.WithLabelValues(kind.String()).Inc()
		a.Log.Debug("panel socket refused", "kind", kind, "err", err)
		refuseSocket(w, kind)
		return
	}
	since, err := protocol.ParsePosition(r.URL.Query().Get(protocol.QuerySince))
	leave, full := a.people.Enter(p.grant.Subject, cmp.Or(a.SocketsPerPerson, gateway.DefaultSocketsPerPerson))
	if full != nil {
		a.Metrics.Refused.WithLabelValues(protocol.KindTooMany.String()).Inc()
		refuseSocket(w, protocol.KindTooMany)
		return
	}
	conn, failed := gateway.Upgrade(w, r, echo, protocol.MaxBrowserMessage)
	if failed != nil {
		leave()
		a.Log.Debug("upgrade failed", "err", failed) // the library has answered
		return
	}
	s := &socket{api: a, conn: conn, pass: p, by: under{p.grant, p.bearer}, detach: detachClose, cols: defaultCols, rows: defaultRows,
		ends: make(chan ending, 1)}
	if with.tokens {
		s.detach = detachKeep
	}
	if err == nil {
		s.since = &since
	}
	// The request's goroutine would keep its headers, its buffers and a deep stack for
	// as long as the socket lives.
	if !a.tasks.Go(func() {
		defer leave()
		s.serve()
	}) {
		leave()
		conn.Close(protocol.KindRestarting.CloseCode(), protocol.KindRestarting.Text())
		conn.End(nil, nil)
	}
}

// refusals are the seed's words for refusing a socket.
var refusals = map[int]string{
	http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusBadRequest: "bad",
}

func refuseSocket(w http.ResponseWriter, kind protocol.Kind) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(kind.Status())
	io.WriteString(w, cmp.Or(refusals[kind.Status()], kind.Text()))
}

// admit checks, in this order: the request's form (its Origin was checked, as Host
// was for every route), the pass, its grant.
func (a *API) admit(r *http.Request, with presented) (pass, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return pass{}, protocol.Fault(protocol.KindInvalid, nil) // checked before a pass is spent
	}
	p, err := a.passes.redeem(with)
	if err == nil {
		err = a.Grants.Check(p.grant)
	}
	if err == nil {
		err = may(p.grant, p.pty)
	}
	return p, err
}

// A socket is a panel's, open until it or its terminal ends.
type socket struct {
	// Static after construction.
	api    *API
	conn   *gateway.Conn
	pass   pass
	since  *protocol.Position // where its client's output ends; nil: it has none
	detach op.OnDetach
	ends   chan ending // 1 element: how the relay ends it

	// Owned by serve.
	cols, rows int
	handle     *hub.Handle // nil: there is no terminal yet
	viewer     *hub.Viewer // nil: there is no terminal yet
	face       *face
	started    bool           // it was typed into
	running    sync.WaitGroup // part waits for it
	tabs       *tabs
	use        *lifetime.Use

	joined atomic.Bool // the hub looks after it
	ended  atomic.Bool // the relay ends it

	mu sync.Mutex
	// Guarded by mu.
	by    under
	shown *hub.Viewer // viewer, for those who renew it
}

// An ending is how the relay ends a socket.
type ending struct {
	code   int
	reason string
}

// endingOf returns the ending for an error's kind.
func endingOf(kind protocol.Kind) ending { return ending{kind.CloseCode(), kind.Text()} }

// end has the socket ended. It doesn't wait.
func (s *socket) end(how ending) {
	s.ended.Store(true)
	select {
	case s.ends <- how:
	default: // it is being ended
	}
}

// await ends the socket when it is told to, until ctx ends.
func (s *socket) await(ctx context.Context, cancel func()) {
	select {
	case how := <-s.ends:
		s.conn.Close(how.code, how.reason)
		cancel()
	case <-ctx.Done():
	}
}

// serve serves the socket until it ends.
func (s *socket) serve() {
	a := s.api
	a.Metrics.Sockets.Inc()
	defer a.Metrics.Sockets.Dec()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.running.Go(func() { s.await(ctx, cancel) })
	var err error
	s.use, err = a.Grants.Begin(s.pass.grant, func(error) { s.end(endingOf(protocol.KindExpired)) })
	if err != nil {
		s.end(endingOf(protocol.KindExpired))
	}
	defer s.use.Stop()
	s.tabs = &tabs{ctx: ctx, by: s}
	left := a.here.enter(place{s.pass.grant.Subject, s.pass.grant.Session}, s.pass.pty, s)
	s.keepAlive(ctx)
	if err == nil && s.pass.again {
		err = s.open(ctx)
	}
	if err == nil {
		err = s.read(ctx)
	}
	left()
	s.part(cancel, err)
}

// part ends the socket after err.
func (s *socket) part(cancel context.CancelFunc, err error) {
	if known, ok := errors.AsType[*protocol.Error](err); ok { // ours, not the socket's
		s.sayWhy(known)
	}
	if s.handle != nil {
		s.viewer.Leave()
	}
	cancel()
	s.conn.End(err, s.api.Rejects)
	s.running.Wait()
	if s.handle == nil {
		return
	}
	s.handle.Release()
	switch int(websocket.CloseStatus(err)) {
	case closeExited, closeRestart, closeNoClaude: // the panel won't come back
		if s.detach == detachKeep && !s.face.ended.Load() && !s.ended.Load() {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
			defer cancel()
			_ = s.api.closeTerminal(ctx, s.bearer(), s.pass.pty) // else it ends by itself, later
		}
	}
}

// sayWhy tells the panel of an error, and ends the socket.
func (s *socket) sayWhy(err *protocol.Error) {
	said := map[string]any{"type": "error", "code": err.Kind.Name(), "message": err.Error()}
	s.write(said)
	s.conn.Close(err.Kind.CloseCode(), err.Kind.Text())
}

// write writes one text frame.
func (s *socket) write(v any) {
	_ = s.conn.WriteFrames(net.Buffers{replay.AppendTextFrame(nil, encode(v))}) // the reader sees that it is over
}

// keepAlive pings a socket as long as it has no terminal, and ends a dead one. Later
// the hub does that.
func (s *socket) keepAlive(ctx context.Context) {
	timer := time.AfterFunc(pingInterval, func() {
		switch {
		case ctx.Err() != nil || s.joined.Load():
		case time.Since(s.conn.LastHeard()) > pongTimeout:
			s.end(endingOf(protocol.KindUnavailable))
		case s.conn.Ping() == nil:
			s.keepAlive(ctx)
		}
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// open makes the terminal, if it isn't there, and joins it.
func (s *socket) open(ctx context.Context) error {
	a, by := s.api, s.bearer()
	if !s.pass.again {
		if err := a.createTerminal(ctx, by, s.pass.pty, s.cols, s.rows, s.detach); err != nil {
			return protocol.AsError(err)
		}
	}
	key := hub.Key{Sandbox: by.grant.Sandbox, Session: by.grant.Session, PTY: s.pass.pty}
	handle, err := a.Hubs.Open(ctx, key, by.grant, by.bearer)
	if err != nil {
		if elsewhere, ok := errors.AsType[*tunnel.StandbyError](err); ok && elsewhere.Origin != "" {
			s.write(map[string]any{"type": protocol.ServerMoved, "origin": elsewhere.Origin})
			return protocol.Fault(protocol.KindRestarting, err)
		}
		return protocol.AsError(err)
	}
	s.handle = handle
	s.face = &face{
		wire: s.conn, session: s.pass.pty, later: s.detach == detachKeep, again: s.pass.again,
		prober: s,
	}
	guest := hub.Guest{
		Grant: by.grant, Token: by.bearer, Since: s.since, Socket: s.face,
	}
	viewer := handle.Join(guest)
	s.viewer = viewer
	s.mu.Lock()
	s.shown = viewer
	newer := s.by
	s.mu.Unlock()
	if newer.grant != by.grant {
		viewer.Reauth(newer.grant, newer.bearer)
	}
	s.joined.Store(true)
	s.running.Go(func() {
		viewer.Serve(ctx)
		s.conn.End(nil, nil) // so that the reader ends, too
	})
	s.tabs.opened()
	return nil
}

// tell tells the sandbox which tab is shown.
func (s *socket) tell(ctx context.Context, now tab) {
	if err := s.api.showTab(ctx, s.bearer(), s.pass.pty, now); err != nil {
		s.api.Log.Debug("tab not shown", "pty", s.pass.pty, "err", err) // the next one comes
	}
}

// begin implements [teller].
func (s *socket) begin(fn func()) bool { return s.api.tasks.Go(fn) }

// skipped implements [teller].
func (s *socket) skipped() { s.api.Metrics.TabsSkipped.Inc() }

// missing reports whether the sandbox says that it hasn't got the program.
func (s *socket) missing() bool {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	said, err := s.api.probe(ctx, s.bearer())
	return err == nil && !said.Available
}

// read obeys the panel's frames until the socket ends.
func (s *socket) read(ctx context.Context) error {
	for {
		kind, data, err := s.conn.Read(ctx)
		switch {
		case err != nil:
			return err
		case kind == websocket.MessageBinary:
			err = s.typed(ctx, data)
		default:
			err = s.obey(ctx, data)
		}
		if err != nil {
			return err
		}
	}
}

// typed passes on what was typed. The first byte starts the program.
func (s *socket) typed(ctx context.Context, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if s.handle == nil {
		if err := s.open(ctx); err != nil {
			return err
		}
	}
	s.started = true
	return s.viewer.Type(ctx, data)
}

// obey handles a text frame. It fails when the terminal can't be had.
func (s *socket) obey(ctx context.Context, data []byte) error {
	f, ok := decodeFrame(data)
	if !ok {
		s.api.Metrics.Ignored.Inc()
		return nil
	}
	switch f.Type {
	case frameResize:
		s.cols, s.rows = f.Cols, f.Rows
		if s.handle == nil {
			return s.open(ctx)
		}
		s.viewer.Say(protocol.ClientMessage{Type: protocol.ClientResize, Cols: f.Cols, Rows: f.Rows})
	case frameStart:
		if !s.started && !s.pass.again {
			return s.typed(ctx, []byte{'\n'})
		}
	case frameTabSwitch, frameTabState:
		s.tabs.show(f.Tab)
	case framePing:
		s.write(map[string]any{"type": framePong, "ts": f.TS})
	case frameReauth:
		s.reauth(ctx, f.Grant)
	}
	return nil
}

// reauth puts the socket under a newer grant that the panel sends.
func (s *socket) reauth(ctx context.Context, bearer string) {
	grant, err := s.api.Keys.Grant(ctx, bearer)
	if err == nil {
		err = access.Current(grant)
	}
	if err == nil && (grant.Subject != s.pass.grant.Subject || grant.Session != s.pass.grant.Session || grant.Sandbox != s.pass.grant.Sandbox) {
		err = protocol.Errorf(protocol.KindForbidden, "the grant is not for this user and terminal")
	}
	if err == nil {
		err = may(grant, s.pass.pty)
	}
	if err != nil {
		e := protocol.AsError(err)
		s.write(map[string]any{"type": "error", "code": e.Kind.Name(), "message": e.Error()})
		return
	}
	s.renew(grant, bearer)
}

// renew implements [present].
func (s *socket) renew(grant *jws.Grant, bearer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if grant.Sandbox != s.by.grant.Sandbox || grant.ExpiresAt <= s.by.grant.ExpiresAt || may(grant, s.pass.pty) != nil || s.use.Renew(grant) != nil {
		return
	}
	s.by = under{grant, strings.Clone(bearer)}
	if s.shown != nil {
		s.shown.Reauth(grant, s.by.bearer)
	}
}

// restarted implements [present].
func (s *socket) restarted() { s.end(ending{closeRestart, "restarted"}) }

// leave implements [present].
func (s *socket) leave() { s.end(endingOf(protocol.KindRestarting)) }

// bearer returns on whose behalf the socket is open.
func (s *socket) bearer() under {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by
}
