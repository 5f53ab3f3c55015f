// Package sandboxapi serves the REST routes of a session: reads go to the
// sandbox over its tunnel, changes become commands that the control plane
// signs.
package sandboxapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/rejects"
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
	Rejects    *rejects.Rejects
	Revision   string
	Log        *slog.Logger
}

// Register adds the routes.
func (a *API) Register(mux access.Router) {
	proxy := a.proxy()
	mux.HandleFunc("GET /sessions/{sid}/ptys", a.read(protocol.CapView, proxy))
	mux.HandleFunc("POST /sessions/{sid}/ptys", a.createPTY)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}", a.closePTY)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/signal", a.signal)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent", a.startAgent)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/pause", a.steerAgent(protocol.OpAgentPause))
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/resume", a.steerAgent(protocol.OpAgentResume))
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/agent/stop", a.steerAgent(protocol.OpAgentStop))
	mux.HandleFunc("GET /sessions/{sid}/ptys/{pid}/log", a.readLog)
	mux.HandleFunc("POST /sessions/{sid}/ptys/{pid}/recording", a.startRecording)
	mux.HandleFunc("DELETE /sessions/{sid}/ptys/{pid}/recording", a.stopRecording)
	mux.HandleFunc("GET /sessions/{sid}/recordings", a.read(protocol.CapView, proxy))
	mux.HandleFunc("GET /sessions/{sid}/recordings/{rid}", a.read(protocol.CapView, proxy))
}

// refuse answers with err and counts it.
func (a *API) refuse(w http.ResponseWriter, err error) {
	a.Rejects.Count(rejects.Request, err)
	access.WriteError(w, err)
}

// A passage is what a proxied request needs to reach its sandbox.
type passage struct {
	session *tunnel.Session
	grant   string
}

type passageKey struct{}

// read lets requests whose grant has need pass to the sandbox.
func (a *API) read(need protocol.Capability, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grant, token, err := a.authorize(r, need)
		if err != nil {
			a.refuse(w, err)
			return
		}
		session, err := a.Tunnels.Session(grant.Sandbox)
		if err != nil {
			a.refuse(w, err)
			return
		}
		ctx := context.WithValue(r.Context(), passageKey{}, passage{session, token})
		next.ServeHTTP(w, r.WithContext(ctx))
	}
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

// proxy forwards to the agent over one stream per request. The stream carries
// the grant, so nothing of the browser's credentials goes along.
func (a *API) proxy() http.Handler {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			p := ctx.Value(passageKey{}).(passage)
			stream, _, err := p.session.Open(ctx, protocol.LaneBulk,
				protocol.Open{Kind: protocol.StreamHTTP, Grant: p.grant})
			if err != nil {
				return nil, err
			}
			return stream, nil
		},
		ResponseHeaderTimeout: changeTimeout,
	}
	return &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "sandbox"})
			r.Out.Header.Del("Cookie")
			r.Out.Header.Del("Authorization")
		},
		ModifyResponse: func(r *http.Response) error {
			r.Header.Del("Set-Cookie")
			confine(r.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			a.Log.Info("sandbox not reached", "path", r.URL.Path, "err", err)
			if e := protocol.AsError(err); e.Kind != protocol.KindInternal {
				a.refuse(w, e)
				return
			}
			a.refuse(w, protocol.Fault(protocol.KindUpstream, err))
		},
		ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
}

// confine keeps what a sandbox sends from acting for the relay's origin
// (DESIGN §7).
func confine(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "no-store")
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
	op := struct {
		Kind string `json:"kind"`
		protocol.PTYCreate
	}{protocol.OpPTYCreate, protocol.PTYCreate{
		CreatorID: grant.Subject, Command: body.Command, Dir: body.Dir, Cols: body.Cols, Rows: body.Rows,
		Record: body.Record,
	}}
	at := target(r, grant)
	at.PTYID = body.PTYID
	result, err := a.change(r, token, op, at)
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
	_, err = a.change(r, token, map[string]string{"kind": protocol.OpPTYClose}, target(r, grant))
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

// change has op signed for grant, runs it in the sandbox and returns the
// result. The request's Idempotency-Key makes a retry the same command.
func (a *API) change(r *http.Request, grant string, op any, target protocol.CommandTarget) (protocol.OpResult, error) {
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = rand.Text()
	}
	if len(key) > protocol.MaxIDBytes {
		return protocol.OpResult{}, protocol.Errorf(protocol.KindInvalid, "Idempotency-Key is over %d bytes", protocol.MaxIDBytes)
	}
	env, err := a.Signer.Sign(ctx, dispatch.SignRequest{Grant: grant, Op: op, Target: target, IdempotencyKey: key})
	if err != nil {
		return protocol.OpResult{}, err
	}
	record, err := a.Dispatcher.Submit(ctx, env)
	a.Rejects.Count(rejects.Command, err)
	if err != nil && protocol.KindOf(err) == protocol.KindUnauthenticated { // not the user's fault: the control plane made it
		err = protocol.Fault(protocol.KindUpstream, err)
	}
	if err != nil {
		return protocol.OpResult{}, err
	}
	callback, kind, err := record.Wait(ctx)
	if err != nil {
		return protocol.OpResult{}, err
	}
	return outcome(callback, kind)
}

// outcome turns a callback into a result or the error it reports.
func outcome(callback protocol.ExecutionCallback, kind protocol.Kind) (result protocol.OpResult, err error) {
	switch {
	case callback.Status == protocol.StatusOK:
		if err := json.Unmarshal(callback.Result, &result); err != nil {
			return result, protocol.Fault(protocol.KindUpstream, err)
		}
		return result, nil
	case callback.Error != nil:
		return result, &protocol.Error{Kind: kind, Message: callback.Error.Message}
	}
	return result, protocol.Errorf(protocol.KindUnavailable, "the sandbox restarted in the middle; whether it was done is unknown")
}
