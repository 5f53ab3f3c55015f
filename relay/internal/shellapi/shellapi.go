// Package shellapi is the shell socket of the web client (seed 002): terminals as
// that client knows them.
package shellapi

import (
	"context"
	"log/slog"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/webapp"
)

// SocketPath is the path of the socket.
const SocketPath = "/shell"

// maxFrame bounds a frame of a client, in bytes. A paste is in one, escaped.
const maxFrame = 1 << 20

// API serves the sockets. It must be closed.
type API struct {
	// Static.
	Desk       *webapp.Desk
	Hubs       *hub.Set
	Signer     *dispatch.Signer
	Dispatcher *dispatch.Dispatcher
	Rejects    *rejects.Rejects
	Metrics    *Metrics
	Log        *slog.Logger

	serving sync.WaitGroup // of sockets; only added to before closed is set

	mu sync.Mutex
	// Guarded by mu.
	closed  bool
	sockets map[*socket]struct{}
}

// Register adds the route.
func (a *API) Register(mux access.Router) {
	mux.HandleFunc("GET "+SocketPath, a.Desk.Socket(webapp.Route{
		Name: "shell", Need: protocol.CapView, MaxFrame: maxFrame, To: a,
	}))
}

// Refused implements [webapp.Server].
func (a *API) Refused(kind protocol.Kind) { a.Metrics.Refused.WithLabelValues(kind.String()).Inc() }

// Serve implements [webapp.Server].
func (a *API) Serve(conn *gateway.Conn, c webapp.Caller) {
	s := newSocket(opener{a.Hubs, a.Signer, a.Dispatcher}, a.Metrics, conn, c)
	if !a.enter(s) {
		conn.Close(protocol.KindRestarting.CloseCode(), protocol.KindRestarting.Text())
		conn.End(nil, nil)
		return
	}
	defer a.leave(s)
	use, err := a.Desk.Grants.Begin(c.Grant, s.grantOver)
	if err != nil {
		s.grantOver(err)
	} else {
		defer use.Stop()
		s.use = use
		if c.App.ID != "" {
			defer a.Desk.Apps.Attend(c.App, c.Grant, s)()
		}
	}
	err = s.read()
	s.over()
	conn.End(err, a.Rejects)
	s.closing.Wait()
}

// enter adds a socket, unless the API is closed.
func (a *API) enter(s *socket) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if a.sockets == nil {
		a.sockets = map[*socket]struct{}{}
	}
	a.sockets[s] = struct{}{}
	a.serving.Add(1)
	a.Metrics.Sockets.Inc()
	return true
}

func (a *API) leave(s *socket) {
	a.mu.Lock()
	delete(a.sockets, s)
	a.mu.Unlock()
	a.Metrics.Sockets.Dec()
	a.serving.Done()
}

// Close tells all clients to come again, and waits for their sockets until ctx ends.
func (a *API) Close(ctx context.Context) {
	a.mu.Lock()
	a.closed = true
	for s := range a.sockets {
		s.end(protocol.KindRestarting, protocol.KindRestarting.Text())
	}
	a.mu.Unlock()
	over := make(chan struct{})
	go func() { // ends with the sockets
		a.serving.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}
