// Package commands has signed commands done: for people, for holders of grants
// behind a relay, and for the control plane itself. It keeps what became of them.
package commands

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/clock"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/dispatch"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/commands/signing"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/flights"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Commands answers for commands and sessions.
type Commands struct {
	// Static after construction.
	Store       *store.Commands
	Sessions    *store.Sessions
	Boards      *store.Boards
	Fleet       Fleet
	Signer      *signing.Signer
	Dispatcher  *dispatch.Dispatcher
	Settlements *dispatch.Settlements
	Relays      *relays.Directory
	Keys        *keyring.Ring // verifies grants
	Revoked     device.RevocationList
	Usage       access.Counter
	Gate        *access.Gate
	Metrics     *metrics.Metrics
	Clock       clock.Clock
	Logger      *slog.Logger
	Closing     context.Context // dispatches end with it, not with their browsers

	flights flights.Set[store.Outcome] // dispatches under way
}

// Fleet has relays.
type Fleet interface {
	Relay(ctx context.Context, id protocol.RelayID) (store.Relay, error)
}

// A Request says what somebody wants done.
type Request struct {
	Target signing.Target  `json:"target"`
	Op     json.RawMessage `json:"op"`
	TTLMs  *int64          `json:"ttlMs"`
}

// dispatchMargin is how long after a command's own time its outcome may still
// arrive.
const dispatchMargin = 5 * time.Second

// order checks what user wants done, under an idempotency key unless that is
// empty. It also returns the relays to go through, if there are any.
func (c *Commands) order(ctx context.Context, user protocol.UserID, req Request, key string) (o signing.Order, all []store.Relay, err error) {
	o = signing.Order{User: user, Key: key}
	if o.Key != "" {
		if err := signing.CheckKey(o.Key); err != nil {
			return o, nil, err
		}
	}
	if o.Operation, err = signing.Parse(req.Op, req.Target, req.TTLMs, user); err != nil {
		return o, nil, err
	}
	if o.RequestHash, err = c.Signer.Hash(o.Operation); err != nil {
		return o, nil, err
	}
	session, err := c.Signer.Authorize(ctx, user, &o.Operation)
	if err != nil {
		return o, nil, err
	}
	o.Dashboard = session.Dashboard
	if o.Kind == op.KindSessionCreate {
		o.NewSession = session.Dashboard
	}
	all, err = c.Relays.Registered(ctx)
	return o, all, err
}

// errNoRelay says that there is nobody to take a command.
var errNoRelay = protocol.Errorf(protocol.KindUnavailable, "no relay is connected")

// execute signs the command of o, has it done, and stores its outcome. When the
// key was used before and we know how that went, that is the outcome. An error
// means that nobody has had the command; of what somebody may have had the
// outcome is unknown, if nothing better is known.
func (c *Commands) execute(ctx context.Context, o signing.Order, all []store.Relay) (store.Command, error) {
	if len(all) == 0 {
		return c.askedBefore(ctx, o)
	}
	began := time.Now()
	o.Origin = all[0].PublicOrigin
	joined := c.flights.Board(o.User, o.Key)
	cmd, err := c.Signer.Sign(ctx, o)
	if err != nil || cmd.Outcome.Final() {
		joined()
		return cmd, err
	}
	other, own := c.flights.Join(cmd.Envelope.CommandID)
	joined()
	wait, cancel := context.WithTimeout(ctx, time.Duration(cmd.Envelope.TTLMs)*time.Millisecond+dispatchMargin)
	defer cancel()
	if !own {
		select {
		case <-other.Done:
			cmd.Outcome, err = other.Outcome, other.Err
		case <-wait.Done():
			cmd.Outcome = dispatch.Lost()
		}
		return cmd, err
	}
	cmd.Outcome, err = c.fly(ctx, wait, all, cmd)
	c.flights.Land(cmd.Envelope.CommandID, cmd.Outcome, err)
	c.Metrics.Command.Observe(time.Since(began).Seconds())
	return cmd, err
}

// fly dispatches cmd until wait ends, and stores what became of it.
func (c *Commands) fly(ctx, wait context.Context, all []store.Relay, cmd store.Command) (store.Outcome, error) {
	if cmd.Repeated { // another flight may have landed since it was read
		now, err := c.Store.Command(ctx, cmd.Envelope.CommandID)
		if err != nil || now.Outcome.Final() {
			return now.Outcome, err
		}
		cmd.Outcome = now.Outcome
	}
	var err error
	if cmd.Outcome, err = c.Dispatcher.Dispatch(wait, all, cmd); err != nil {
		return cmd.Outcome, err
	}
	err = c.finish(context.WithoutCancel(ctx), cmd)
	if err != nil && cmd.Outcome.Status != store.StatusUndelivered {
		c.Logger.Error("outcome not stored", "command", cmd.Envelope.CommandID, "error", err)
		return dispatch.Lost(), nil
	}
	return cmd.Outcome, err
}

// askedBefore is execute while there is no relay: what is known of a command
// that was asked for before is its outcome.
func (c *Commands) askedBefore(ctx context.Context, o signing.Order) (store.Command, error) {
	cmd, err := c.Store.CommandOfKey(ctx, o.User, o.Key, o.RequestHash)
	switch {
	case err != nil && protocol.KindOf(err) == protocol.KindNotFound, err == nil && !dispatch.HadBefore(cmd) && !cmd.Outcome.Final():
		err = errNoRelay
	case err == nil && !cmd.Outcome.Final():
		cmd.Outcome = dispatch.Lost()
	}
	return cmd, err
}

// finish stores the outcome of cmd and what it means for its session. A command
// has failed once, however often it was tried: its first outcome counts.
func (c *Commands) finish(ctx context.Context, cmd store.Command) error {
	id, session := cmd.Envelope.CommandID, cmd.Envelope.Target.SessionID
	c.Logger.Info("command finished", "command", id, "trace", cmd.Envelope.TraceID, "status", cmd.Outcome.Status)
	news, err := c.Store.FinishCommand(ctx, id, cmd.Outcome, c.Clock.Now())
	if err != nil {
		return err
	}
	if news != store.NothingNew && cmd.Envelope.Target.SandboxID == "" && cmd.Outcome.Callback != nil {
		c.Settlements.Add(cmd) // its executor is a page, at whatever relay
	}
	if news == store.FirstOutcome {
		c.Metrics.Outcomes.WithLabelValues(cmd.Outcome.Status).Inc()
	}
	switch {
	case news == store.NothingNew: // the same outcome on its other way
		return nil
	case cmd.Outcome.Status != protocol.StatusOK:
		if news == store.FirstOutcome {
			c.countOutcome(ctx, cmd, store.UsageCommandsFailed)
		}
	case cmd.Kind == op.KindSessionCreate:
		return c.Sessions.ActivateSession(ctx, session)
	case cmd.Kind == op.KindSessionDelete:
		return c.Sessions.EndSession(ctx, session)
	case cmd.Kind == op.KindPTYCreate:
		c.countOutcome(ctx, cmd, store.UsageTerminals)
	}
	return nil
}

// countOutcome counts for the dashboard of the command's session; for none when
// the session, or the user's part in it, is over by now.
func (c *Commands) countOutcome(ctx context.Context, cmd store.Command, counter string) {
	if cmd.User == "" {
		return
	}
	session, err := c.Sessions.Session(ctx, cmd.User, cmd.Envelope.Target.SessionID)
	if err != nil {
		c.Logger.Debug("outcome counted for no dashboard", "command", cmd.Envelope.CommandID, "error", err)
	}
	c.Usage.Count(session.Dashboard, cmd.User, counter)
}

// Tell signs an operation that is the control plane's own, and has it done;
// while no relay is connected nothing happens.
func (c *Commands) Tell(ctx context.Context, do op.Op, target protocol.CommandTarget) error {
	all, err := c.Relays.Registered(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	data, err := json.Marshal(do)
	if err != nil {
		return err
	}
	o := signing.Order{Origin: all[0].PublicOrigin, Operation: signing.Operation{
		Kind: do.Kind, Op: data, TTLMs: protocol.DefaultCommandTTL.Milliseconds(), Target: target,
	}}
	if o.RequestHash, err = c.Signer.Hash(o.Operation); err != nil {
		return err
	}
	cmd, err := c.Signer.Sign(ctx, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, protocol.DefaultCommandTTL)
	defer cancel()
	if cmd.Outcome, err = c.Dispatcher.Dispatch(ctx, all, cmd); err != nil {
		return err
	}
	return c.finish(context.WithoutCancel(ctx), cmd)
}

// Send has done what user wants, who may do no more than by HTTP. An error means
// that it was never sent. An empty key stands for none.
func (c *Commands) Send(ctx context.Context, user protocol.UserID, req Request, key string) (cmd store.Command, err error) {
	o, all, err := c.order(ctx, user, req, key)
	if err != nil {
		return cmd, err
	}
	ctx, span := telemetry.Start(ctx, "send command", telemetry.Operation(o.Kind))
	if cmd, err = c.execute(ctx, o, all); err != nil {
		span.End(err)
	} else {
		span.End(failureOf(cmd.Outcome))
	}
	return cmd, err
}
