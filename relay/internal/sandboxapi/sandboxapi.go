// Package sandboxapi serves the REST routes of a session: reads go to the
// sandbox over its tunnel, changes become commands that the control plane
// signs.
package sandboxapi

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/rejects"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
	"github.com/fairlead/fairlead/tunnel"
)

// changeTimeout bounds a change, from the request to the sandbox's answer.
const changeTimeout = 30 * time.Second

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

// Register adds the routes.
func (a *API) Register(mux access.Router) {
	proxy := a.proxy(answerTimeout)
	for pattern, need := range proxied {
		mux.HandleFunc(pattern, a.pass(need, proxy))
	}
	tools := a.proxy(0)
	for _, pattern := range toolRoutes {
		mux.HandleFunc(pattern, a.pass(protocol.CapMCP, tools))
	}
	mux.HandleFunc("OPTIONS /sessions/{sid}/uploads", tusOptions)
	mux.HandleFunc("OPTIONS /sessions/{sid}/uploads/{uid}", tusOptions)
	mux.HandleFunc("POST /sessions/{sid}/ptys", a.createPTY)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}", a.closePTY)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/signal", a.signal)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/share", a.share)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent", a.startAgent)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/pause", a.steerAgent(op.KindAgentPause))
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/resume", a.steerAgent(op.KindAgentResume))
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/stop", a.steerAgent(op.KindAgentStop))
	a.registerSessionAgent(mux)
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/log", a.readLog)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/recording", a.startRecording)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}/recording", a.stopRecording)
	mux.HandleFunc("POST /sessions/{sid}/env", a.applyEnv)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/env", a.applyEnv)
	mux.HandleFunc("GET /sessions/{sid}/approvals/events", a.followApprovals)
	mux.HandleFunc("POST /sessions/{sid}/approvals/{aid}", a.decide)
	mux.HandleFunc("POST /sessions/{sid}/egress/approve", a.approveEgress)
	mux.HandleFunc("POST /sessions/{sid}/egress/revoke", a.revokeEgress)
}

// proxied are the routes that the sandbox itself answers, with the capability
// that each needs.
var proxied = map[string]protocol.Capability{
	"GET /sessions/{sid}/ptys":             protocol.CapView,
	"GET /sessions/{sid}/agent":            protocol.CapView,
	"GET /sessions/{sid}/recordings":       protocol.CapView,
	"GET /sessions/{sid}/recordings/{rid}": protocol.CapView,
	"GET /sessions/{sid}/files":            protocol.CapFilesRead,
	"GET /sessions/{sid}/files/archive":    protocol.CapFilesRead,
	"GET /sessions/{sid}/files/watch":      protocol.CapFilesRead,
	"POST /sessions/{sid}/files/mkdir":     protocol.CapFilesWrite,
	"POST /sessions/{sid}/files/move":      protocol.CapFilesWrite,
	"GET /sessions/{sid}/file":             protocol.CapFilesRead,
	"PUT /sessions/{sid}/file":             protocol.CapFilesWrite,
	"DELETE /sessions/{sid}/file":          protocol.CapFilesWrite,
	"GET /sessions/{sid}/file/stat":        protocol.CapFilesRead,
	"POST /sessions/{sid}/upload":          protocol.CapFilesWrite,
	"POST /sessions/{sid}/uploads":         protocol.CapFilesWrite,
	"HEAD /sessions/{sid}/uploads/{uid}":   protocol.CapFilesWrite,
	"PATCH /sessions/{sid}/uploads/{uid}":  protocol.CapFilesWrite,
	"DELETE /sessions/{sid}/uploads/{uid}": protocol.CapFilesWrite,
	"GET /sessions/{sid}/env":              protocol.CapEnv,
	"GET /sessions/{sid}/approvals":        protocol.CapApprove,
	"GET /sessions/{sid}/egress/pending":   protocol.CapApprove,
	"GET /sessions/{sid}/egress/allowlist": protocol.CapApprove,
	"GET /sessions/{sid}/metrics":          protocol.CapView,
	"GET /sessions/{sid}/browser":          protocol.CapView,
	"GET /sessions/{sid}/browser/frames":   protocol.CapView,
}

// toolRoutes are those of the sandbox's tools. They need the capability mcp; an
// answer takes as long as the tool.
var toolRoutes = []string{
	"GET /sessions/{sid}/mcp", "POST /sessions/{sid}/mcp", "DELETE /sessions/{sid}/mcp",
	"GET /sessions/{sid}/mcp/tools", "POST /sessions/{sid}/mcp/tools/call", "GET /sessions/{sid}/mcp/items",
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

// createPTY is POST /sessions/{sid}/ptys (seed 001): 201 {id}.
func (a *API) createPTY(w http.ResponseWriter, r *http.Request) {
	var body struct {
		CreatorID protocol.UserID `json:"creator_id"` // accepted for seed 001's clients; the grant's user counts
		PTYID     protocol.PTYID  `json:"pty_id"`
		Command   string          `json:"command"`
		Dir       string          `json:"working_dir"`
		Cols      int             `json:"cols"`
		Rows      int             `json:"rows"`
		Record    bool            `json:"record"` // from its first byte; needs the capability record
		Egress    *bool           `json:"egress_enabled"`
	}
	grant, token, err := a.authorize(r, protocol.CapShell)
	if err == nil && r.ContentLength != 0 {
		err = access.ReadJSON(w, r, &body)
	}
	if err == nil && body.PTYID != "" && !protocol.ValidID(body.PTYID) {
		err = protocol.Errorf(protocol.KindInvalid, "pty_id must be an id")
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	create := op.Op{Kind: op.KindPTYCreate, Body: &op.PTYCreate{
		CreatorID: grant.Subject, Command: body.Command, Dir: body.Dir, Cols: body.Cols, Rows: body.Rows,
		Record: body.Record, Egress: body.Egress,
	}}
	at := target(r, grant)
	at.PTYID = body.PTYID
	result, err := a.change(r, token, create, at)
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusCreated, map[string]string{"id": string(result.PTYID), "revision": a.Revision})
}

// closePTY is DELETE /sessions/{sid}/ptys/{pid}: 204.
func (a *API) closePTY(w http.ResponseWriter, r *http.Request) {
	grant, token, err := a.authorize(r, protocol.CapShell)
	if err != nil {
		a.refuse(w, err)
		return
	}
	_, err = a.change(r, token, op.Op{Kind: op.KindPTYClose}, target(r, grant))
	if err != nil {
		a.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// target returns what the path names, in the grant's sandbox.
func target(r *http.Request, grant *jws.Grant) protocol.CommandTarget {
	return protocol.CommandTarget{
		SandboxID: grant.Sandbox,
		SessionID: protocol.SessionID(r.PathValue("sid")),
		PTYID:     protocol.PTYID(r.PathValue("pid")),
	}
}

// times bound a change.
type times struct {
	sign time.Duration // the control plane's answer
	all  time.Duration // from the request to the sandbox's answer
}

var (
	changeTimes = times{changeTimeout, changeTimeout}
	// Decisions and secrets: a decision has a deadline, and a secret should be
	// held briefly. So a failure should be reported soon.
	decideTimes = times{4 * time.Second, changeTimeout}
)

// An unsignedError says that the control plane didn't sign.
type unsignedError struct{ err error }

func (e *unsignedError) Error() string { return e.err.Error() }
func (e *unsignedError) Unwrap() error { return e.err }

// change has do signed for grant, runs it in the sandbox and returns the
// result. The request's Idempotency-Key makes a retry the same command.
func (a *API) change(r *http.Request, grant string, do op.Op, target protocol.CommandTarget) (protocol.OpResult, error) {
	return a.changeWith(r, grant, do, target, changeTimes)
}

func (a *API) changeWith(r *http.Request, grant string, do op.Op, target protocol.CommandTarget, within times) (result protocol.OpResult, err error) {
	ctx, span := telemetry.Serve(telemetry.Extract(r.Context(), r.Header.Get(telemetry.Header)), r.Pattern)
	defer func() { span.End(err) }()
	ctx, cancel := context.WithTimeout(ctx, within.all)
	defer cancel()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = rand.Text()
	}
	if len(key) > protocol.MaxIDBytes {
		return protocol.OpResult{}, protocol.Errorf(protocol.KindInvalid, "Idempotency-Key is over %d bytes", protocol.MaxIDBytes)
	}
	signing, cancelSigning := context.WithTimeout(ctx, within.sign)
	env, err := a.Signer.Sign(signing, dispatch.SignRequest{Grant: grant, Op: do, Target: target, IdempotencyKey: key})
	cancelSigning()
	if err != nil {
		return protocol.OpResult{}, &unsignedError{err}
	}
	return a.Dispatcher.Run(ctx, env)
}
