package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/telemetry"
	"github.com/fairlead/fairlead/protocol"
)

const (
	ownName          = "self"           // of a relay that doesn't know its id: the credential's
	relayLife        = 30 * time.Second // without another registration
	relayDialTimeout = 2 * time.Second
	maxRelayAnswer   = 256 << 10 // more than any RESULT of the tunnel
)

type relayRequest struct {
	URL          string `json:"url"`
	Tunnel       string `json:"tunnel"`
	PublicOrigin string `json:"public_origin"`
	Draining     bool   `json:"draining,omitempty"` // it takes nothing new any more
}

type relayAnswer struct {
	ID        protocol.RelayID `json:"id"`
	ExpiresAt time.Time        `json:"expires_at"`
	Relays    []otherRelay     `json:"relays"`
	revised
}

// An otherRelay is where a relay's agents and viewers may go instead.
type otherRelay struct {
	ID           protocol.RelayID `json:"id"`
	URL          string           `json:"url"`
	Tunnel       string           `json:"tunnel"`
	PublicOrigin string           `json:"public_origin"`
}

// putRelay registers a relay's address for the next 30 s, or takes back the
// registration of one that drains, and answers with the other relays.
func (s *Server) putRelay(w http.ResponseWriter, r *http.Request) error {
	id, err := authenticate(w, r, realmRelay, s.store.Fleet.RelayByCredential)
	if err != nil {
		return err
	}
	if name := r.PathValue("id"); name != string(id) && name != ownName {
		return protocol.Errorf(protocol.KindForbidden, "the credential is another relay's")
	}
	var req relayRequest
	if err := readBody(r, &req); err != nil {
		return err
	}
	if req.URL, err = origin("url", req.URL); err != nil {
		return err
	}
	if req.PublicOrigin, err = origin("public_origin", req.PublicOrigin); err != nil {
		return err
	}
	if err := protocol.CheckAddr(req.Tunnel); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "tunnel: %v", err)
	}
	now := s.now().UTC()
	seen := now
	if req.Draining {
		seen = now.Add(-2 * relayLife)
	}
	if err := s.store.Fleet.RegisterRelay(r.Context(), store.Relay{
		ID: id, URL: req.URL, Tunnel: req.Tunnel, PublicOrigin: req.PublicOrigin,
	}, seen); err != nil {
		return err
	}
	s.spread.renew(id)
	others, err := s.otherRelays(r.Context(), id, now)
	if err != nil {
		return err
	}
	return s.write(w, http.StatusOK, relayAnswer{id, seen.Add(relayLife), others, s.stamp()})
}

// otherRelays lists the relays that are registered at now, but id.
func (s *Server) otherRelays(ctx context.Context, id protocol.RelayID, now time.Time) ([]otherRelay, error) {
	relays, err := s.store.Fleet.Relays(ctx, now.Add(-relayLife))
	if err != nil {
		return nil, err
	}
	others := []otherRelay{}
	for _, r := range relays {
		if r.ID != id {
			others = append(others, otherRelay(r))
		}
	}
	return others, nil
}

// origin returns text as scheme://host[:port]. What goes to a relay is signed,
// not secret, but plain HTTP would let anyone on the way hold it back: it is
// for loopback only.
func origin(field, text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || strings.TrimSuffix(u.Path, "/") != "" ||
		u.RawQuery != "" || u.Fragment != "" {
		return "", protocol.Errorf(protocol.KindInvalid, "%s: want scheme://host:port", field)
	}
	ip := net.ParseIP(u.Hostname())
	loopback := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !loopback) {
		return "", protocol.Errorf(protocol.KindInvalid, "%s: want https, or http on loopback", field)
	}
	return u.Scheme + "://" + u.Host, nil
}

// askFor has a request to a relay ask for its public origin, wherever the relay
// is reached: it answers to no other name.
func askFor(req *http.Request, relay store.Relay) {
	if u, err := url.Parse(relay.PublicOrigin); err == nil && u.Host != "" {
		req.Host = u.Host
	}
}

// newRelayClient returns a client that goes straight to relays: through no
// proxy and after no redirect.
func newRelayClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: relayDialTimeout}).DialContext,
			TLSHandshakeTimeout: relayDialTimeout,
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     idleTimeout,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// A delivery is what became of an offer to one relay.
type delivery uint8

const (
	answered  delivery = iota // the outcome is here
	refused                   // this relay won't take it, nor would another
	elsewhere                 // the sandbox isn't there
	lost                      // it may have been delivered
)

// dispatch offers a command to one relay after another until one of them
// answers. Offering it twice is safe: the sandbox runs a command id once. What
// a relay says in the sandbox's name counts only with the sandbox's signature.
// That nobody has it now is no outcome of a command that somebody may have had
// when it was asked for before.
func (s *Server) dispatch(ctx context.Context, relays []store.Relay, cmd store.Command) (store.Outcome, error) {
	outcome, err := s.offerAll(ctx, relays, cmd.Envelope)
	if err == nil && hadBefore(cmd) && outcome.Status == store.StatusUndelivered && !neverRan(outcome) {
		outcome = outcomeLost()
	}
	return outcome, err
}

// neverRan reports whether who would have run the command says so: its time was
// over before it came, or it wasn't begun.
func neverRan(outcome store.Outcome) bool {
	return outcome.Callback != nil || outcome.Error != nil && outcome.Error.Name == protocol.KindExpired.Name()
}

// offerAll is dispatch for a command that nobody has had.
func (s *Server) offerAll(ctx context.Context, relays []store.Relay, env protocol.CommandEnvelope) (store.Outcome, error) {
	body, err := json.Marshal(env)
	if err != nil {
		return store.Outcome{}, err
	}
	executor, err := s.executorOf(ctx, env.Target.SandboxID)
	if err != nil {
		return store.Outcome{}, err
	}
	if executor.sandbox == "" {
		return s.dispatchToPages(ctx, relays, env.CommandID, body), nil
	}
	delivered := false
	for _, relay := range relays {
		outcome, d := s.offer(ctx, relay, executor, env.CommandID, body)
		s.metrics.offers.WithLabelValues(d.String()).Inc()
		switch d {
		case answered, refused:
			return outcome, nil
		case lost:
			delivered = true
		}
	}
	if delivered {
		return outcomeLost(), nil
	}
	e := protocol.Errorf(protocol.KindUnavailable, "the sandbox is not connected").Body()
	return store.Outcome{Status: store.StatusUndelivered, Error: &e}, nil
}

func outcomeLost() store.Outcome {
	e := protocol.Errorf(protocol.KindUpstream, "the outcome was lost").Body()
	return store.Outcome{Status: protocol.StatusUnknown, Error: &e}
}

// dispatchToPages offers a command to all relays at once, since its user's page
// may be at any of them, and takes the first answer. Where a page may have had
// it, and said nothing in time, the outcome is unknown.
func (s *Server) dispatchToPages(ctx context.Context, relays []store.Relay, id protocol.CommandID, body []byte) store.Outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		outcome store.Outcome
		of      delivery
	}
	answers := make(chan answer, len(relays)) // whoever is late finds room
	for _, relay := range relays {
		go func() { // ends with ctx
			outcome, d := s.offer(ctx, relay, executor{}, id, body)
			s.metrics.offers.WithLabelValues(d.String()).Inc()
			answers <- answer{outcome, d}
		}()
	}
	e := protocol.Errorf(protocol.KindUnavailable, "no relay can be reached").Body()
	last, delivered := store.Outcome{Status: store.StatusUndelivered, Error: &e}, false
	for range relays {
		switch a := <-answers; a.of {
		case answered:
			return a.outcome
		case refused:
			last = a.outcome
		case lost:
			delivered = true
		}
	}
	if delivered { // whatever another relay said
		return outcomeLost()
	}
	return last
}

// An executor is the sandbox that runs a command.
type executor struct {
	sandbox protocol.SandboxID // empty: another kind of executor
	jwk     []byte             // device key; empty: it isn't known
}

func (s *Server) executorOf(ctx context.Context, id protocol.SandboxID) (executor, error) {
	if id == "" {
		return executor{}, nil
	}
	sandbox, err := s.store.Fleet.Sandbox(ctx, id)
	if err != nil && protocol.KindOf(err) != protocol.KindNotFound {
		return executor{}, err
	}
	return executor{id, sandbox.DeviceJWK}, nil
}

// offer posts a command to one relay and waits for its outcome.
func (s *Server) offer(ctx context.Context, relay store.Relay, exec executor, id protocol.CommandID, body []byte) (_ store.Outcome, d delivery) {
	ctx, span := telemetry.Call(ctx, "offer", telemetry.Relay(relay.ID))
	defer func() { span.End(d.failure()) }()
	log := s.logger.With("command", id, "relay", relay.ID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, relay.URL+"/control/commands?wait=1", bytes.NewReader(body))
	if err != nil {
		log.Warn("relay has no usable address", "error", err)
		return store.Outcome{}, elsewhere
	}
	req.Header.Set("Content-Type", "application/json")
	askFor(req, relay)
	passOn(ctx, req.Header)
	res, err := s.relays.Do(req)
	if err != nil {
		log.Warn("relay can't be reached", "error", err)
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return store.Outcome{}, elsewhere
		}
		return store.Outcome{}, lost
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxRelayAnswer))
	if err != nil {
		log.Warn("relay's answer broke off", "error", err)
		return store.Outcome{}, lost
	}
	if outcome, ok := outcomeOf(data, id); ok {
		return s.confirm(log, exec, outcome, data, res.Header.Get(protocol.SignatureHeader))
	}
	log.Info("relay didn't run the command", "status", res.StatusCode)
	switch res.StatusCode {
	case http.StatusUnauthorized:
		if exec.sandbox == "" { // its time is over: a page had it, perhaps
			return store.Outcome{}, lost
		}
	case http.StatusNotFound, http.StatusServiceUnavailable:
		return store.Outcome{}, elsewhere
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return store.Outcome{}, lost
	}
	return refusal(data), refused
}

// confirm returns the outcome in a callback if it is the executor's: without a
// valid signature a relay may have made it up, and nothing is known.
func (s *Server) confirm(log *slog.Logger, exec executor, outcome store.Outcome, callback []byte, signature string) (store.Outcome, delivery) {
	outcome.Callback = callback
	if len(exec.jwk) == 0 {
		return outcome, answered
	}
	var err error
	if outcome.Signature, err = checkExecutor(exec.sandbox, exec.jwk, callback, signature); err != nil {
		log.Warn("relay's answer is not the sandbox's", "error", err)
		return store.Outcome{}, lost
	}
	return outcome, answered
}

// outcomeOf reads the callback of command id.
func outcomeOf(data []byte, id protocol.CommandID) (store.Outcome, bool) {
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
	var answer errorAnswer
	if err := protocol.UnmarshalObject(data, &answer); err != nil || answer.Error.Message == "" {
		answer.Error = protocol.Errorf(protocol.KindUpstream, "the relay refused the command").Body()
	}
	return store.Outcome{Status: store.StatusUndelivered, Error: &answer.Error}
}
