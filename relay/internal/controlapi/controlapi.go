// Package controlapi serves the control plane's routes at the relay's public
// origin: signed commands on their way to sandboxes, and those routes that are
// the control plane's own, forwarded unchanged.
package controlapi

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
)

const (
	// maxEnvelope bounds the body of POST /control/commands, in bytes: a
	// token and its routing hints.
	maxEnvelope = protocol.MaxTokenBytes + 16<<10
	// longestWait bounds ?wait=1.
	longestWait = 60 * time.Second
)

// API serves the routes.
type API struct {
	Keys         *jws.Keys
	Dispatcher   *dispatch.Dispatcher
	ControlPlane *url.URL
	Log          *slog.Logger
}

// Register adds the routes.
func (a *API) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST /control/commands", a.submit)
	mux.HandleFunc("GET /control/commands/{id}", a.status)
	forward := a.forward()
	for _, route := range []string{"/auth/", "/grants", "/commands", "/.well-known/jwks.json"} {
		mux.Handle(route, forward)
	}
}

// forward proxies to the control plane. Cookies are ours, so they stay here.
func (a *API) forward() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(a.ControlPlane)
			r.Out.Header.Del("Cookie")
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			a.Log.Warn("control plane not reached", "path", r.URL.Path, "err", err)
			access.WriteError(w, protocol.Errorf(protocol.KindUnavailable, "the control plane can't be reached at the moment"))
		},
		ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelDebug),
	}
}

// submit takes a signed command; with ?wait=1 it answers with the callback.
func (a *API) submit(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxEnvelope))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		access.WriteError(w, protocol.Errorf(protocol.KindTooLarge, "the body is over %d bytes", maxEnvelope))
		return
	} else if err != nil {
		access.WriteError(w, protocol.Fault(protocol.KindInvalid, err))
		return
	}
	var env protocol.CommandEnvelope
	if err := protocol.UnmarshalObject(body, &env); err != nil {
		access.WriteError(w, protocol.Errorf(protocol.KindInvalid, "the body must be a command envelope"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), longestWait)
	defer cancel()
	record, err := a.Dispatcher.Submit(ctx, env)
	if err != nil {
		access.WriteError(w, err)
		return
	}
	if r.URL.Query().Get("wait") != "1" {
		access.WriteJSON(w, http.StatusAccepted, map[string]any{
			"commandId": record.Command.CommandID, "status": "pending",
		})
		return
	}
	a.writeOutcome(ctx, w, record)
}

// writeOutcome waits for the callback and passes it on as the agent wrote it.
func (a *API) writeOutcome(ctx context.Context, w http.ResponseWriter, record *dispatch.Record) {
	if _, _, err := record.Wait(ctx); err != nil {
		access.WriteError(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, record.Result.Callback)
}

// status tells what became of a command, to a grant of its session.
func (a *API) status(w http.ResponseWriter, r *http.Request) {
	grant, _, err := access.Grant(r, a.Keys)
	if err != nil {
		access.WriteError(w, err)
		return
	}
	record, ok := a.Dispatcher.Lookup(protocol.CommandID(r.PathValue("id")))
	if !ok || record.Command.Target.SandboxID != grant.Sandbox ||
		!grant.Allows(record.Command.Target.SessionID, "", protocol.CapView) {
		access.WriteError(w, protocol.Errorf(protocol.KindNotFound, "no such command"))
		return
	}
	select {
	case <-record.Done:
		a.writeOutcome(r.Context(), w, record)
	default:
		access.WriteJSON(w, http.StatusOK, map[string]any{
			"commandId": record.Command.CommandID, "status": "pending",
		})
	}
}
