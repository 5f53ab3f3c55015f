// Package panelapi is the side panel's terminal at the relay (seed 000): what opens
// it, its socket, and its routes.
package panelapi

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/tunnel"
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// API serves the routes and the sockets. It must be closed. Its routes exist only
// where extensions are listed.
type API struct {
	// Static.
	Origins    *access.Origins
	Keys       *jws.Keys
	Grants     *lifetime.Grants
	Hubs       *hub.Set
	Tunnels    Tunnels
	Signer     *dispatch.Signer
	Dispatcher *dispatch.Dispatcher
	Rejects    *rejects.Rejects
	Metrics    *Metrics
	// SocketsPerPerson bounds the panel's sockets of one person; default
	// [gateway.DefaultSocketsPerPerson].
	SocketsPerPerson int
	Revision         string
	Log              *slog.Logger

	passes passes
	people gateway.Tally
	here   here
	claude probes[available]
	agents probes[working]

	tasks gateway.Tasks // sockets, and what goes on without them
}

// Close ends the sockets and waits for them and for what they have asked for, until
// ctx ends; that ends by itself within a minute.
func (a *API) Close(ctx context.Context) { a.tasks.Close(ctx, a.here.leave) }

// needs is what a grant must carry in its session to open the terminal.
var needs = []protocol.Capability{protocol.CapView, protocol.CapControl, protocol.CapShell}

// may fails unless a grant names its session and allows what the panel does in a
// terminal there, any if pty is empty.
func may(grant *jws.Grant, pty protocol.PTYID) error {
	if grant.Session == "" {
		return protocol.Errorf(protocol.KindInvalid, "the grant must name its session")
	}
	for _, need := range needs {
		if !grant.Allows(grant.Session, pty, need) {
			return protocol.Errorf(protocol.KindForbidden, "the grant does not allow %q here", need)
		}
	}
	return nil
}

// authorize returns the grant that r bears, which must allow the terminal. The
// panel's sockets of the same person go on under it if it is newer than theirs.
func (a *API) authorize(r *http.Request) (*jws.Grant, string, error) {
	grant, token, err := access.Grant(r, a.Keys)
	if err == nil {
		err = may(grant, "")
	}
	if err != nil {
		return nil, "", err
	}
	a.Renew(grant, token)
	return grant, token, nil
}

// Renew has the panel's sockets of a grant's person in its session go on under it,
// which was just verified. The seed's panel can't say that its grant is renewed: it
// only uses the new one.
func (a *API) Renew(grant *jws.Grant, token string) { a.here.renew(grant, token) }

// refuse answers with err as the seed's server does, and counts it.
func (a *API) refuse(w http.ResponseWriter, err error) {
	a.Rejects.Count(rejects.Request, err)
	e := protocol.AsError(err)
	text := e.Error()
	if e.Kind.Status() == http.StatusUnauthorized {
		text = "Unauthorized"
	}
	answer(w, e.Kind.Status(), map[string]any{"error": text})
}

// answer answers with JSON.
func answer(w http.ResponseWriter, status int, v any) { access.WriteJSON(w, status, v) }
