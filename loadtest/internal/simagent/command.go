package simagent

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/tunnel"
)

// maxRemembered bounds the commands whose outcomes an agent remembers.
const maxRemembered = 1024

// A ledger remembers which commands were begun, so that none runs twice.
type ledger struct {
	mu sync.Mutex
	// Guarded by mu.
	known map[protocol.CommandID]*record
	order []protocol.CommandID // the oldest first
}

type record struct {
	done   chan struct{}
	result protocol.Result // once done is closed
}

// begin returns the record of a command, and whether it is new.
func (l *ledger) begin(id protocol.CommandID) (r *record, fresh bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.known[id]; r != nil {
		return r, false
	}
	if len(l.order) == maxRemembered {
		delete(l.known, l.order[0])
		l.order = l.order[1:]
	}
	r = &record{done: make(chan struct{})}
	l.known[id] = r
	l.order = append(l.order, id)
	return r, true
}

func (a *agent) book() *ledger {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ledger == nil {
		a.ledger = &ledger{known: make(map[protocol.CommandID]*record)}
	}
	return a.ledger
}

// commandStream runs a signed command and sends its outcome.
func (a *agent) commandStream(ctx context.Context, in *tunnel.Incoming) error {
	stream, err := in.Accept(protocol.Opened{})
	if err != nil {
		return err
	}
	defer stream.Close()
	return protocol.Write(stream, a.execute(ctx, in.Open.Command))
}

// execute runs the command in token, once.
func (a *agent) execute(ctx context.Context, token string) protocol.Result {
	began := time.Now()
	command, err := a.fleet.keys.Command(ctx, token, jws.AudienceAgent)
	if command == nil {
		return a.failure(&jws.Command{}, began, 0, err)
	}
	if err == nil && command.Target.SandboxID != a.sandbox {
		err = protocol.Errorf(protocol.KindNotFound, "the command is for another sandbox")
	}
	if err != nil {
		return a.failure(command, began, 0, err)
	}
	run, err := a.prepare(command)
	if err != nil {
		return a.failure(command, began, 0, err)
	}
	r, fresh := a.book().begin(command.CommandID)
	if !fresh {
		select {
		case <-r.done:
			return r.result
		case <-ctx.Done():
			return a.failure(command, began, 1, protocol.Fault(protocol.KindUnavailable, ctx.Err()))
		}
	}
	defer close(r.done)
	result, err := run()
	if err == nil {
		var body []byte
		if body, err = json.Marshal(result); err == nil {
			r.result = a.callback(command, protocol.ExecutionCallback{Status: protocol.StatusOK, Result: body}, began, 1, 0)
			return r.result
		}
	}
	r.result = a.failure(command, began, 1, err)
	return r.result
}

func (a *agent) failure(command *jws.Command, began time.Time, attempt int, err error) protocol.Result {
	e := protocol.AsError(err)
	body := e.Body()
	return a.callback(command, protocol.ExecutionCallback{Status: protocol.StatusError, Error: &body}, began, attempt, e.Kind)
}

// callback completes c and signs it.
func (a *agent) callback(command *jws.Command, c protocol.ExecutionCallback, began time.Time, attempt int, kind protocol.Kind) protocol.Result {
	now := time.Now()
	c.Type, c.CommandID, c.TraceID, c.At = protocol.CallbackType, command.CommandID, command.TraceID, now.UnixMilli()
	c.Telemetry = &protocol.Telemetry{DurationMs: now.Sub(began).Milliseconds(), Attempt: attempt}
	body, err := json.Marshal(c)
	if err != nil {
		panic("simagent: a callback of plain values: " + err.Error())
	}
	result := protocol.Result{Callback: body, Kind: kind}
	if command.CommandID != "" {
		if result.Signature, err = a.device.Sign(protocol.CallbackTranscript(a.sandbox, body)); err != nil {
			a.fleet.log.Error("an outcome is not signed", "err", err)
		}
	}
	return result
}

// prepare returns what a command does.
func (a *agent) prepare(command *jws.Command) (func() (protocol.OpResult, error), error) {
	_, body, err := op.Decode(command.Op)
	if err != nil {
		return nil, err
	}
	target := command.Target
	result := protocol.OpResult{Kind: command.Kind(), SessionID: target.SessionID, PTYID: target.PTYID}
	done := func(do func()) func() (protocol.OpResult, error) {
		return func() (protocol.OpResult, error) { do(); return result, nil }
	}
	switch command.Kind() {
	case op.KindSessionCreate:
		return done(func() {}), nil
	case op.KindSessionDelete:
		return done(func() { a.remove(a.list(target.SessionID)...) }), nil
	case op.KindGrantRevoke:
		return done(func() { a.fleet.revoked.Add(body.(*op.GrantRevoke).Grants...) }), nil
	case op.KindPTYCreate:
		return func() (protocol.OpResult, error) {
			t, err := a.open(target.SessionID, target.PTYID, *body.(*op.PTYCreate))
			if err == nil {
				result.PTYID = t.info.ID
			}
			return result, err
		}, nil
	}
	return a.prepareTerminal(command, body, result)
}

// prepareTerminal is prepare for what is done to a terminal that exists.
func (a *agent) prepareTerminal(command *jws.Command, body op.Body, result protocol.OpResult) (func() (protocol.OpResult, error), error) {
	on := func(do func(*terminal) error) func() (protocol.OpResult, error) {
		return func() (protocol.OpResult, error) {
			t, err := a.find(command.Target.SessionID, command.Target.PTYID)
			if err == nil {
				err = do(t)
			}
			return result, err
		}
	}
	switch b := body.(type) {
	case *op.PTYResize:
		return on(func(t *terminal) error { return t.resize(b.Cols, b.Rows) }), nil
	case *op.PTYSignal:
		return on(func(t *terminal) error { return t.signal(b.Signal) }), nil
	}
	if command.Kind() == op.KindPTYClose {
		return on(func(t *terminal) error { a.remove(t); return nil }), nil
	}
	return nil, protocol.Errorf(protocol.KindUnsupported, "a simulated sandbox has no %.64s", command.Kind())
}

// open makes a terminal.
func (a *agent) open(session protocol.SessionID, id protocol.PTYID, op op.PTYCreate) (*terminal, error) {
	if op.Record {
		return nil, protocol.Errorf(protocol.KindUnsupported, "a simulated sandbox records nothing")
	}
	if id == "" {
		id = protocol.NewPTYID()
	}
	t := newTerminal(a, session, protocol.PTYInfo{
		ID: id, CreatorID: op.CreatorID, Command: op.Command, CreatedAt: time.Now().UnixMilli(),
		Cols: sizeOr(op.Cols, protocol.DefaultCols, protocol.MaxCols), Rows: sizeOr(op.Rows, protocol.DefaultRows, protocol.MaxRows),
	})
	if err := a.add(t); err != nil {
		return nil, err
	}
	t.machine.Ready()
	return t, nil
}

func sizeOr(n, instead, most int) int {
	if n <= 0 {
		return instead
	}
	return min(n, most)
}
