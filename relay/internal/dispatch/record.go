package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// A Record is what the relay knows of one command. Done is closed when Result
// or Err is set.
type Record struct {
	Command *jws.Command
	Done    chan struct{}
	Result  protocol.Result
	Err     error // of kind unknown: the command may have been executed

	came    time.Time
	expired error // the command came too late to run: only its outcome may be returned
	tried   bool  // an earlier record of the command had no answer: it may have been executed

	span        telemetry.Span // until the outcome is known
	traceparent string         // of span; empty: none
}

// size returns about how much memory r takes, in bytes.
func (r *Record) size() int { return len(r.Command.Op) + len(r.Result.Callback) }

// unsent returns err, why r was not sent this time, in its public form. For a
// command that was sent before, the outcome is unknown.
func (r *Record) unsent(err error) error {
	if r.tried {
		return unknown(err)
	}
	return err
}

// failed reports whether r is over and may be tried again: its outcome is
// unknown, or the executor can't run anything now. An executor that did begin
// the command says so again.
func (r *Record) failed() bool {
	return r.over() && (r.Err != nil || r.Result.Kind == protocol.KindUnavailable || r.Result.Kind == protocol.KindTooMany)
}

func (r *Record) over() bool {
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

// Status returns what the callback says became of the command. It is for a
// record that is over, without Err.
func (r *Record) Status() string {
	var callback protocol.ExecutionCallback
	if json.Unmarshal(r.Result.Callback, &callback) != nil {
		return protocol.StatusUnknown
	}
	switch callback.Status {
	case protocol.StatusOK, protocol.StatusError:
		return callback.Status
	}
	return protocol.StatusUnknown
}

// same reports whether two signed commands with one id are equal.
func same(a, b *jws.Command) bool {
	return a.Audience == b.Audience && a.Target == b.Target && a.UserID == b.UserID &&
		a.IssuedAt == b.IssuedAt && a.TTLMs == b.TTLMs && bytes.Equal(a.Op, b.Op)
}

// Wait returns the callback of a record once it exists. An error is of kind
// unknown unless the command is known not to have been executed.
func (r *Record) Wait(ctx context.Context) (protocol.ExecutionCallback, protocol.Kind, error) {
	select {
	case <-r.Done:
	case <-ctx.Done():
		return protocol.ExecutionCallback{}, 0, unknown(ctx.Err()) // it may still run
	}
	if r.Err != nil {
		return protocol.ExecutionCallback{}, 0, r.Err
	}
	var callback protocol.ExecutionCallback
	if err := json.Unmarshal(r.Result.Callback, &callback); err != nil {
		return callback, 0, unknown(fmt.Errorf("dispatch: callback: %w", err))
	}
	return callback, r.Result.Kind, nil
}

// unknown marks an error after which the command may have been executed.
func unknown(err error) error {
	if protocol.KindOf(err) == protocol.KindUnknown {
		return err
	}
	return protocol.Fault(protocol.KindUnknown, err)
}
