package simagent

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
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
	run, err := a.parse(command)
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

// A plain op has no member but its kind.
type plain struct {
	Kind string `json:"kind"`
}

// decode reads the op of a command.
func decode(command *jws.Command, op any) error {
	if err := protocol.UnmarshalStrict(command.Op, op); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "malformed %s", command.Kind())
	}
	return nil
}

// parse returns what a command does.
func (a *agent) parse(command *jws.Command) (func() (protocol.OpResult, error), error) {
	target := command.Target
	result := protocol.OpResult{Kind: command.Kind(), SessionID: target.SessionID, PTYID: target.PTYID}
	done := func(do func()) func() (protocol.OpResult, error) {
		return func() (protocol.OpResult, error) { do(); return result, nil }
	}
	switch command.Kind() {
	case protocol.OpSessionCreate:
		var op struct {
			plain
			protocol.SessionCreate
		}
		return done(func() {}), decode(command, &op)
	case protocol.OpSessionDelete:
		return done(func() { a.remove(a.list(target.SessionID)...) }), decode(command, &plain{})
	case protocol.OpGrantRevoke:
		var op struct {
			plain
			protocol.GrantRevoke
		}
		err := decode(command, &op)
		return done(func() { a.fleet.revoked.Add(op.Grants...) }), err
	case protocol.OpPTYCreate:
		var op struct {
			plain
			protocol.PTYCreate
		}
		err := decode(command, &op)
		return func() (protocol.OpResult, error) {
			t, err := a.open(target.SessionID, target.PTYID, op.PTYCreate)
			if err == nil {
				result.PTYID = t.info.ID
			}
			return result, err
		}, err
	}
	return a.parseTerminal(command, result)
}

// parseTerminal is parse for what is done to a terminal that exists.
func (a *agent) parseTerminal(command *jws.Command, result protocol.OpResult) (func() (protocol.OpResult, error), error) {
	on := func(do func(*terminal) error) func() (protocol.OpResult, error) {
		return func() (protocol.OpResult, error) {
			t, err := a.find(command.Target.SessionID, command.Target.PTYID)
			if err == nil {
				err = do(t)
			}
			return result, err
		}
	}
	switch command.Kind() {
	case protocol.OpPTYClose:
		return on(func(t *terminal) error { a.remove(t); return nil }), decode(command, &plain{})
	case protocol.OpPTYResize:
		var op struct {
			plain
			protocol.PTYResize
		}
		err := decode(command, &op)
		return on(func(t *terminal) error { return t.resize(op.Cols, op.Rows) }), err
	case protocol.OpPTYSignal:
		var op struct {
			plain
			protocol.PTYSignal
		}
		err := decode(command, &op)
		return on(func(t *terminal) error { return t.signal(op.Signal) }), err
	}
	return nil, protocol.Errorf(protocol.KindUnsupported, "a simulated sandbox has no %.64s", command.Kind())
}

// open makes a terminal.
func (a *agent) open(session protocol.SessionID, id protocol.PTYID, op protocol.PTYCreate) (*terminal, error) {
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
