// Package dispatch gives signed commands to relays, and reads what became of them.
package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/metrics"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
)

const maxRelayAnswer = 256 << 10 // more than any RESULT of the tunnel

// A Dispatcher gives commands to relays.
type Dispatcher struct {
	// Static after construction.
	Relays    *relays.Directory
	Sandboxes Sandboxes
	Metrics   *metrics.Metrics
	Logger    *slog.Logger
}

// Sandboxes have device keys.
type Sandboxes interface {
	Sandbox(ctx context.Context, id protocol.SandboxID) (store.Sandbox, error)
}

// A delivery is what became of an offer to one relay.
type delivery string

const (
	answered  delivery = metrics.OfferAnswered  // the outcome is here
	refused   delivery = metrics.OfferRefused   // this relay won't take it, nor would another
	elsewhere delivery = metrics.OfferElsewhere // the sandbox isn't there
	lost      delivery = metrics.OfferLost      // it may have been delivered
	torn      delivery = "torn"                 // it is lost, as the connection to the relay was
)

// label is what d is counted as.
func (d delivery) label() string {
	if d == torn {
		d = lost
	}
	return string(d)
}

// tornPause is how long a relay has to come back before it is offered again what it
// may have had when it went.
const tornPause = 500 * time.Millisecond

// Dispatch offers a command to one relay after another until one of them
// answers. Offering it twice is safe: the sandbox runs a command id once. What
// a relay says in the sandbox's name counts only with the sandbox's signature.
// That nobody has it now is no outcome of a command that somebody may have had
// when it was asked for before.
func (d *Dispatcher) Dispatch(ctx context.Context, all []store.Relay, cmd store.Command) (store.Outcome, error) {
	outcome, err := d.offerAll(ctx, all, cmd.Envelope)
	if err == nil && HadBefore(cmd) && outcome.Status == store.StatusUndelivered && !neverRan(outcome) {
		outcome = Lost()
	}
	return outcome, err
}

// neverRan reports whether who would have run the command says so: its time was
// over before it came, or it wasn't begun.
func neverRan(outcome store.Outcome) bool {
	return outcome.Callback != nil || outcome.Error != nil && outcome.Error.Name == protocol.KindExpired.Name()
}

// offerAll is Dispatch for a command that nobody has had.
func (d *Dispatcher) offerAll(ctx context.Context, all []store.Relay, env protocol.CommandEnvelope) (store.Outcome, error) {
	body, err := json.Marshal(env)
	if err != nil {
		return store.Outcome{}, err
	}
	executor, err := d.executorOf(ctx, env.Target.SandboxID)
	if err != nil {
		return store.Outcome{}, err
	}
	if executor.sandbox == "" {
		return d.dispatchToPages(ctx, all, env, body), nil
	}
	delivered := false
	for _, relay := range all {
		outcome, how := d.offer(ctx, relay, executor, env.CommandID, offered{body: body})
		d.Metrics.Offers.WithLabelValues(how.label()).Inc()
		switch how {
		case answered, refused:
			return outcome, nil
		case lost, torn:
			delivered = true
		}
	}
	if delivered {
		return Lost(), nil
	}
	e := protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected").Body()
	return store.Outcome{Status: store.StatusUndelivered, Error: &e}, nil
}

// Lost returns the outcome of a command that somebody may have had.
func Lost() store.Outcome {
	e := protocol.Errorf(protocol.KindUpstream, "the outcome was lost").Body()
	return store.Outcome{Status: protocol.StatusUnknown, Error: &e}
}

// dispatchToPages offers a command to all relays at once, since its user's page
// may be at any of them, and takes the first answer. Where a page may have had
// it, and said nothing in time, the outcome is unknown.
func (d *Dispatcher) dispatchToPages(ctx context.Context, all []store.Relay, env protocol.CommandEnvelope, body []byte) store.Outcome {
	browser, err := inquirer{d.Relays, d.Logger}.only(ctx, all, env.Target, body)
	if err != nil {
		e := protocol.AsError(err)
		body := e.Body()
		return store.Outcome{Status: store.StatusUndelivered, Error: &body, Kind: e.Kind}
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		outcome store.Outcome
		of      delivery
	}
	answers := make(chan answer, len(all)) // whoever is late finds room
	for _, relay := range all {
		go func() { // ends with ctx
			outcome, how := d.offerToPages(ctx, relay, env, offered{body, browser})
			answers <- answer{outcome, how}
		}()
	}
	e := protocol.Errorf(protocol.KindUnavailable, "no relay can be reached").Body()
	last, delivered := store.Outcome{Status: store.StatusUndelivered, Error: &e}, false
	for range all {
		switch a := <-answers; a.of {
		case answered:
			return a.outcome
		case refused:
			last = a.outcome
		case lost, torn:
			delivered = true
		}
	}
	if delivered { // whatever another relay said
		return Lost()
	}
	return last
}

// offerToPages offers a command to one relay. If that is lost with the connection,
// and the command is for one browser alone, it offers it again when the relay may be
// back: that browser runs it once, and says again what came of it.
func (d *Dispatcher) offerToPages(ctx context.Context, relay store.Relay, env protocol.CommandEnvelope, o offered) (outcome store.Outcome, how delivery) {
	for again := false; ; again = true {
		now, became := d.offer(ctx, relay, executor{}, env.CommandID, o)
		d.Metrics.Offers.WithLabelValues(became.label()).Inc()
		if became == answered || !again {
			outcome, how = now, became
		}
		if how != torn || env.Target.BrowserID == "" && o.browser == "" || became == lost || pause.For(ctx, tornPause) != nil {
			return outcome, how
		}
	}
}

// An executor is the sandbox that runs a command.
type executor struct {
	sandbox protocol.SandboxID // empty: another kind of executor
	jwk     []byte             // device key; empty: it isn't known
}

func (d *Dispatcher) executorOf(ctx context.Context, id protocol.SandboxID) (executor, error) {
	if id == "" {
		return executor{}, nil
	}
	sandbox, err := d.Sandboxes.Sandbox(ctx, id)
	if err != nil && protocol.KindOf(err) != protocol.KindNotFound {
		return executor{}, err
	}
	return executor{id, sandbox.DeviceJWK}, nil
}

// offer posts a command to one relay and waits for its outcome.
func (d *Dispatcher) offer(ctx context.Context, relay store.Relay, exec executor, id protocol.CommandID, o offered) (_ store.Outcome, how delivery) {
	ctx, span := telemetry.Call(ctx, "offer", telemetry.Relay(relay.ID))
	defer func() { span.End(how.failure()) }()
	log := d.Logger.With("command", id, "relay", relay.ID)
	req, err := relays.Post(ctx, relay, o.path(), "application/json", o.body)
	if err != nil {
		log.Warn("relay has no usable address", "error", err)
		return store.Outcome{}, elsewhere
	}
	passOn(ctx, req.Header)
	res, err := d.Relays.Do(req)
	if err != nil {
		log.Warn("relay can't be reached", "error", err)
		if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
			return store.Outcome{}, elsewhere
		}
		return store.Outcome{}, torn
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxRelayAnswer))
	if err != nil {
		log.Warn("relay's answer broke off", "error", err)
		return store.Outcome{}, torn
	}
	if outcome, ok := OutcomeOf(data, id); ok {
		return d.confirm(log, exec, outcome, data, res.Header.Get(protocol.SignatureHeader))
	}
	log.Info("relay didn't run the command", "status", res.StatusCode)
	switch res.StatusCode {
	case http.StatusUnauthorized:
		if exec.sandbox == "" { // its time is over: a page had it, perhaps
			return store.Outcome{}, lost
		}
	case http.StatusNotFound:
		return store.Outcome{}, elsewhere
	case http.StatusServiceUnavailable:
		if exec.sandbox == "" { // why it didn't run is for its person to read
			return refusal(data), refused
		}
		return store.Outcome{}, elsewhere
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return store.Outcome{}, lost
	}
	outcome := refusal(data)
	if res.StatusCode == http.StatusConflict {
		outcome.Kind = protocol.KindConflict
	}
	return outcome, refused
}

// confirm returns the outcome in a callback if it is the executor's: without a
// valid signature a relay may have made it up, and nothing is known.
func (d *Dispatcher) confirm(log *slog.Logger, exec executor, outcome store.Outcome, callback []byte, signature string) (store.Outcome, delivery) {
	outcome.Callback = callback
	if len(exec.jwk) == 0 {
		return outcome, answered
	}
	var err error
	if outcome.Signature, err = device.VerifyCallback(exec.sandbox, exec.jwk, callback, signature); err != nil {
		log.Warn("relay's answer is not the sandbox's", "error", err)
		return store.Outcome{}, lost
	}
	return outcome, answered
}

// OutcomeOf reads the callback of command id.
func OutcomeOf(data []byte, id protocol.CommandID) (store.Outcome, bool) {
	var cb protocol.ExecutionCallback
	if err := protocol.UnmarshalObject(data, &cb); err != nil || cb.Type != protocol.CallbackType || cb.CommandID != id {
		return store.Outcome{}, false
	}
	switch cb.Status {
	case protocol.StatusOK:
		return store.Outcome{Status: cb.Status, Result: cb.Result}, true
	case protocol.StatusError:
		if cb.Error == nil {
			e := protocol.Errorf(protocol.KindInternal, "the sandbox gave no reason").Body()
			cb.Error = &e
		}
		if refusedBefore(data, *cb.Error) {
			return store.Outcome{Status: store.StatusUndelivered, Error: cb.Error}, true
		}
		return store.Outcome{Status: cb.Status, Error: cb.Error}, true
	case protocol.StatusUnknown:
		return store.Outcome{Status: cb.Status, Error: cb.Error}, true
	}
	return store.Outcome{}, false
}

// refusedBefore reports whether an executor says that it hasn't begun (attempt 0
// of its telemetry), for a reason that passes. That isn't the fate of the
// command: under the same idempotency key it may be tried again. An executor
// that doesn't count its attempts may have begun.
func refusedBefore(callback []byte, e protocol.ErrorBody) bool {
	var cb struct {
		Telemetry struct {
			Attempt *int `json:"attempt"`
		} `json:"telemetry"`
	}
	if err := protocol.UnmarshalObject(callback, &cb); err != nil || cb.Telemetry.Attempt == nil || *cb.Telemetry.Attempt != 0 {
		return false
	}
	return e.Name == protocol.KindInternal.Name() || e.Name == protocol.KindTooMany.Name()
}

// refusal reads a relay's error body.
func refusal(data []byte) store.Outcome {
	var answer web.ErrorAnswer
	if err := protocol.UnmarshalObject(data, &answer); err != nil || answer.Error.Message == "" {
		answer.Error = protocol.Errorf(protocol.KindUpstream, "the relay refused the command").Body()
	}
	return store.Outcome{Status: store.StatusUndelivered, Error: &answer.Error}
}

// HadBefore reports whether somebody may have had cmd when it was asked for
// before.
func HadBefore(cmd store.Command) bool {
	return cmd.Repeated && cmd.Outcome.Status != store.StatusUndelivered
}

// passOn puts the span of ctx into the header of a request to a relay.
func passOn(ctx context.Context, header http.Header) {
	if traceparent := telemetry.Inject(ctx); traceparent != "" {
		header.Set(telemetry.Header, traceparent)
	}
}

// failure returns why an offer had no answer, nil if it had one.
func (d delivery) failure() error {
	switch d {
	case answered:
		return nil
	case refused:
		return protocol.Fault(protocol.KindForbidden, nil)
	case elsewhere:
		return protocol.Fault(protocol.KindUnavailable, nil)
	}
	return protocol.Fault(protocol.KindUpstream, nil)
}
