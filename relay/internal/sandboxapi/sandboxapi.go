// Package sandboxapi serves the REST routes of a session: reads go to the
// sandbox over its tunnel, changes become commands that the control plane
// signs.
package sandboxapi

import (
	"log/slog"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// API serves the routes.
type API struct {
	Keys       *jws.Keys
	Tunnels    Tunnels
	Signer     *dispatch.Signer
	Dispatcher *dispatch.Dispatcher
	Requests   *reverseproxy.Requests
	Rejects    *rejects.Rejects
	Revision   string
	Log        *slog.Logger

	followers followers
}

// refuse answers with err and counts it.
func (a *API) refuse(w http.ResponseWriter, err error) {
	a.Rejects.Count(rejects.Request, err)
	access.WriteError(w, err)
}

// authorize returns r's grant if it allows need on the session and terminal in
// the path.
func (a *API) authorize(r *http.Request, need protocol.Capability) (*jws.Grant, string, error) {
	grant, token, err := access.Grant(r, a.Keys)
	if err != nil {
		return nil, "", err
	}
	session, pty := protocol.SessionID(r.PathValue("sid")), protocol.PTYID(r.PathValue("pid"))
	if !protocol.ValidID(session) || (pty != "" && !protocol.ValidID(pty)) {
		return nil, "", protocol.Fault(protocol.KindInvalid, nil)
	}
	if !grant.Allows(session, pty, need) {
		return nil, "", protocol.Errorf(protocol.KindForbidden, "the grant does not allow %q here", need)
	}
	return grant, token, nil
}
