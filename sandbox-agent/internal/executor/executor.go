// Package executor runs what the control plane has signed, each command at
// most once.
package executor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	auditlog "github.com/fairlead/fairlead/protocol/audit"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/audit"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
)

// recordTimeout bounds how long a command waits for a place in the audit log.
const recordTimeout = 5 * time.Second

// Callbacks tell the control plane what became of commands.
type Callbacks interface {
	// Callback must not wait for anything.
	Callback(command *jws.Command, result protocol.Result)
}

// Executor runs commands.
type Executor struct {
	Sandbox    protocol.SandboxID
	Keys       *jws.Keys
	Device     *jws.DeviceKey // signs outcomes; nil: they are not signed
	Ledger     *ledger.Ledger
	Audit      *audit.Log         // nil: nothing is recorded
	Operations feature.Operations // by kind; any other is unsupported
	Memory     feature.Rememberer // knows of commands whose outcomes a crash took; nil: nobody does
	// Callbacks hears the outcome of each run before Execute returns it; nil:
	// nobody does.
	Callbacks Callbacks
	Now       func() time.Time
	Log       *slog.Logger

	order   order
	rejects rejects
}

// Execute runs the command in token and returns its outcome, which for a
// command that ran before is the outcome of then. Only the signed payload
// counts. It never runs a command that the ledger could not record first, and
// finishes one that has begun even when ctx ends. Commands for one terminal run
// one after the other, in the order of their calls or, see Arrive, of their
// arrival.
func (x *Executor) Execute(ctx context.Context, token string) protocol.Result {
	return x.Arrive().Execute(ctx, token)
}

// An Arrival is the slot of a command in the order of all that arrive.
type Arrival struct {
	x     *Executor
	slot  slot
	timer *time.Timer // gives the slot up
}

// Arrive takes the next slot in the order, for a caller that serves commands
// at the same time. Its Execute should be called at once: those behind wait for
// it, though not for long.
func (x *Executor) Arrive() Arrival {
	p := x.order.arrive()
	return Arrival{x, p, time.AfterFunc(maxOvertaking, p.pass)}
}

// Execute is [Executor.Execute] for the command that arrived then.
func (a Arrival) Execute(ctx context.Context, token string) protocol.Result {
	ctx, span := telemetry.Serve(ctx, "execute command")
	result := a.execute(ctx, span, token)
	if span.Recording() {
		span.End(failureOf(result))
	}
	return result
}

func (a Arrival) execute(ctx context.Context, span telemetry.Span, token string) protocol.Result {
	x, started := a.x, a.x.Now()
	defer a.slot.pass()
	defer a.timer.Stop()
	verifying, verification := telemetry.Start(ctx, "verify")
	command, err := x.Keys.Command(verifying, token, jws.AudienceAgent)
	verification.End(err)
	if command == nil {
		return x.reject(&jws.Command{}, started, err)
	}
	span.Set(telemetry.Operation(command.Kind()))
	if command.Target.SandboxID != x.Sandbox {
		return x.reject(command, started, protocol.Errorf(protocol.KindNotFound, "the command is for another sandbox"))
	}
	digest := digestOf(token)
	prior, conflict := x.Ledger.Lookup(command.CommandID, digest)
	switch {
	case err != nil && (conflict != nil || prior == nil): // expired, and says nothing of another command
		return x.reject(command, started, err)
	case conflict != nil:
		return x.reject(command, started, conflict)
	case prior != nil:
		return x.prior(ctx, command, prior, started)
	}
	run, lane, err := x.prepare(command)
	if err != nil {
		return x.reject(command, started, err)
	}
	turn, err := a.slot.enter(lane, command.Target)
	if err != nil {
		return x.reject(command, started, err)
	}
	return x.begin(ctx, command, digest, run, turn, started)
}

// begin records the command, waits for its turn and runs it.
func (x *Executor) begin(ctx context.Context, command *jws.Command, digest [sha256.Size]byte, run feature.Run, turn *turn, started time.Time) protocol.Result {
	recording, record := telemetry.Start(ctx, "journal")
	prior, err := x.record(recording, command, digest)
	record.End(err)
	turn.wait()
	switch {
	case err != nil:
		turn.end()
		return x.reject(command, started, err)
	case prior != nil:
		turn.end()
		return x.prior(ctx, command, prior, started)
	}
	defer turn.end()
	return x.run(context.WithoutCancel(ctx), command, run, started)
}

// record makes sure that the command is remembered, here and in the audit log,
// whatever happens.
func (x *Executor) record(ctx context.Context, command *jws.Command, digest [sha256.Size]byte) (*ledger.Entry, error) {
	if x.Audit == nil {
		return x.Ledger.Begin(command.CommandID, digest, command.Deadline())
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := x.Audit.Reserve(ctx); err != nil {
		return nil, err
	}
	prior, err := x.Ledger.Begin(command.CommandID, digest, command.Deadline())
	if prior != nil || err != nil {
		x.Audit.Release()
	}
	return prior, err
}

// run executes a command that the ledger has begun, and records the outcome.
func (x *Executor) run(ctx context.Context, command *jws.Command, run feature.Run, started time.Time) protocol.Result {
	running, span := telemetry.Start(ctx, "run")
	opResult, err := run(running)
	span.End(err)
	_, span = telemetry.Start(ctx, "result")
	result, status := x.outcome(command, started, opResult, err)
	x.Log.Info("command run", "id", command.CommandID, "trace", command.TraceID, "op", command.Kind(),
		"session", command.Target.SessionID, "err", err)
	record, encodeErr := json.Marshal(result)
	if encodeErr == nil {
		encodeErr = x.Ledger.Finish(command.CommandID, record)
	}
	span.End(encodeErr)
	if encodeErr != nil { // it ran; a replay will hear "unknown"
		x.Log.Error("outcome not recorded", "id", command.CommandID, "err", encodeErr)
	}
	if x.Audit != nil {
		x.Audit.Command(x.entry(command, status, err, started))
	}
	if x.Callbacks != nil {
		x.Callbacks.Callback(command, result)
	}
	return result
}

// entry is what the audit log says of a command that ran.
func (x *Executor) entry(command *jws.Command, status string, err error, started time.Time) auditlog.Command {
	entry := auditlog.Command{
		ID: command.CommandID, Trace: command.TraceID, Op: command.Kind(),
		Session: command.Target.SessionID, PTY: command.Target.PTYID,
		User: command.UserID, Grant: command.GrantID,
		Status: status, Duration: x.Now().Sub(started).Milliseconds(),
	}
	if err != nil {
		entry.Error = protocol.KindOf(err).Name()
	}
	return entry
}

// NoteLost records the commands that an earlier process began and whose
// outcomes were lost with it. It is called once, before commands come.
func (x *Executor) NoteLost(ctx context.Context) error {
	if x.Audit == nil {
		return nil
	}
	var errs []error
	for _, id := range x.Ledger.Lost() {
		if err := x.Audit.Reserve(ctx); err != nil {
			return errors.Join(append(errs, err)...)
		}
		x.Audit.Command(auditlog.Command{ID: id, Status: protocol.StatusUnknown})
		errs = append(errs, x.Ledger.Noted(id))
	}
	return errors.Join(errs...)
}

// prior returns the outcome of a command that was begun before.
func (x *Executor) prior(ctx context.Context, command *jws.Command, entry *ledger.Entry, started time.Time) protocol.Result {
	if entry.State == ledger.StateRunning {
		finished, err := x.Ledger.Wait(ctx, command.CommandID)
		if err != nil { // it still runs: that is no error of its own
			return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusUnknown}, started, attemptRan, protocol.KindUnavailable)
		}
		entry = &finished
	}
	var result protocol.Result
	if entry.State == ledger.StateDone && json.Unmarshal(entry.Result, &result) == nil {
		return result
	}
	return x.lost(command, started)
}

// lost returns the outcome of a command that was begun, and whose outcome a crash
// took. It isn't run again. A feature may know whether it was carried out.
func (x *Executor) lost(command *jws.Command, started time.Time) protocol.Result {
	if x.Memory != nil {
		if _, body, err := op.Decode(command.Op); err == nil {
			switch opResult, err, known := x.Memory.Remember(command, body); {
			case known && err != nil:
				return x.failure(command, started, attemptNone, err)
			case known:
				result, _ := x.outcome(command, started, opResult, nil)
				return result
			}
		}
	}
	return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusUnknown}, started, attemptRan, protocol.KindUnavailable)
}

// digestOf names what was signed. The signature is left out, since ECDSA
// allows two of them for one payload.
func digestOf(token string) [sha256.Size]byte {
	signed := token
	if i := strings.LastIndexByte(token, '.'); i >= 0 {
		signed = token[:i]
	}
	return sha256.Sum256([]byte(signed))
}
