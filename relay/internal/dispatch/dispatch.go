// Package dispatch carries signed commands to their executors, in sandboxes and
// in browsers, and keeps the outcomes. It can't make a command, and trusts
// nothing but the signed payload.
package dispatch

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// answerTimeout bounds the wait for an agent's RESULT.
	answerTimeout = 60 * time.Second
	// maxRecords and maxRecordBytes bound the records; the oldest go first.
	maxRecords     = 10_000
	maxRecordBytes = 64 << 20
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// Options are what a Dispatcher works with.
type Options struct {
	Keys    *jws.Keys
	Tunnels Tunnels
	Pages   *pagestream.Pages
	Revoked *jws.RevocationSet // learns of the grants that a command revokes
	Refused func(error)        // called for each command that wasn't executed, with the reason
	Metrics *Metrics           // nil: nothing is counted
	Log     *slog.Logger
}

// Dispatcher routes commands.
type Dispatcher struct {
	// Static after construction.
	opts    Options
	ctx     context.Context // outlives requests; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup
	patient time.Duration // how long a lost tunnel may take to return

	// Guarded by mu.
	mu        sync.Mutex
	closed    bool
	records   map[protocol.CommandID]*Record
	order     []protocol.CommandID // of records, oldest first
	bytes     int                  // sum of the records' sizes
	sandboxes map[protocol.SandboxID]*sandbox
}

// New returns a Dispatcher.
func New(opts Options) *Dispatcher {
	if opts.Refused == nil {
		opts.Refused = func(error) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Dispatcher{
		opts: opts, ctx: ctx, cancel: cancel, patient: reconnectTime,
		records:   map[protocol.CommandID]*Record{},
		sandboxes: map[protocol.SandboxID]*sandbox{},
	}
}

// Close ends the running commands and waits for them. It accepts no more.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.running.Wait()
}

// Submit verifies an envelope and sends its command to its sandbox, or to the
// pages of its user. A known command is not sent again while it runs or has a
// result. The outer fields must agree with the signed ones; a mismatch is an
// AuthError.
//
// An expired command goes to its sandbox as well, which may remember the
// outcome. Submit then waits until ctx ends, and fails with kind expired if
// there is no outcome.
func (d *Dispatcher) Submit(ctx context.Context, env protocol.CommandEnvelope) (*Record, error) {
	return d.SubmitTo(ctx, env, "")
}

// SubmitTo is [Dispatcher.Submit] for a command that goes to one browser of its
// user alone, which its target needn't name; "" stands for none.
func (d *Dispatcher) SubmitTo(ctx context.Context, env protocol.CommandEnvelope, browser string) (*Record, error) {
	command, expired, err := d.verify(ctx, env)
	if err != nil {
		return nil, err
	}
	d.heed(command)
	if command.Audience == jws.AudienceExtension {
		return d.submitToPages(ctx, command, env, expired, browser)
	}
	record, err := d.enter(ctx, command, func(record *Record) error {
		record.expired = expired
		return d.toSandbox(env.JWS, record)
	})
	if err != nil || expired == nil {
		return record, err
	}
	if _, _, err := record.Wait(ctx); err != nil {
		return nil, err
	}
	return record, nil
}

// verify returns the command of an envelope, and why it may not run any more.
func (d *Dispatcher) verify(ctx context.Context, env protocol.CommandEnvelope) (command *jws.Command, expired, err error) {
	audience := jws.AudienceAgent
	if env.Target.SandboxID == "" {
		audience = jws.AudienceExtension
	}
	if command, expired = d.opts.Keys.Command(ctx, env.JWS, audience); command == nil {
		return nil, nil, expired
	}
	if env.Type != protocol.EnvelopeType {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "type must be %q", protocol.EnvelopeType)
	}
	if env.CommandID != command.CommandID || env.TraceID != command.TraceID || !targets(env.Target, command.Target) ||
		env.IssuedAt != command.IssuedAt || env.TTLMs != command.TTLMs {
		return nil, nil, protocol.Errorf(protocol.KindUnauthenticated, "the envelope differs from the signed command")
	}
	return command, expired, nil
}

// targets reports whether an envelope's target is the signed one. Seed 003
// signs the tab and leaves the extension's id to the envelope.
func targets(outer, signed protocol.CommandTarget) bool {
	if signed.SandboxID == "" && signed.ExtensionID == "" {
		outer.ExtensionID = ""
	}
	return outer == signed
}

// heed applies what a verified command means for the relay itself. A grant
// revocation counts even if it comes too late for its sandbox.
func (d *Dispatcher) heed(command *jws.Command) {
	if command.Kind() != op.KindGrantRevoke || d.opts.Revoked == nil {
		return
	}
	var op op.GrantRevoke
	if json.Unmarshal(command.Op, &op) == nil && len(op.Grants) > 0 {
		d.opts.Revoked.Add(op.Grants...)
	}
}

// enter returns the record of command. Unless one is known that is under way or
// has a result, it makes one, and start, which is called with mu held, sends
// the command.
func (d *Dispatcher) enter(ctx context.Context, command *jws.Command, start func(*Record) error) (*Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.records[command.CommandID]
	if known != nil && !known.failed() {
		if !same(known.Command, command) {
			return nil, protocol.Errorf(protocol.KindConflict, "the command id was used for another command")
		}
		d.opts.Metrics.known()
		return known, nil
	}
	record := &Record{Command: command, Done: make(chan struct{}), came: time.Now()}
	record.tried = known != nil && protocol.KindOf(known.Err) == protocol.KindUnknown
	if d.closed {
		return nil, record.unsent(protocol.Fault(protocol.KindRestarting, nil))
	}
	ctx, record.span = telemetry.Start(ctx, "dispatch command", telemetry.Operation(command.Kind()))
	record.traceparent = telemetry.Inject(ctx)
	if err := start(record); err != nil {
		record.span.End(err)
		return nil, record.unsent(err)
	}
	d.records[command.CommandID] = record
	d.bytes += record.size()
	if known == nil {
		d.order = append(d.order, command.CommandID)
	} else {
		d.bytes -= known.size()
	}
	d.trim()
	return record, nil
}

// finish sets the outcome of record. The caller holds mu.
func (d *Dispatcher) finish(record *Record, result protocol.Result, err error) {
	record.Err = err
	if err == nil {
		record.Result = result
	}
	if d.records[record.Command.CommandID] == record {
		d.bytes += len(record.Result.Callback)
		d.trim()
	}
	close(record.Done)
}

// trim drops the oldest records beyond the bounds. The caller holds mu.
func (d *Dispatcher) trim() {
	for len(d.order) > maxRecords || d.bytes > maxRecordBytes && len(d.order) > 1 {
		d.bytes -= d.records[d.order[0]].size()
		delete(d.records, d.order[0])
		d.order = d.order[1:]
	}
}

// Lookup returns the record of a command.
func (d *Dispatcher) Lookup(id protocol.CommandID) (*Record, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	record, ok := d.records[id]
	return record, ok
}
