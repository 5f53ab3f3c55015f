package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
)

const (
	keysPath        = "/.well-known/jwks.json"
	revocationsPath = "/.well-known/revocations"
	// maxKeys bounds a key set, in bytes.
	maxKeys = 256 << 10
	// maxAnswer bounds the answer to a registration, in bytes, and maxPeers how
	// many other relays are read from it.
	maxAnswer = 64 << 10
	maxPeers  = 8
	// registerInterval is how often the relay registers; the control plane forgets
	// it after three misses.
	registerInterval = 10 * time.Second
	// keysInterval is how often the relay refreshes keys and revocations. A token
	// under an unknown key causes a refresh as well, see jws.KeysOptions.
	keysInterval = 20 * time.Second
	// fetchTimeout bounds a request for either.
	fetchTimeout = 5 * time.Second
	// retryInterval is the pause between attempts before the relay is ready.
	retryInterval = 200 * time.Millisecond
)

// fetchKeys gets the control plane's key set.
func (r *Relay) fetchKeys(ctx context.Context) ([]byte, error) {
	return r.fetch(ctx, keysPath, maxKeys)
}

// fetch gets a document of at most so many bytes from the control plane.
func (r *Relay) fetch(ctx context.Context, path string, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.cfg.ControlPlaneURL+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("relay: %s: status %d", path, resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, most))
}

// refreshRevocations fetches the revocations. If that fails, those already
// known still apply.
func (r *Relay) refreshRevocations(ctx context.Context) error {
	text, err := r.fetch(ctx, revocationsPath, protocol.MaxRevocationBytes)
	if err != nil {
		return err
	}
	lists, err := r.keys.RevocationLists(ctx, string(text))
	for _, list := range lists {
		if r.revoked.Apply(list) {
			r.log.Info("revocations", "number", list.Number, "grants", len(list.Grants),
				"subjects", len(list.Subjects), "certificates", len(list.Certificates))
		}
	}
	if err != nil {
		return fmt.Errorf("relay: %s: %w", revocationsPath, err)
	}
	return nil
}

// awaitKeys fetches the keys and the revocations until it has both or ctx ends:
// a fresh relay must not accept a grant that was revoked.
func (r *Relay) awaitKeys(ctx context.Context) error {
	for first := true; ; first = false {
		err := r.keys.Refresh(ctx)
		if err == nil {
			err = r.refreshRevocations(ctx)
		}
		if err == nil {
			return nil
		}
		if first {
			r.log.Warn("waiting for the control plane", "err", err)
		}
		if err := pause.For(ctx, retryInterval); err != nil {
			return err
		}
	}
}

// refresh keeps keys and revocations fresh until ctx ends.
func (r *Relay) refresh(ctx context.Context) {
	every(ctx, keysInterval, func() {
		if err := r.keys.Refresh(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("keys not refreshed", "err", err)
		}
		if err := r.refreshRevocations(ctx); err != nil && ctx.Err() == nil {
			r.log.Warn("revocations not refreshed", "err", err)
		}
	})
}

// stayRegistered keeps the relay registered at the control plane until ctx
// ends. It calls first after the first success.
func (r *Relay) stayRegistered(ctx context.Context, first func()) {
	said := &registration{}
	register := func() {
		err := r.register(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.registration(said, err) {
			first()
		}
	}
	register()
	every(ctx, registerInterval, register)
}

// A registration is the state of the relay's registration.
type registration struct {
	said string // the last logged outcome
	once bool   // it succeeded before
}

// registration notes the outcome of an attempt and logs it if it differs from
// the last. It reports whether this is the first success. A refusal makes the
// relay not ready; losing the control plane later does not.
func (r *Relay) registration(g *registration, err error) (first bool) {
	r.registered.Store(err == nil)
	switch refusal, refused := errors.AsType[*refusedError](err); {
	case err == nil:
		r.taken.Store(true)
		r.refusal.Store(nil)
	case refused:
		r.refusal.Store(refusal)
	case !g.once:
		r.refusal.Store(&refusedError{err.Error()})
	}
	text := "ok"
	if err != nil {
		text = err.Error()
	}
	if text != g.said {
		g.said = text
		if err == nil {
			r.log.Info("registered at the control plane", "relay", r.id())
		} else {
			r.log.Warn("not registered at the control plane", "relay", r.id(), "err", err, "again_in", registerInterval)
		}
	}
	first = err == nil && !g.once
	g.once = g.once || first
	return first
}

// A refusedError is why the control plane doesn't take this relay, in its words.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }

// notTaken reads a refusal. A fault of the control plane's own, or 429, is not
// one.
func notTaken(resp *http.Response) error {
	var answer struct {
		Error protocol.ErrorBody `json:"error"`
	}
	text := fmt.Sprintf("relay: register: status %d", resp.StatusCode)
	if json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer) == nil && answer.Error.Message != "" {
		text += ": " + answer.Error.Message
	}
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		return errors.New(text)
	}
	return &refusedError{text}
}

// whose is the id under which a relay registers that knows none: the control
// plane then uses the credential's.
const whose = "self"

// id returns this relay's id: the configured one, or the one that the control
// plane has for the credential.
func (r *Relay) id() protocol.RelayID {
	if id := r.given.Load(); id != nil {
		return *id
	}
	return r.cfg.RelayID
}

// A peer is another relay that the control plane knows.
type peer struct {
	Tunnel       string `json:"tunnel"`
	PublicOrigin string `json:"public_origin"`
}

// alternates returns where agents may go instead, "host:port".
func (r *Relay) alternates() []string {
	var list []string
	for _, p := range r.others() {
		list = append(list, p.Tunnel)
	}
	return list
}

// elsewhere returns the origin of another relay, empty if there is none that
// browsers may use.
func (r *Relay) elsewhere() string {
	for _, p := range r.others() {
		if r.origins.Listed(p.PublicOrigin) {
			return p.PublicOrigin
		}
	}
	return ""
}

func (r *Relay) others() []peer {
	if peers := r.peers.Load(); peers != nil {
		return *peers
	}
	return nil
}

// register tells the control plane this relay's addresses and learns those of
// the others.
func (r *Relay) register(ctx context.Context) error { return r.put(ctx, false) }

// deregisterTimeout bounds the last request to the control plane, and aloneTimeout
// that of a relay that knows no other one yet: without an answer nobody could be sent
// anywhere. The first is a variable so that a test can raise it.
var deregisterTimeout = 500 * time.Millisecond

const aloneTimeout = 3 * time.Second

// deregister takes this relay off the control plane's list, so that nobody is
// sent here any more, and learns of the others one last time.
func (r *Relay) deregister(ctx context.Context) {
	within := deregisterTimeout
	if len(r.others()) == 0 {
		within = max(within, aloneTimeout)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := r.put(ctx, true); err != nil {
		r.log.Warn("not deregistered", "err", err)
	}
}

// put sends this relay's registration and stores the list of others.
func (r *Relay) put(ctx context.Context, draining bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	a := r.Addresses()
	body, err := json.Marshal(struct {
		URL          string `json:"url"`
		Tunnel       string `json:"tunnel"`
		PublicOrigin string `json:"public_origin"`
		Draining     bool   `json:"draining,omitempty"`
	}{r.cfg.advertised(a.URL, r.origins.List()[0]), r.cfg.advertisedTunnel(a.Tunnel, r.origins.List()[0]), r.origins.List()[0], draining})
	if err != nil {
		return err
	}
	name := string(r.cfg.RelayID)
	if r.cfg.madeUp {
		name = whose
	}
	url := r.cfg.ControlPlaneURL + "/internal/relays/" + name
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.cfg.Credential)
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return notTaken(resp)
	}
	var answer struct {
		ID     protocol.RelayID `json:"id"`
		Relays []peer           `json:"relays"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&answer); err != nil {
		return fmt.Errorf("relay: register: %w", err)
	}
	if r.cfg.madeUp && protocol.ValidID(answer.ID) {
		r.given.Store(&answer.ID)
	}
	peers := answer.Relays[:0]
	for _, p := range answer.Relays {
		if protocol.CheckAddr(p.Tunnel) == nil && len(peers) < maxPeers {
			peers = append(peers, p)
		}
	}
	r.peers.Store(&peers)
	return nil
}

// every calls f at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}
