package dispatch

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
)

// Run submits an envelope that the control plane has just signed, waits for the
// callback and returns its result. It fails as Submit, [Record.Wait] and [Outcome]
// do.
func (d *Dispatcher) Run(ctx context.Context, env protocol.CommandEnvelope) (protocol.OpResult, error) {
	record, err := d.Submit(ctx, env)
	if err != nil {
		d.opts.Refused(err)
	}
	if err != nil && protocol.KindOf(err) == protocol.KindUnauthenticated { // the control plane made it, so it isn't the user's fault
		err = protocol.Fault(protocol.KindUpstream, err)
	}
	if err != nil {
		return protocol.OpResult{}, err
	}
	callback, kind, err := record.Wait(ctx)
	if err != nil {
		return protocol.OpResult{}, err
	}
	return Outcome(callback, kind)
}

// ErrRestarted says that a sandbox has restarted in the middle of a command: it
// doesn't know either whether it was done, and asking again changes nothing.
var ErrRestarted = protocol.Errorf(protocol.KindUnknown, "the sandbox restarted in the middle; whether it was done is unknown")

// Outcome turns a callback into a result or the error it reports.
func Outcome(callback protocol.ExecutionCallback, kind protocol.Kind) (result protocol.OpResult, err error) {
	switch {
	case callback.Status == protocol.StatusOK:
		if err := json.Unmarshal(callback.Result, &result); err != nil {
			return result, protocol.Fault(protocol.KindUpstream, err)
		}
		return result, nil
	case callback.Error != nil && kind.Status() == http.StatusServiceUnavailable && begun(callback):
		return result, &protocol.Error{Kind: protocol.KindUpstream, Message: callback.Error.Message}
	case callback.Error != nil:
		return result, &protocol.Error{Kind: kind, Message: callback.Error.Message}
	}
	return result, ErrRestarted
}

// begun reports whether the sandbox had begun a failed command: 503 means that
// nobody began.
func begun(callback protocol.ExecutionCallback) bool {
	return callback.Telemetry != nil && callback.Telemetry.Attempt > 0
}
