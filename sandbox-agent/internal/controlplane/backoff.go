package controlplane

import (
	"math/rand/v2"
	"time"
)

// Bounds of the pauses between attempts to reach the control plane.
const (
	FirstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
)

// A Backoff spaces out attempts: each pause is up to twice as long as the one
// before, and at random in the upper half of that, so that many sandboxes don't
// come at once. The zero value has seen no failure.
type Backoff struct {
	Longest  time.Duration // default 30 s
	failures int
}

// Next returns the pause before the next attempt.
func (b *Backoff) Next() time.Duration {
	longest := b.Longest
	if longest <= 0 {
		longest = longestPause
	}
	ceiling := min(FirstPause<<min(b.failures, 16), longest)
	b.failures++
	return ceiling/2 + rand.N(ceiling/2+1)
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }
