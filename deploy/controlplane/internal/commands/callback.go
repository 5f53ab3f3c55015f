package commands

import (
	"context"
	"net/http"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/dispatch"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// realmCallback is the token that a command carries for its callback.
const realmCallback = "callback token"

// postCallback takes a callback from the executor itself.
func (c *Commands) postCallback(w *web.Writer, r *http.Request) error {
	return c.takeCallback(w, r, web.Bearer(r))
}

// postRelayedCallback takes a callback that a relay got from an executor.
func (c *Commands) postRelayedCallback(w *web.Writer, r *http.Request) error {
	if _, err := c.Gate.Relay(w, r); err != nil {
		return err
	}
	return c.takeCallback(w, r, r.Header.Get(protocol.CallbackTokenHeader))
}

// takeCallback takes the callback in r's body, whose bearer is token. The first
// one in time says what became of the command. Those after it, and those that
// come later than issuedAt + ttlMs (seed 003 §5.4), are stored and counted, and
// change nothing: by then others have been told that the outcome is unknown.
func (c *Commands) takeCallback(w *web.Writer, r *http.Request, token string) error {
	body, err := web.ReadAll(r)
	if err != nil {
		return err
	}
	cb, outcome, err := parseCallback(body)
	if err != nil {
		return err
	}
	known, err := c.Store.CallbackFor(r.Context(), cb.CommandID)
	if err != nil {
		return err
	}
	if token == "" || !known.Answers(token) {
		access.Challenge(w, realmCallback)
		return protocol.Errorf(protocol.KindUnauthenticated, "the callback token is not this command's")
	}
	var signature []byte
	if known.Sandbox != "" {
		signature, err = device.VerifyCallback(known.Sandbox, known.DeviceJWK, body, r.Header.Get(protocol.SignatureHeader))
		if err != nil {
			return err
		}
	}
	// What was received is stored even if whoever sent it doesn't wait.
	ctx := context.WithoutCancel(r.Context())
	outcome.Callback, outcome.Signature = body, signature
	if err := c.advance(ctx, cb.CommandID, known, outcome); err != nil {
		return err
	}
	return w.None()
}

// advance stores the outcome, if it is the first and in time, or else that it
// came.
func (c *Commands) advance(ctx context.Context, id protocol.CommandID, known store.Callback, outcome store.Outcome) error {
	late := c.Clock.Now().After(known.ExpiresAt)
	if late || known.Final {
		c.Logger.Info("callback noted", "command", id, "late", late)
		return c.Store.RecordCallback(ctx, id, outcome.Callback, outcome.Signature, late)
	}
	cmd, err := c.Store.Command(ctx, id)
	if err != nil {
		return err
	}
	cmd.Outcome = outcome
	return c.finish(ctx, cmd)
}

// parseCallback reads a callback of any command.
func parseCallback(body []byte) (cb protocol.ExecutionCallback, outcome store.Outcome, err error) {
	if err := protocol.UnmarshalObject(body, &cb); err != nil {
		return cb, outcome, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	if !protocol.ValidID(cb.CommandID) {
		return cb, outcome, protocol.Errorf(protocol.KindInvalid, "commandId is not an id")
	}
	outcome, ok := dispatch.OutcomeOf(body, cb.CommandID)
	if !ok {
		return cb, outcome, protocol.Errorf(protocol.KindInvalid, "body: want a callback with a status")
	}
	return cb, outcome, nil
}
