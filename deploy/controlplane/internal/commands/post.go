package commands

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
)

type commandAnswer struct {
	CommandID protocol.CommandID  `json:"commandId"`
	Status    string              `json:"status"` // of an ExecutionCallback
	Result    json.RawMessage     `json:"result,omitempty"`
	Error     *protocol.ErrorBody `json:"error,omitempty"`
}

// postCommand signs what a user wants done, has it done, and answers with its
// outcome.
func (c *Commands) postCommand(w *web.Writer, r *http.Request) error {
	user, err := c.Gate.User(w, r)
	if err != nil {
		return err
	}
	r, span := traced(r)
	cmd, err := c.runCommand(w, r, user.ID, span)
	if err != nil {
		span.End(err)
		return err
	}
	span.End(failureOf(cmd.Outcome))
	return c.writeOutcome(w, cmd)
}

// runCommand has done what the body of r asks for.
func (c *Commands) runCommand(w *web.Writer, r *http.Request, user protocol.UserID, span telemetry.Span) (cmd store.Command, err error) {
	var req Request
	if err := web.ReadBody(r, &req); err != nil {
		return cmd, err
	}
	return c.runRequest(w, r, user, req, span)
}

// runRequest has done what req asks for, under the Idempotency-Key of r.
func (c *Commands) runRequest(w *web.Writer, r *http.Request, user protocol.UserID, req Request, span telemetry.Span) (cmd store.Command, err error) {
	o, all, err := c.order(r.Context(), user, req, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return cmd, err
	}
	span.Set(telemetry.Operation(o.Kind))
	wait := time.Duration(o.TTLMs)*time.Millisecond + dispatchMargin
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + web.WriteTimeout)); err != nil {
		return cmd, err
	}
	// The command runs to its end whether or not its browser waits for it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(c.Closing, cancel)()
	return c.execute(ctx, o, all)
}

// writeOutcome answers 200 for ok and unknown, and with the error's status for
// an error. Unknown isn't a failed request: to try again could do it twice.
func (c *Commands) writeOutcome(w *web.Writer, cmd store.Command) error {
	answer := commandAnswer{
		CommandID: cmd.Envelope.CommandID, Status: cmd.Outcome.Status,
		Result: cmd.Outcome.Result, Error: cmd.Outcome.Error,
	}
	kind := protocol.KindInternal
	if answer.Error != nil {
		kind = protocol.KindByName(answer.Error.Name)
	}
	if cmd.Outcome.Kind != protocol.KindInternal {
		kind = cmd.Outcome.Kind
	}
	switch answer.Status {
	case store.StatusUndelivered:
		answer.Status = protocol.StatusError
		if kind == protocol.KindInternal {
			kind = protocol.KindUnavailable
		}
	case protocol.StatusError:
	default:
		return w.JSON(http.StatusOK, answer)
	}
	return w.JSON(kind.Status(), answer)
}
