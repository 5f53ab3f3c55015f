package sandboxapi

import (
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// startAgent is POST …/agent {name, command, args}: 200 {state}.
func (a *API) startAgent(w http.ResponseWriter, r *http.Request) {
	var start op.AgentStart
	grant, token, err := a.authorize(r, protocol.CapAgent)
	if err == nil && r.ContentLength != 0 {
		err = access.ReadJSON(w, r, &start)
	}
	at := protocol.CommandTarget{}
	if err == nil {
		at = target(r, grant)
		ownCommand := start.Command != "" || len(start.Args) > 0
		if ownCommand && !grant.Allows(at.SessionID, at.PTYID, protocol.CapShell) {
			err = protocol.Errorf(protocol.KindForbidden, "the grant does not allow to say what an agent runs: that needs %q", protocol.CapShell)
		}
	}
	var result protocol.OpResult
	if err == nil {
		result, err = a.change(r, token, op.Op{Kind: op.KindAgentStart, Body: &start}, at)
	}
	a.writeState(w, result, err)
}

// steerAgent serves POST …/agent/pause, /resume and /stop: 200 {state}.
func (a *API) steerAgent(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grant, token, err := a.authorize(r, protocol.CapAgent)
		var result protocol.OpResult
		if err == nil {
			result, err = a.change(r, token, op.Op{Kind: kind}, target(r, grant))
		}
		a.writeState(w, result, err)
	}
}

// writeState answers with the state that an agent is in.
func (a *API) writeState(w http.ResponseWriter, result protocol.OpResult, err error) {
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]protocol.AgentState{"state": result.AgentState})
}

// signal is POST …/signal {signal}: 204.
func (a *API) signal(w http.ResponseWriter, r *http.Request) {
	var body op.PTYSignal
	grant, token, err := a.authorize(r, protocol.CapShell)
	if err == nil {
		err = access.ReadJSON(w, r, &body)
	}
	if err == nil && body.Signal == "" {
		err = protocol.Errorf(protocol.KindInvalid, "signal is missing")
	}
	if err == nil {
		_, err = a.change(r, token, op.Op{Kind: op.KindPTYSignal, Body: &body}, target(r, grant))
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
