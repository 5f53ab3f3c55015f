// Package executor runs what the control plane has signed, each command at
// most once.
package executor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/ledger"
)

// A Terminals host is what most operations act on. Package terminal implements
// it.
type Terminals interface {
	Create(ctx context.Context, session protocol.SessionID, id protocol.PTYID, op protocol.PTYCreate) (protocol.PTYInfo, error)
	Close(session protocol.SessionID, id protocol.PTYID) error
	Signal(session protocol.SessionID, id protocol.PTYID, signal string) error
	CloseSession(session protocol.SessionID)
}

// A Recorder records terminals. Its methods return the recording's id. Package
// terminal implements it.
type Recorder interface {
	StartRecording(session protocol.SessionID, id protocol.PTYID) (recording string, err error)
	StopRecording(session protocol.SessionID, id protocol.PTYID) (recording string, err error)
}

// Executor runs commands.
type Executor struct {
	Sandbox   protocol.SandboxID
	Keys      *jws.Keys
	Ledger    *ledger.Ledger
	Terminals Terminals
	Recorder  Recorder
	Now       func() time.Time
	Log       *slog.Logger
}

// Execute runs the command in token and returns its outcome, which for a
// command that ran before is the outcome of then. Only the signed payload
// counts. It never runs a command that the ledger could not record first, and
// finishes one that has begun even when ctx ends.
func (x *Executor) Execute(ctx context.Context, token string) protocol.Result {
	started := x.Now()
	command, err := x.Keys.Command(ctx, token, jws.AudienceAgent)
	if command == nil {
		return x.failure(&jws.Command{}, started, err)
	}
	if command.Target.SandboxID != x.Sandbox {
		return x.failure(command, started, protocol.Errorf(protocol.KindNotFound, "the command is for another sandbox"))
	}
	digest := digestOf(token)
	if err != nil { // expired: but it may have run in its time
		if prior, lookupErr := x.Ledger.Lookup(command.CommandID, digest); lookupErr == nil && prior != nil {
			return x.prior(ctx, command, prior, started)
		}
		return x.failure(command, started, err)
	}
	prior, err := x.Ledger.Begin(command.CommandID, digest, command.Deadline())
	if err != nil {
		return x.failure(command, started, err)
	}
	if prior != nil {
		return x.prior(ctx, command, prior, started)
	}
	return x.run(ctx, command, started)
}

// run executes a command that the ledger has begun, and records the outcome.
func (x *Executor) run(ctx context.Context, command *jws.Command, started time.Time) protocol.Result {
	opResult, err := x.operate(context.WithoutCancel(ctx), command)
	result := x.outcome(command, started, opResult, err)
	x.Log.Info("command run", "id", command.CommandID, "trace", command.TraceID, "op", command.Kind(),
		"session", command.Target.SessionID, "err", err)
	record, err := json.Marshal(result)
	if err == nil {
		err = x.Ledger.Finish(command.CommandID, record)
	}
	if err != nil { // it ran; a replay will hear "unknown"
		x.Log.Error("outcome not recorded", "id", command.CommandID, "err", err)
	}
	return result
}

// prior returns the outcome of a command that was begun before.
func (x *Executor) prior(ctx context.Context, command *jws.Command, entry *ledger.Entry, started time.Time) protocol.Result {
	if entry.State == ledger.StateRunning {
		finished, err := x.Ledger.Wait(ctx, command.CommandID)
		if err != nil {
			return x.failure(command, started, protocol.Fault(protocol.KindUnavailable, err))
		}
		entry = &finished
	}
	var result protocol.Result
	if entry.State == ledger.StateDone && json.Unmarshal(entry.Result, &result) == nil {
		return result
	}
	return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusUnknown}, started, protocol.KindUnavailable)
}

// operate carries out the command's operation.
func (x *Executor) operate(ctx context.Context, command *jws.Command) (protocol.OpResult, error) {
	kind, target := command.Kind(), command.Target
	done := protocol.OpResult{Kind: kind, SessionID: target.SessionID, PTYID: target.PTYID}
	if _, known := protocol.OperationCapability[kind]; !known {
		return done, protocol.Errorf(protocol.KindUnsupported, "unknown operation %q", kind)
	}
	if !protocol.ValidID(target.SessionID) {
		return done, protocol.Errorf(protocol.KindNotFound, "the target names no session")
	}
	switch kind {
	case protocol.OpSessionCreate:
		return done, nil // a session exists as soon as the control plane signs for it
	case protocol.OpSessionDelete:
		x.Terminals.CloseSession(target.SessionID)
		return done, nil
	case protocol.OpPTYCreate:
		var op protocol.PTYCreate
		if err := json.Unmarshal(command.Op, &op); err != nil {
			return done, protocol.Errorf(protocol.KindInvalid, "malformed %s", kind)
		}
		info, err := x.Terminals.Create(ctx, target.SessionID, target.PTYID, op)
		done.PTYID = info.ID
		return done, err
	}
	if !protocol.ValidID(target.PTYID) {
		return done, protocol.Errorf(protocol.KindNotFound, "the target names no terminal")
	}
	var err error
	switch kind {
	case protocol.OpPTYClose:
		return done, x.Terminals.Close(target.SessionID, target.PTYID)
	case protocol.OpRecordStart:
		done.RecordingID, err = x.Recorder.StartRecording(target.SessionID, target.PTYID)
		return done, err
	case protocol.OpRecordStop:
		done.RecordingID, err = x.Recorder.StopRecording(target.SessionID, target.PTYID)
		return done, err
	}
	var op protocol.PTYSignal
	if err := json.Unmarshal(command.Op, &op); err != nil {
		return done, protocol.Errorf(protocol.KindInvalid, "malformed %s", kind)
	}
	return done, x.Terminals.Signal(target.SessionID, target.PTYID, op.Signal)
}

func (x *Executor) outcome(command *jws.Command, started time.Time, result protocol.OpResult, err error) protocol.Result {
	if err != nil {
		return x.failure(command, started, err)
	}
	body, err := json.Marshal(result)
	if err != nil {
		return x.failure(command, started, err)
	}
	return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusOK, Result: body}, started, 0)
}

func (x *Executor) failure(command *jws.Command, started time.Time, err error) protocol.Result {
	e := protocol.AsError(err)
	if e.Kind == protocol.KindInternal || e.Kind == protocol.KindUnavailable { // its text says nothing
		x.Log.Error("command failed", "id", command.CommandID, "op", command.Kind(), "err", e.Err)
	}
	body := e.Body()
	return x.callback(command, protocol.ExecutionCallback{Status: protocol.StatusError, Error: &body}, started, e.Kind)
}

// callback completes c (seed 003 §5.3).
func (x *Executor) callback(command *jws.Command, c protocol.ExecutionCallback, started time.Time, kind protocol.Kind) protocol.Result {
	now := x.Now()
	c.Type, c.CommandID, c.TraceID = protocol.CallbackType, command.CommandID, command.TraceID
	c.At = now.UnixMilli()
	c.Telemetry = &protocol.Telemetry{DurationMs: now.Sub(started).Milliseconds(), Attempt: 1}
	body, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("executor: callback of plain values: %v", err))
	}
	return protocol.Result{Callback: body, Kind: kind}
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
