package agent

import (
	"context"
	"math/rand/v2"
	"time"
)

// Bounds of the pauses between attempts to reach the control plane.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// pauses space out attempts: each is up to twice as long as the one before,
// and somewhere in the upper half of that, so that a crowd spreads. The zero
// value has seen no failure.
type pauses struct {
	failures int
	longest  time.Duration // default longestPause
}

func (p *pauses) next() time.Duration {
	longest := p.longest
	if longest <= 0 {
		longest = longestPause
	}
	ceiling := min(firstPause<<min(p.failures, 16), longest)
	p.failures++
	return ceiling/2 + rand.N(ceiling/2+1)
}

func (p *pauses) reset() { p.failures = 0 }

// sleep waits unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
