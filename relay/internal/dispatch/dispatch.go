// Package dispatch carries signed commands to sandboxes and keeps what became
// of them. It can't make a command, and what it executes on is the signed
// payload alone.
package dispatch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// answerTimeout bounds the wait for an agent's RESULT.
	answerTimeout = 60 * time.Second
	// maxRecords and maxRecordBytes bound the outcomes that are kept; the
	// oldest go first.
	maxRecords     = 10_000
	maxRecordBytes = 64 << 20
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// Dispatcher routes commands.
type Dispatcher struct {
	// Static after construction.
	keys    *jws.Keys
	tunnels Tunnels
	log     *slog.Logger
	ctx     context.Context // outlives requests; ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	// Guarded by mu.
	mu       sync.Mutex
	closed   bool
	records  map[protocol.CommandID]*Record
	order    []protocol.CommandID // of records, oldest first
	bytes    int                  // sum of the records' sizes
	inFlight map[protocol.SandboxID]int
}

// A Record is what the relay knows of one command. Done is closed when Result
// or Err is set.
type Record struct {
	Command *jws.Command
	Done    chan struct{}
	Result  protocol.Result
	Err     error // the command may or may not have reached the sandbox

	expired error // the command came too late to be run: only its outcome may be had
}

// size returns about how much memory r takes, in bytes.
func (r *Record) size() int { return len(r.Command.Op) + len(r.Result.Callback) }

// New returns a Dispatcher that verifies commands with keys.
func New(keys *jws.Keys, tunnels Tunnels, log *slog.Logger) *Dispatcher {
	ctx, cancel := context.WithCancel(context.Background())
	return &Dispatcher{
		keys: keys, tunnels: tunnels, log: log, ctx: ctx, cancel: cancel,
		records:  map[protocol.CommandID]*Record{},
		inFlight: map[protocol.SandboxID]int{},
	}
}

// Close ends the commands under way and waits for them; no more are taken.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.running.Wait()
}

// Submit verifies an envelope and sends its command to the sandbox. A command
// that is known already is not sent again while it runs or has a result. The
// outer fields must agree with the signed ones; a mismatch is an AuthError.
//
// An expired command is taken to the sandbox as well, since that may remember
// its outcome; Submit then waits until ctx ends, and fails with kind expired
// when there is none.
func (d *Dispatcher) Submit(ctx context.Context, env protocol.CommandEnvelope) (*Record, error) {
	command, expired := d.keys.Command(ctx, env.JWS, jws.AudienceAgent)
	if command == nil {
		return nil, expired
	}
	if env.Type != protocol.EnvelopeType {
		return nil, protocol.Errorf(protocol.KindInvalid, "type must be %q", protocol.EnvelopeType)
	}
	if env.CommandID != command.CommandID || env.TraceID != command.TraceID || env.Target != command.Target ||
		env.IssuedAt != command.IssuedAt || env.TTLMs != command.TTLMs {
		return nil, protocol.Errorf(protocol.KindUnauthenticated, "the envelope differs from the signed command")
	}
	record, err := d.enter(command, env.JWS, expired)
	if err != nil || expired == nil {
		return record, err
	}
	if _, _, err := record.Wait(ctx); err != nil {
		return nil, err
	}
	return record, nil
}

// enter returns the record of command. Unless one is known that runs or has
// reached the sandbox, it makes one and sends the command.
func (d *Dispatcher) enter(command *jws.Command, token string, expired error) (*Record, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.records[command.CommandID]
	if known != nil && !known.failed() {
		if !same(known.Command, command) {
			return nil, protocol.Errorf(protocol.KindConflict, "the command id was used for another command")
		}
		return known, nil
	}
	if d.closed {
		return nil, protocol.Fault(protocol.KindRestarting, nil)
	}
	sandbox := command.Target.SandboxID
	session, err := d.tunnels.Session(sandbox)
	if err != nil {
		return nil, err
	}
	if d.inFlight[sandbox] >= protocol.MaxCommandsInFlight {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d commands are under way to this sandbox", protocol.MaxCommandsInFlight)
	}
	d.inFlight[sandbox]++
	record := &Record{Command: command, Done: make(chan struct{}), expired: expired}
	d.records[command.CommandID] = record
	d.bytes += record.size()
	if known == nil {
		d.order = append(d.order, command.CommandID)
	} else {
		d.bytes -= known.size()
	}
	d.trim()
	d.running.Go(func() { d.run(session, token, record) })
	return record, nil
}

// failed reports whether r is over and the sandbox's answer isn't known.
func (r *Record) failed() bool {
	select {
	case <-r.Done:
		return r.Err != nil
	default:
		return false
	}
}

// same reports whether two commands of one id, both signed, say the same.
func same(a, b *jws.Command) bool {
	return a.Target == b.Target && a.IssuedAt == b.IssuedAt && a.TTLMs == b.TTLMs && bytes.Equal(a.Op, b.Op)
}

// trim drops the oldest records beyond the bounds. The caller holds mu.
func (d *Dispatcher) trim() {
	for len(d.order) > maxRecords || d.bytes > maxRecordBytes && len(d.order) > 1 {
		d.bytes -= d.records[d.order[0]].size()
		delete(d.records, d.order[0])
		d.order = d.order[1:]
	}
}

// run sends one command and waits for its RESULT.
func (d *Dispatcher) run(session *tunnel.Session, token string, record *Record) {
	ctx, cancel := context.WithTimeout(d.ctx, answerTimeout)
	defer cancel()
	result, err := exchange(ctx, session, token)
	c := record.Command
	d.mu.Lock()
	if d.inFlight[c.Target.SandboxID]--; d.inFlight[c.Target.SandboxID] == 0 {
		delete(d.inFlight, c.Target.SandboxID)
	}
	if err == nil && record.expired != nil && result.Kind == protocol.KindExpired {
		err = record.expired // it never ran
	}
	record.Err = err
	if err == nil {
		record.Result = result
	}
	if d.records[c.CommandID] == record {
		d.bytes += len(record.Result.Callback)
		d.trim()
	}
	close(record.Done)
	d.mu.Unlock()
	d.log.Info("command", "id", c.CommandID, "trace", c.TraceID, "op", c.Kind(), "sandbox", c.Target.SandboxID,
		"kind", result.Kind, "err", err)
}

// exchange sends token on a command stream and reads the answer.
func exchange(ctx context.Context, session *tunnel.Session, token string) (protocol.Result, error) {
	stream, _, err := session.Open(ctx, protocol.LaneControl, protocol.Open{Kind: protocol.StreamCommand, Command: token})
	if err != nil {
		return protocol.Result{}, err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	frame, err := protocol.NewFrameReader(stream).Next()
	if err != nil {
		return protocol.Result{}, protocol.Fault(protocol.KindUpstream, fmt.Errorf("dispatch: %w", err))
	}
	message, err := protocol.Decode(frame)
	if err != nil {
		return protocol.Result{}, protocol.Fault(protocol.KindUpstream, err)
	}
	result, ok := message.(protocol.Result)
	if !ok {
		return protocol.Result{}, protocol.Fault(protocol.KindUpstream, fmt.Errorf("dispatch: %s for a RESULT", frame.Type))
	}
	return result, nil
}

// Wait returns the callback of a record once it is there.
func (r *Record) Wait(ctx context.Context) (protocol.ExecutionCallback, protocol.Kind, error) {
	select {
	case <-r.Done:
	case <-ctx.Done():
		return protocol.ExecutionCallback{}, 0, protocol.Fault(protocol.KindUnavailable, ctx.Err())
	}
	if r.Err != nil {
		return protocol.ExecutionCallback{}, 0, r.Err
	}
	var callback protocol.ExecutionCallback
	if err := json.Unmarshal(r.Result.Callback, &callback); err != nil {
		return callback, 0, protocol.Fault(protocol.KindUpstream, fmt.Errorf("dispatch: callback: %w", err))
	}
	return callback, r.Result.Kind, nil
}

// Lookup returns the record of a command.
func (d *Dispatcher) Lookup(id protocol.CommandID) (*Record, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	record, ok := d.records[id]
	return record, ok
}
