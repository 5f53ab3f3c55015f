package controlplane

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
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
	revised
}

// dispatchMargin is how long after a command's own time its outcome may still
// arrive.
const dispatchMargin = 5 * time.Second

// postCommand signs what a user wants done, has it done, and answers with its
// outcome.
func (s *Server) postCommand(w http.ResponseWriter, r *http.Request) error {
	o, relays, err := s.orderFrom(w, r)
	if err != nil {
		return err
	}
	o.origin = relays[0].PublicOrigin
	cmd, err := s.sign(r.Context(), o)
	if err != nil {
		return err
	}
	if cmd.Outcome.Final() { // the key was used before, and we know how that went
		return s.writeOutcome(w, cmd)
	}
	wait := time.Duration(cmd.Envelope.TTLMs)*time.Millisecond + dispatchMargin
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + writeTimeout)); err != nil {
		return err
	}
	// The command runs to its end whether or not its browser waits for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), wait)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if cmd.Outcome, err = s.dispatch(ctx, relays, cmd.Envelope); err != nil {
		return err
	}
	if err := s.finish(context.WithoutCancel(ctx), cmd); err != nil {
		return err
	}
	return s.writeOutcome(w, cmd)
}

// orderFrom reads and authorizes a request to POST /commands. It also returns
// the relays to go through, at least one.
func (s *Server) orderFrom(w http.ResponseWriter, r *http.Request) (order, []store.Relay, error) {
	user, err := authenticate(w, r, realmUser, s.store.UserByToken)
	if err != nil {
		return order{}, nil, err
	}
	var req commandRequest
	if err := readBody(r, &req); err != nil {
		return order{}, nil, err
	}
	o := order{user: user.ID, key: r.Header.Get("Idempotency-Key")}
	if o.key != "" {
		if err := checkKey(o.key); err != nil {
			return order{}, nil, err
		}
	}
	if o.operation, err = parseOperation(req.Op, req.Target, req.TTLMs, user.ID); err != nil {
		return order{}, nil, err
	}
	if o.requestHash, err = hashOf(o.operation); err != nil {
		return order{}, nil, err
	}
	session, err := s.authorize(r.Context(), user.ID, &o.operation)
	if err != nil {
		return order{}, nil, err
	}
	if o.Kind == protocol.OpSessionCreate {
		o.newSession = session.Dashboard
	}
	relays, err := s.store.Relays(r.Context(), s.now().Add(-relayLife))
	if err == nil && len(relays) == 0 {
		err = protocol.Errorf(protocol.KindUnavailable, "no relay is connected")
	}
	return o, relays, err
}

// finish stores the outcome of cmd and what it means for its session.
func (s *Server) finish(ctx context.Context, cmd store.Command) error {
	id, session := cmd.Envelope.CommandID, cmd.Envelope.Target.SessionID
	s.logger.Info("command finished", "command", id, "trace", cmd.Envelope.TraceID, "status", cmd.Outcome.Status)
	if err := s.store.FinishCommand(ctx, id, cmd.Outcome, s.now()); err != nil {
		return err
	}
	switch {
	case cmd.Outcome.Status != protocol.StatusOK:
		return nil
	case cmd.Kind == protocol.OpSessionCreate:
		return s.store.ActivateSession(ctx, session)
	case cmd.Kind == protocol.OpSessionDelete:
		return s.store.EndSession(ctx, session)
	}
	return nil
}

// writeOutcome answers 200 for ok and unknown, and with the error's status for
// an error. Unknown isn't a failed request: to try again could do it twice.
func (s *Server) writeOutcome(w http.ResponseWriter, cmd store.Command) error {
	answer := commandAnswer{
		CommandID: cmd.Envelope.CommandID, Status: cmd.Outcome.Status,
		Result: cmd.Outcome.Result, Error: cmd.Outcome.Error, revised: s.stamp(),
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
		return s.write(w, http.StatusOK, answer)
	}
	return s.write(w, kind.Status(), answer)
}
