package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	keysPath = "/.well-known/jwks.json"
	// maxKeys bounds a key set, in bytes.
	maxKeys = 256 << 10
	// registerInterval is how often the relay tells the control plane where
	// it is; the control plane forgets it after three misses.
	registerInterval = 10 * time.Second
	// keysInterval is how often the relay looks for new or revoked keys.
	keysInterval = 30 * time.Second
	// retryInterval paces what must succeed before the relay is ready.
	retryInterval = 200 * time.Millisecond
)

// fetchKeys gets the control plane's key set.
func (r *Relay) fetchKeys(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.cfg.ControlPlaneURL+keysPath, nil)
	if err != nil {
		return nil, err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("relay: key set: status %d", resp.StatusCode)
	}
	return io.ReadAll(io.LimitReader(resp.Body, maxKeys))
}

// awaitKeys fetches the keys until it has them or ctx ends.
func (r *Relay) awaitKeys(ctx context.Context) error {
	for first := true; ; first = false {
		err := r.keys.Refresh(ctx)
		if err == nil {
			return nil
		}
		if first {
			r.log.Warn("waiting for the control plane", "err", err)
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// refreshKeys keeps the key set fresh until ctx ends.
func (r *Relay) refreshKeys(ctx context.Context) {
	every(ctx, keysInterval, func() {
		if err := r.keys.Refresh(ctx); err != nil {
			r.log.Warn("keys not refreshed", "err", err)
		}
	})
}

// stayRegistered tells the control plane where this relay is until ctx ends.
func (r *Relay) stayRegistered(ctx context.Context) {
	known := false
	register := func() {
		err := r.register(ctx)
		if known != (err == nil) {
			known = err == nil
			r.log.Info("registration at the control plane", "ok", known, "err", err)
		}
	}
	register()
	every(ctx, registerInterval, register)
}

func (r *Relay) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	a := r.Addresses()
	body, err := json.Marshal(map[string]string{
		"url": a.URL, "tunnel": a.Tunnel, "public_origin": r.cfg.origins(r.public.Addr())[0],
	})
	if err != nil {
		return err
	}
	url := r.cfg.ControlPlaneURL + "/internal/relays/" + string(r.cfg.RelayID)
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
	resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("relay: register: status %d", resp.StatusCode)
	}
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
