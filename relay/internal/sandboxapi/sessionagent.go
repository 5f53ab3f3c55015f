package sandboxapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
)

// defaultAgent runs if a client of seed 001 starts an agent without naming one.
var defaultAgent = op.AgentStart{Name: "shell", Command: `exec "${SHELL:-/bin/sh}"`}

// registerSessionAgent adds the routes of the agent that belongs to a session.
// It has a terminal of its own, [protocol.SessionAgent], on which these routes
// act.
func (a *API) registerSessionAgent(mux access.Router) {
	mux.HandleFunc("POST /sessions/{sid}/agent", inItsTerminal(a.startSessionAgent))
	mux.HandleFunc("POST /sessions/{sid}/agent/pause", inItsTerminal(a.steerAgent(op.KindAgentPause)))
	mux.HandleFunc("POST /sessions/{sid}/agent/resume", inItsTerminal(a.steerAgent(op.KindAgentResume)))
	mux.HandleFunc("POST /sessions/{sid}/agent/stop", inItsTerminal(a.stopSessionAgent))
}

// inItsTerminal makes a handler act on the session agent's terminal, as if the
// path named it.
func inItsTerminal(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.SetPathValue("pid", string(protocol.SessionAgent(protocol.SessionID(r.PathValue("sid")))))
		handler(w, r)
	}
}

// startSessionAgent is POST /sessions/{sid}/agent: 201 {id, state}. It makes
// the terminal and starts the agent in it; if the agent doesn't start, it
// closes the terminal.
func (a *API) startSessionAgent(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapAgent)
	if err == nil {
		_, _, err = a.authorize(r, protocol.CapShell)
	}
	start := op.AgentStart{}
	if err == nil && r.ContentLength != 0 {
		err = access.ReadJSON(w, r, &start)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	if start.Name == "" && start.Command == "" {
		start = defaultAgent
	}
	at := target(r, grant)
	_, err = a.change(keyed(r, op.KindPTYCreate), token, op.Op{Kind: op.KindPTYCreate, Body: &op.PTYCreate{CreatorID: grant.Subject}}, at)
	if err != nil {
		a.refuse(w, err)
		return
	}
	result, err := a.change(keyed(r, op.KindAgentStart), token, op.Op{Kind: op.KindAgentStart, Body: &start}, at)
	if err != nil {
		undo := keyed(r, op.KindPTYClose).WithContext(context.WithoutCancel(r.Context()))
		if _, failed := a.change(undo, token, op.Op{Kind: op.KindPTYClose}, at); failed != nil {
			a.Log.Info("the terminal of an agent that didn't start stays", "session", at.SessionID, "err", failed)
		}
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusCreated, protocol.SessionAgentInfo{ID: at.PTYID, State: result.AgentState})
}

// stopSessionAgent is POST /sessions/{sid}/agent/stop: 204. It also closes the
// agent's terminal.
func (a *API) stopSessionAgent(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapAgent)
	if err == nil {
		_, _, err = a.authorize(r, protocol.CapShell)
	}
	if err == nil {
		_, err = a.change(keyed(r, op.KindAgentStop), token, op.Op{Kind: op.KindAgentStop}, target(r, grant))
	}
	if err == nil {
		_, err = a.change(keyed(r, op.KindPTYClose), token, op.Op{Kind: op.KindPTYClose}, target(r, grant))
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// keyed returns r with an Idempotency-Key derived for one of its commands: one
// key stands for one command.
func keyed(r *http.Request, kind string) *http.Request {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return r
	}
	r = r.Clone(r.Context())
	sum := sha256.Sum256([]byte(kind + "\x00" + key))
	r.Header.Set("Idempotency-Key", hex.EncodeToString(sum[:]))
	return r
}
