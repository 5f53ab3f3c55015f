package executor

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
)

// rejectInterval is the time between two log lines about one kind of reject.
const rejectInterval = 10 * time.Second

// rejects counts what was refused before it ran.
type rejects struct {
	mu sync.Mutex
	// Guarded by mu.
	byKind map[protocol.Kind]*rejected
}

type rejected struct {
	count uint64
	lines rate.Sometimes
}

// add counts a reject and calls log with their number, unless it was called for
// the same kind within rejectInterval.
func (r *rejects) add(kind protocol.Kind, log func(count uint64)) {
	r.mu.Lock()
	if r.byKind == nil {
		r.byKind = make(map[protocol.Kind]*rejected)
	}
	of := r.byKind[kind]
	if of == nil {
		of = &rejected{lines: rate.Sometimes{First: 1, Interval: rejectInterval}}
		r.byKind[kind] = of
	}
	of.count++
	count := of.count
	r.mu.Unlock()
	of.lines.Do(func() { log(count) })
}

// Rejects returns how many commands were refused before they ran, by kind.
func (x *Executor) Rejects() map[protocol.Kind]uint64 {
	x.rejects.mu.Lock()
	defer x.rejects.mu.Unlock()
	counts := make(map[protocol.Kind]uint64, len(x.rejects.byKind))
	for kind, of := range x.rejects.byKind {
		counts[kind] = of.count
	}
	return counts
}

// Attempts of an outcome: a command that was refused before anything ran may be
// sent again, one that ran, or may have, is not run a second time.
const (
	attemptNone = 0
	attemptRan  = 1
)

// reject answers a command that doesn't run. What is logged of it says nothing
// of the token.
func (x *Executor) reject(command *jws.Command, started time.Time, err error) protocol.Result {
	e := protocol.AsError(err)
	x.rejects.add(e.Kind, func(count uint64) {
		x.Log.Warn("command refused", "reason", e.Kind, "name", e.Kind.Name(), "err", e, "cause", e.Err,
			"id", command.CommandID, "count", count)
	})
	attempt := attemptNone
	deadline := command.Deadline()
	if e.Kind == protocol.KindExpired && (x.Ledger.Forgotten(deadline) || x.Now().After(deadline.Add(ledger.Retention))) {
		attempt = attemptRan // it may have been, which the ledger has forgotten or soon will
	}
	return x.failure(command, started, attempt, err)
}

// failureOf returns why a command has no result that is known, nil when it has
// one.
func failureOf(result protocol.Result) error {
	var callback protocol.ExecutionCallback
	if err := json.Unmarshal(result.Callback, &callback); err == nil && callback.Status == protocol.StatusOK {
		return nil
	}
	return protocol.Fault(result.Kind, nil)
}

// outcome is the answer to a command that ran, and its status.
func (x *Executor) outcome(command *jws.Command, started time.Time, result protocol.OpResult, err error) (protocol.Result, string) {
	if err != nil {
		if e := protocol.AsError(err); e.Kind == protocol.KindInternal || e.Kind == protocol.KindUnavailable { // its text says nothing
			x.Log.Error("command failed", "id", command.CommandID, "op", command.Kind(), "err", e.Err)
		}
		return x.failure(command, started, attemptRan, err), protocol.StatusError
	}
	body, err := json.Marshal(result)
	if err != nil {
		return x.failure(command, started, attemptRan, err), protocol.StatusError
	}
	return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusOK, Result: body}, started, attemptRan, 0), protocol.StatusOK
}

func (x *Executor) failure(command *jws.Command, started time.Time, attempt int, err error) protocol.Result {
	e := protocol.AsError(err)
	body := e.Body()
	return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusError, Error: &body}, started, attempt, e.Kind)
}

// callback completes c (seed 003 §5.3) and signs it. What can't be verified has
// no id, and its answer no signature: there is nothing to vouch for.
func (x *Executor) callback(command *jws.Command, c protocol.ExecutionCallback, started time.Time, attempt int, kind protocol.Kind) protocol.Result {
	now := x.Now()
	c.Type, c.CommandID, c.TraceID = protocol.CallbackType, command.CommandID, command.TraceID
	c.At = now.UnixMilli()
	c.Telemetry = &protocol.Telemetry{DurationMs: now.Sub(started).Milliseconds(), Attempt: attempt}
	body, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("executor: callback of plain values: %v", err))
	}
	result := protocol.Result{Callback: body, Kind: kind}
	if x.Device == nil || command.CommandID == "" {
		return result
	}
	if result.Signature, err = x.Device.Sign(protocol.CallbackTranscript(x.Sandbox, body)); err != nil {
		x.Log.Error("outcome not signed", "id", command.CommandID, "err", err)
	}
	return result
}
