package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// otherCarrierWait bounds the wait for a tunnel over another carrier.
const otherCarrierWait = 60 * time.Second

// unimpaired makes the network in front of the relay a good one, so that what
// isn't measured goes fast, until restore is called.
func (e *Env) unimpaired() (restore func() error, err error) {
	if e.Local == nil || e.Local.Shaper() == nil {
		return func() error { return nil }, nil
	}
	profile, err := impair.Parse(e.Options.Impair)
	if err != nil {
		return nil, err
	}
	shaper := e.Local.Shaper()
	return func() error { return shaper.SetProfile(profile) }, shaper.SetProfile(impair.Profile{})
}

// awaitCarrier waits until the first relay has tunnels over c only.
func awaitCarrier(ctx context.Context, env *Env, c tunnel.Carrier) error {
	ctx, cancel := context.WithTimeout(ctx, otherCarrierWait)
	defer cancel()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := readTunnels(ctx, env.Local.Target().Relays[0].AdminURL)
		if err == nil && now[string(c)] > 0 && len(now) == 1 {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no tunnel over %s after %v, there are %v", c, otherCarrierWait, now), err)
		}
	}
}
