package stage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// Unimpaired removes the impairment of the network, until restore is called:
// what is not measured is done fast.
func (e *Env) Unimpaired() (restore func() error, err error) {
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

// AwaitCarrier waits until the first relay has tunnels over c, and over no other
// carrier.
func (e *Env) AwaitCarrier(ctx context.Context, c tunnel.Carrier, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		now, err := usage.Tunnels(ctx, e.Now().Relays[0].AdminURL)
		if err == nil && now[string(c)] > 0 && len(now) == 1 {
			return nil
		}
		if pause.For(ctx, 100*time.Millisecond) != nil {
			return errors.Join(fmt.Errorf("no tunnel over %s after %v, there are %v", c, within, now), err)
		}
	}
}
