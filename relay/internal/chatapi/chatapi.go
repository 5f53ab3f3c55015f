// Package chatapi is the outside of chat at the relay: the chat socket, what opens
// it, and the routes of the web client (seed 002).
package chatapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// commandTimeout bounds a change, from the client's request to the sandbox's answer.
const commandTimeout = time.Minute

// API serves the routes and the sockets. It must be closed.
type API struct {
	// Static.
	Origins    *access.Origins
	Tickets    *access.TicketStore // chat's own
	Apps       *access.AppSessions
	Grants     *lifetime.Grants
	Keys       *jws.Keys
	Hubs       *chathub.Set
	Tunnels    Tunnels
	Signer     *dispatch.Signer
	Dispatcher *dispatch.Dispatcher
	Requests   *reverseproxy.Requests
	Rejects    *rejects.Rejects
	Metrics    *Metrics
	// SocketsPerPerson bounds the chat sockets of one person; default
	// [gateway.DefaultSocketsPerPerson].
	SocketsPerPerson int
	Log              *slog.Logger

	people  gateway.Tally
	weight  weights
	resends resends
	proxy   *reverseproxy.Proxy

	// What a socket's client has asked for goes on without the socket. Nothing is
	// added once closed is set.
	running sync.WaitGroup
	mu      sync.Mutex
	closed  bool // guarded by mu
}

// Close waits for what clients have asked for, until ctx ends; it ends by itself
// within a minute. The sockets are the hubs' to end.
func (a *API) Close(ctx context.Context) {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	over := make(chan struct{})
	go func() { // ends with what runs
		a.running.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// begin runs fn on a goroutine that Close waits for. It reports whether it does:
// not once the API is closed.
func (a *API) begin(fn func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.running.Go(fn)
	}
	return !a.closed
}

// A caller is whoever has sent a request.
type caller struct {
	grant   *jws.Grant
	token   string
	session protocol.SessionID
	app     access.AppSession // its zero value: the request bears the grant itself
}

// errNoSession says that a grant for all sessions of a dashboard isn't enough.
var errNoSession = protocol.Errorf(protocol.KindInvalid, "the grant must name its session")

// bearer returns the caller whose grant r bears.
func (a *API) bearer(r *http.Request) (caller, error) {
	grant, token, err := access.Grant(r, a.Keys)
	if err != nil {
		return caller{}, err
	}
	return caller{grant: grant, token: token, session: grant.Session}, nil
}

// fromCookie returns the caller whose cookie of the web client r has.
func (a *API) fromCookie(r *http.Request) (caller, error) {
	app, err := a.Apps.Presented(r)
	if err != nil {
		return caller{}, err
	}
	grant, err := access.Verified(r, a.Keys, app.Token)
	if err != nil {
		return caller{}, err
	}
	if grant.Subject != app.User {
		return caller{}, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	return caller{grant: grant, token: app.Token, session: app.Session, app: app}, nil
}

// identify returns the caller of r. A grant that r bears alone decides.
func (a *API) identify(r *http.Request) (caller, error) {
	if _, bears := r.Header["Authorization"]; bears {
		return a.bearer(r)
	}
	return a.fromCookie(r)
}

// authorize returns the caller of a route of the web client, who must have need in
// the session. The cookie, which a browser sends by itself, is for pages of ours
// alone, which methods that change something must come from. Who bears a grant may
// be no page; Guard has checked an Origin that is sent.
func (a *API) authorize(r *http.Request, need protocol.Capability) (caller, error) {
	if _, bears := r.Header["Authorization"]; !bears {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		if err := a.Origins.FromOwnPage(r, reads); err != nil {
			return caller{}, err
		}
	}
	c, err := a.identify(r)
	switch {
	case err != nil:
		return caller{}, err
	case c.session == "":
		return caller{}, errNoSession
	case !c.grant.Allows(c.session, "", need):
		return caller{}, protocol.Errorf(protocol.KindForbidden, "the grant does not allow %q here", need)
	}
	return c, nil
}

// refuse answers with err and counts it.
func (a *API) refuse(w http.ResponseWriter, err error) {
	a.Rejects.Count(rejects.Request, err)
	access.WriteError(w, err)
}
