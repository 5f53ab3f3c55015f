package controlplane

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

type commandRequest struct {
	Target target          `json:"target"`
	Op     json.RawMessage `json:"op"`
	TTLMs  *int64          `json:"ttlMs"`
}

type commandAnswer struct {
	CommandID protocol.CommandID  `json:"commandId"`
	Status    string              `json:"status"` // of an ExecutionCallback
	Result    json.RawMessage     `json:"result,omitempty"`
	Error     *protocol.ErrorBody `json:"error,omitempty"`
}

// dispatchMargin is how long after a command's own time its outcome may still
// arrive.
const dispatchMargin = 5 * time.Second

// postCommand signs what a user wants done, has it done, and answers with its
// outcome.
func (s *Server) postCommand(w *web.Writer, r *http.Request) error {
	user, err := s.gate.User(w, r)
	if err != nil {
		return err
	}
	r, span := traced(r)
	cmd, err := s.runCommand(w, r, user.ID, span)
	if err != nil {
		span.End(err)
		return err
	}
	span.End(failureOf(cmd.Outcome))
	return s.writeOutcome(w, cmd)
}

// runCommand has done what the body of r asks for.
func (s *Server) runCommand(w *web.Writer, r *http.Request, user protocol.UserID, span telemetry.Span) (cmd store.Command, err error) {
	var req commandRequest
	if err := web.ReadBody(r, &req); err != nil {
		return cmd, err
	}
	return s.runRequest(w, r, user, req, span)
}

// runRequest has done what req asks for, under the Idempotency-Key of r.
func (s *Server) runRequest(w *web.Writer, r *http.Request, user protocol.UserID, req commandRequest, span telemetry.Span) (cmd store.Command, err error) {
	o, all, err := s.order(r.Context(), user, req, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return cmd, err
	}
	span.Set(telemetry.Operation(o.Kind))
	wait := time.Duration(o.TTLMs)*time.Millisecond + dispatchMargin
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + web.WriteTimeout)); err != nil {
		return cmd, err
	}
	// The command runs to its end whether or not its browser waits for it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	return s.execute(ctx, o, all)
}

// order checks what user wants done, under an idempotency key unless that is
// empty. It also returns the relays to go through, if there are any.
func (s *Server) order(ctx context.Context, user protocol.UserID, req commandRequest, key string) (o order, all []store.Relay, err error) {
	o = order{user: user, key: key}
	if o.key != "" {
		if err := checkKey(o.key); err != nil {
			return o, nil, err
		}
	}
	if o.operation, err = parseOperation(req.Op, req.Target, req.TTLMs, user); err != nil {
		return o, nil, err
	}
	if o.requestHash, err = s.hashOf(o.operation); err != nil {
		return o, nil, err
	}
	session, err := s.authorize(ctx, user, &o.operation)
	if err != nil {
		return o, nil, err
	}
	o.dashboard = session.Dashboard
	if o.Kind == op.KindSessionCreate {
		o.newSession = session.Dashboard
	}
	all, err = s.relays.Registered(ctx)
	return o, all, err
}

// errNoRelay says that there is nobody to take a command.
var errNoRelay = protocol.Errorf(protocol.KindUnavailable, "no relay is connected")

// execute signs the command of o, has it done, and stores its outcome. When the
// key was used before and we know how that went, that is the outcome. An error
// means that nobody has had the command; of what somebody may have had the
// outcome is unknown, if nothing better is known.
func (s *Server) execute(ctx context.Context, o order, all []store.Relay) (store.Command, error) {
	if len(all) == 0 {
		return s.askedBefore(ctx, o)
	}
	began := time.Now()
	o.origin = all[0].PublicOrigin
	joined := s.flights.Board(o.user, o.key)
	cmd, err := s.sign(ctx, o)
	if err != nil || cmd.Outcome.Final() {
		joined()
		return cmd, err
	}
	other, own := s.flights.Join(cmd.Envelope.CommandID)
	joined()
	wait, cancel := context.WithTimeout(ctx, time.Duration(cmd.Envelope.TTLMs)*time.Millisecond+dispatchMargin)
	defer cancel()
	if !own {
		select {
		case <-other.Done:
			cmd.Outcome, err = other.Outcome, other.Err
		case <-wait.Done():
			cmd.Outcome = outcomeLost()
		}
		return cmd, err
	}
	cmd.Outcome, err = s.fly(ctx, wait, all, cmd)
	s.flights.Land(cmd.Envelope.CommandID, cmd.Outcome, err)
	s.metrics.Command.Observe(time.Since(began).Seconds())
	return cmd, err
}

// fly dispatches cmd until wait ends, and stores what became of it.
func (s *Server) fly(ctx, wait context.Context, all []store.Relay, cmd store.Command) (store.Outcome, error) {
	if cmd.Repeated { // another flight may have landed since it was read
		now, err := s.store.Commands.Command(ctx, cmd.Envelope.CommandID)
		if err != nil || now.Outcome.Final() {
			return now.Outcome, err
		}
		cmd.Outcome = now.Outcome
	}
	var err error
	if cmd.Outcome, err = s.dispatch(wait, all, cmd); err != nil {
		return cmd.Outcome, err
	}
	err = s.finish(context.WithoutCancel(ctx), cmd)
	if err != nil && cmd.Outcome.Status != store.StatusUndelivered {
		s.logger.Error("outcome not stored", "command", cmd.Envelope.CommandID, "error", err)
		return outcomeLost(), nil
	}
	return cmd.Outcome, err
}

// askedBefore is execute while there is no relay: what is known of a command
// that was asked for before is its outcome.
func (s *Server) askedBefore(ctx context.Context, o order) (store.Command, error) {
	cmd, err := s.store.Commands.CommandOfKey(ctx, o.user, o.key, o.requestHash)
	switch {
	case err != nil && protocol.KindOf(err) == protocol.KindNotFound, err == nil && !hadBefore(cmd) && !cmd.Outcome.Final():
		err = errNoRelay
	case err == nil && !cmd.Outcome.Final():
		cmd.Outcome = outcomeLost()
	}
	return cmd, err
}

// hadBefore reports whether somebody may have had cmd when it was asked for
// before.
func hadBefore(cmd store.Command) bool {
	return cmd.Repeated && cmd.Outcome.Status != store.StatusUndelivered
}

// finish stores the outcome of cmd and what it means for its session. A command
// has failed once, however often it was tried: its first outcome counts.
func (s *Server) finish(ctx context.Context, cmd store.Command) error {
	id, session := cmd.Envelope.CommandID, cmd.Envelope.Target.SessionID
	s.logger.Info("command finished", "command", id, "trace", cmd.Envelope.TraceID, "status", cmd.Outcome.Status)
	news, err := s.store.Commands.FinishCommand(ctx, id, cmd.Outcome, s.clock.Now())
	if err != nil {
		return err
	}
	if news != store.NothingNew && cmd.Envelope.Target.SandboxID == "" && cmd.Outcome.Callback != nil {
		s.settled.add(cmd) // its executor is a page, at whatever relay
	}
	if news == store.FirstOutcome {
		s.metrics.Outcomes.WithLabelValues(cmd.Outcome.Status).Inc()
	}
	switch {
	case news == store.NothingNew: // the same outcome on its other way
		return nil
	case cmd.Outcome.Status != protocol.StatusOK:
		if news == store.FirstOutcome {
			s.countOutcome(ctx, cmd, store.UsageCommandsFailed)
		}
	case cmd.Kind == op.KindSessionCreate:
		return s.store.Sessions.ActivateSession(ctx, session)
	case cmd.Kind == op.KindSessionDelete:
		return s.store.Sessions.EndSession(ctx, session)
	case cmd.Kind == op.KindPTYCreate:
		s.countOutcome(ctx, cmd, store.UsageTerminals)
	}
	return nil
}

// countOutcome counts for the dashboard of the command's session; for none when
// the session, or the user's part in it, is over by now.
func (s *Server) countOutcome(ctx context.Context, cmd store.Command, counter string) {
	if cmd.User == "" {
		return
	}
	session, err := s.store.Sessions.Session(ctx, cmd.User, cmd.Envelope.Target.SessionID)
	if err != nil {
		s.logger.Debug("outcome counted for no dashboard", "command", cmd.Envelope.CommandID, "error", err)
	}
	s.usage.Count(session.Dashboard, cmd.User, counter)
}

// writeOutcome answers 200 for ok and unknown, and with the error's status for
// an error. Unknown isn't a failed request: to try again could do it twice.
func (s *Server) writeOutcome(w *web.Writer, cmd store.Command) error {
	answer := commandAnswer{
		CommandID: cmd.Envelope.CommandID, Status: cmd.Outcome.Status,
		Result: cmd.Outcome.Result, Error: cmd.Outcome.Error,
	}
	kind := protocol.KindInternal
	if answer.Error != nil {
		kind = protocol.KindByName(answer.Error.Name)
	}
	switch answer.Status {
	case store.StatusUndelivered:
		answer.Status = protocol.StatusError
		if kind == protocol.KindInternal {
			kind = protocol.KindUnavailable
		}
	case protocol.StatusError:
	default:
		return w.JSON(http.StatusOK, answer)
	}
	return w.JSON(kind.Status(), answer)
}
