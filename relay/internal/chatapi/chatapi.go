// Package chatapi is the outside of chat at the relay: the chat socket, what opens
// it, and the routes of the web client (seed 002).
package chatapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/chathub"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/relay/internal/webapp"
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
	Desk       *webapp.Desk
	Hubs       *chathub.Set
	Tunnels    Tunnels
	Signer     *dispatch.Signer
	Dispatcher *dispatch.Dispatcher
	Requests   *reverseproxy.Requests
	Rejects    *rejects.Rejects
	Metrics    *Metrics
	Log        *slog.Logger
	// Panel serves GET /ws for the side panels of listed extensions; nil: nobody does.
	Panel http.Handler

	weight  weights
	resends resends
	proxy   *reverseproxy.Proxy

	tasks gateway.Tasks // what a socket's client has asked for goes on without the socket
}

// Close waits for what clients have asked for, until ctx ends; it ends by itself
// within a minute. The sockets are the hubs' to end.
func (a *API) Close(ctx context.Context) { a.tasks.Close(ctx, nil) }

// refuse answers with err and counts it.
func (a *API) refuse(w http.ResponseWriter, err error) {
	a.Rejects.Count(rejects.Request, err)
	access.WriteError(w, err)
}
