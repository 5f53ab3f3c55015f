package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// reconnectTime is how long a sandbox may take to reconnect if its tunnel was
	// lost while a command ran: a live agent does so within seconds, and its
	// ledger knows whether the command ran.
	reconnectTime = 5 * time.Second
	// reconnectLook is the interval of looking for it.
	reconnectLook = 20 * time.Millisecond
	// endTime is how long after a stream its tunnel may fail, too.
	endTime = 250 * time.Millisecond
)

// maxQueued and maxQueuedBytes bound the commands that wait for one sandbox,
// beyond those being sent. Bytes are those of tokens.
const (
	maxQueued      = 512
	maxQueuedBytes = 4 << 20
)

// A sandbox holds the commands on their way to one sandbox. The Dispatcher's
// mutex guards it. It is removed when there are none.
type sandbox struct {
	running int // at most protocol.MaxCommandsInFlight
	queue   []delivery
	bytes   int // of the tokens in queue

	last map[terminal]*Record // the newest command of each terminal
}

// A terminal identifies commands that keep their order.
type terminal struct {
	session protocol.SessionID
	pty     protocol.PTYID
}

// A delivery is a command on its way. after is the command of the same terminal
// that must be done first, nil for none.
type delivery struct {
	token  string
	record *Record
	after  *Record
}

// toSandbox queues token, record's command, for its sandbox and sends it when
// its turn comes. The caller holds mu.
func (d *Dispatcher) toSandbox(token string, record *Record) error {
	target := record.Command.Target
	if _, err := d.opts.Tunnels.Session(target.SandboxID); err != nil {
		return err
	}
	s := d.sandboxes[target.SandboxID]
	if s == nil {
		s = &sandbox{last: map[terminal]*Record{}}
		d.sandboxes[target.SandboxID] = s
	}
	if len(s.queue) >= maxQueued || s.bytes+len(token) > maxQueuedBytes {
		return protocol.Errorf(protocol.KindTooMany, "%d commands wait for this sandbox", len(s.queue))
	}
	e := delivery{token: token, record: record}
	if target.PTYID != "" {
		at := terminal{target.SessionID, target.PTYID}
		e.after = s.last[at]
		s.last[at] = record
	}
	s.queue = append(s.queue, e)
	s.bytes += len(token)
	d.opts.Metrics.queued(1)
	d.proceed(target.SandboxID)
	return nil
}

// proceed starts the queued commands that may run now. A command that waits for
// another of its terminal holds no slot. The caller holds mu.
func (d *Dispatcher) proceed(id protocol.SandboxID) {
	s := d.sandboxes[id]
	for s.running < protocol.MaxCommandsInFlight {
		i := slices.IndexFunc(s.queue, delivery.isDue)
		if i < 0 {
			break
		}
		e := s.queue[i]
		s.queue = slices.Delete(s.queue, i, i+1)
		s.bytes -= len(e.token)
		s.running++
		d.opts.Metrics.queued(-1)
		d.opts.Metrics.sent(1)
		d.running.Go(func() { d.run(e) })
	}
	if s.running == 0 {
		delete(d.sandboxes, id)
	}
}

// isDue reports whether the command of the same terminal before e is done.
func (e delivery) isDue() bool { return e.after == nil || e.after.over() }

// run sends one command and waits for its RESULT.
func (d *Dispatcher) run(e delivery) {
	c := e.record.Command
	result, err := d.send(e)
	if err != nil {
		err = e.record.unsent(err)
	}
	d.mu.Lock()
	if err == nil && e.record.expired != nil && result.Kind == protocol.KindExpired {
		err = e.record.expired // it has not run
	}
	d.finish(e.record, result, err)
	s := d.sandboxes[c.Target.SandboxID]
	s.running--
	d.opts.Metrics.sent(-1)
	if at := (terminal{c.Target.SessionID, c.Target.PTYID}); s.last[at] == e.record {
		delete(s.last, at)
	}
	d.proceed(c.Target.SandboxID)
	d.mu.Unlock()
	d.report(e.record, result, err)
}

// report logs an executed command, and counts a refused one.
func (d *Dispatcher) report(record *Record, result protocol.Result, err error) {
	c := record.Command
	var callback struct {
		Status string `json:"status"`
	}
	if err == nil {
		err = json.Unmarshal(result.Callback, &callback)
	}
	refused := err == nil && callback.Status == protocol.StatusError
	d.opts.Metrics.done(c, time.Since(record.came), refused, err)
	if refused {
		err = protocol.Errorf(result.Kind, "the executor refused it")
	}
	record.span.End(err)
	if err != nil {
		d.opts.Refused(err)
		return
	}
	d.opts.Log.Info("command", "id", c.CommandID, "trace", c.TraceID, "op", c.Kind(), "sandbox", c.Target.SandboxID,
		"user", c.UserID)
}

// send delivers e through the sandbox's present tunnel.
func (d *Dispatcher) send(e delivery) (protocol.Result, error) {
	if d.ctx.Err() != nil {
		return protocol.Result{}, protocol.Fault(protocol.KindRestarting, nil)
	}
	sandbox := e.record.Command.Target.SandboxID
	session, err := d.opts.Tunnels.Session(sandbox)
	if err != nil {
		return protocol.Result{}, err
	}
	return d.deliver(session, e, sandbox)
}

// deliver sends e until there is an answer. If the tunnel is lost first, only
// the sandbox knows whether the command ran, so the same command goes to it
// again once it is back. An error is of kind unknown unless nothing was sent.
func (d *Dispatcher) deliver(session *tunnel.Session, e delivery, sandbox protocol.SandboxID) (protocol.Result, error) {
	ctx, cancel := context.WithTimeout(telemetry.Extract(d.ctx, e.record.traceparent), answerTimeout)
	defer cancel()
	for sent := false; ; {
		result, err := exchange(ctx, session, e.token)
		if err == nil {
			return result, nil
		}
		if sent = sent || errors.Is(err, tunnel.ErrUnanswered); sent {
			err = unknown(err)
		}
		if !over(session) {
			return result, err
		}
		if session = d.successor(ctx, session, sandbox); session == nil {
			return result, err
		}
		d.opts.Metrics.again()
	}
}

// over reports whether session has ended or ends within endTime: a stream fails
// slightly before its tunnel.
func over(session *tunnel.Session) bool {
	end := time.NewTimer(endTime)
	defer end.Stop()
	select {
	case <-session.Done():
		return true
	case <-end.C:
		return false
	}
}

// successor returns the tunnel that replaces lost, nil if none comes in time.
func (d *Dispatcher) successor(ctx context.Context, lost *tunnel.Session, sandbox protocol.SandboxID) *tunnel.Session {
	ctx, cancel := context.WithTimeout(ctx, d.patient)
	defer cancel()
	look := time.NewTicker(reconnectLook)
	defer look.Stop()
	for {
		if session, err := d.opts.Tunnels.Session(sandbox); err == nil && session != lost {
			return session
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// exchange sends token on a command stream and reads the answer. An error has
// [tunnel.ErrUnanswered] in its chain unless nothing was sent.
func exchange(ctx context.Context, session *tunnel.Session, token string) (result protocol.Result, err error) {
	ctx, span := telemetry.Call(ctx, "send command")
	defer func() { span.End(err) }()
	stream, _, err := session.Open(ctx, protocol.LaneControl, protocol.Open{
		Kind: protocol.StreamCommand, Command: token, Traceparent: telemetry.Inject(ctx),
	})
	if err != nil {
		return protocol.Result{}, err
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { stream.Close() })
	defer stop()
	if result, err = readResult(stream); err != nil {
		return result, protocol.Fault(protocol.KindUpstream, fmt.Errorf("%w: dispatch: %w", tunnel.ErrUnanswered, err))
	}
	return result, nil
}

// readResult reads the one frame that answers a command.
func readResult(stream *tunnel.Stream) (result protocol.Result, err error) {
	frame, err := protocol.NewFrameReader(stream).Next()
	if err != nil {
		return result, err
	}
	message, err := protocol.Decode(frame)
	if err != nil {
		return result, err
	}
	result, ok := message.(protocol.Result)
	if !ok {
		return result, fmt.Errorf("%s for a RESULT", frame.Type)
	}
	return result, nil
}
