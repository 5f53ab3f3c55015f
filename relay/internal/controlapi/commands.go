package controlapi

import (
	"context"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

const (
	// maxEnvelope bounds the body of POST /control/commands, in bytes: a
	// token and its routing hints.
	maxEnvelope = protocol.MaxTokenBytes + 16<<10
	// longestWait bounds ?wait=1.
	longestWait = 60 * time.Second
)

// The status of a command that has no callback.
const (
	statusPending = "pending"
	statusExpired = "expired" // nobody answered in time
)

// readEnvelope reads the body of r.
func readEnvelope(w http.ResponseWriter, r *http.Request) (env protocol.CommandEnvelope, err error) {
	body, err := access.ReadBody(w, r, maxEnvelope)
	if err == nil && protocol.UnmarshalObject(body, &env) != nil {
		err = protocol.Errorf(protocol.KindInvalid, "the body must be a command envelope")
	}
	return env, err
}

// browsers tells whoever has a signed command for a browser which ones would get
// it here. With several relays none alone knows whether it is clear which.
func (a *API) browsers(w http.ResponseWriter, r *http.Request) {
	env, err := readEnvelope(w, r)
	var all []string
	if err == nil {
		all, err = a.Dispatcher.Browsers(r.Context(), env)
	}
	if err != nil {
		a.refuse(w, rejects.Command, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, op.Browsers{Browsers: append([]string{}, all...)})
}

// submit takes a signed command; with ?wait=1 it answers with the callback, and
// with ?browser= it goes to that browser alone.
func (a *API) submit(w http.ResponseWriter, r *http.Request) {
	env, err := readEnvelope(w, r)
	browser := r.URL.Query().Get("browser")
	if err == nil && browser != "" && !op.ValidBrowserID(browser) {
		err = errNoBrowserID
	}
	if err != nil {
		a.refuse(w, rejects.Command, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), longestWait)
	defer cancel()
	record, err := a.Dispatcher.SubmitTo(telemetry.Extract(ctx, r.Header.Get(telemetry.Header)), env, browser)
	if err != nil {
		a.refuse(w, rejects.Command, err)
		return
	}
	if r.URL.Query().Get("wait") != "1" {
		writeStatus(w, http.StatusAccepted, record, statusPending)
		return
	}
	if _, _, err := record.Wait(ctx); err != nil {
		a.refuse(w, rejects.Command, err)
		return
	}
	writeCallback(w, record)
}

// writeCallback answers with a callback exactly as its executor wrote it.
func writeCallback(w http.ResponseWriter, record *dispatch.Record) {
	if signature := record.Result.Signature; len(signature) > 0 {
		w.Header().Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(signature))
	}
	access.WriteVerbatim(w, http.StatusOK, record.Result.Callback)
}

func writeStatus(w http.ResponseWriter, code int, record *dispatch.Record, status string) {
	access.WriteJSON(w, code, map[string]any{"commandId": record.Command.CommandID, "status": status})
}

// status answers with the outcome of a command for a grant of its session: the
// callback if the grant may read it, otherwise only the status.
func (a *API) status(w http.ResponseWriter, r *http.Request) {
	grant, _, err := access.Grant(r, a.Keys)
	if err != nil {
		a.refuse(w, rejects.Request, err)
		return
	}
	record, ok := a.Dispatcher.Lookup(protocol.CommandID(r.PathValue("id")))
	if !ok || !mayFollow(grant, record.Command) {
		a.refuse(w, rejects.Request, protocol.Errorf(protocol.KindNotFound, "no such command"))
		return
	}
	select {
	case <-record.Done:
	default:
		writeStatus(w, http.StatusOK, record, statusPending)
		return
	}
	switch {
	case record.Err == nil && mayRead(grant, record.Command):
		writeCallback(w, record)
	case record.Err == nil:
		writeStatus(w, http.StatusOK, record, record.Status())
	case protocol.KindOf(record.Err) == protocol.KindExpired: // the command's time, not the grant's
		writeStatus(w, http.StatusOK, record, statusExpired)
	case mayRead(grant, record.Command):
		access.WriteError(w, record.Err)
	default:
		writeStatus(w, http.StatusOK, record, protocol.StatusUnknown)
	}
}

// mayRead reports whether a grant that may see a command's status may also see
// its result and error text.
func mayRead(grant *jws.Grant, command *jws.Command) bool {
	target := command.Target
	return op.MayReadOutcome(command.Kind(), target, command.UserID, grant.Subject, func(c protocol.Capability) bool {
		return grant.Allows(target.SessionID, target.PTYID, c)
	})
}

// mayFollow reports whether a grant may see that a command exists, and its
// status: any grant of its session may, and for commands that run in a browser
// only a grant of that browser's user.
func mayFollow(grant *jws.Grant, command *jws.Command) bool {
	target := command.Target
	if command.Audience == jws.AudienceExtension {
		session := target.SessionID
		if session == "" {
			session = grant.Session
		}
		return grant.Subject == command.UserID && grant.Allows(session, "", protocol.CapView)
	}
	return grant.Sandbox == target.SandboxID && grant.Allows(target.SessionID, "", protocol.CapView)
}
