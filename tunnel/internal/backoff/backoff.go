// Package backoff spaces out attempts, so that many agents that lost the same
// relay don't return at the same instant.
package backoff

import (
	"math/rand/v2"
	"time"
)

const (
	// Base bounds the first pause, Cap every pause.
	Base = 50 * time.Millisecond
	Cap  = 5 * time.Second
	// briefFailures bounds the failures counted after something that worked
	// briefly: the next pause is 800 ms at most.
	briefFailures = 4
)

// A Backoff counts failures in a row. Its zero value has seen none.
type Backoff struct{ failures int }

// Next returns the pause before the next attempt, with full jitter: between 0
// and a ceiling that doubles with each failure up to Cap.
func (b *Backoff) Next() time.Duration {
	ceiling := b.ceiling()
	b.failures++
	return rand.N(ceiling + 1)
}

// ceiling bounds the next pause.
func (b *Backoff) ceiling() time.Duration { return min(Base<<min(b.failures, 16), Cap) }

// Lived notes that an attempt led to something that lasted for d. If that is
// longer than the next pause can be, it was a success and resets the failures.
// If it is shorter, the next pause is still limited: somebody waits for it, and
// it may be killed again and again.
func (b *Backoff) Lived(d time.Duration) {
	switch {
	case d > b.ceiling():
		b.Reset()
	case d > 0:
		b.failures = min(b.failures, briefFailures)
	}
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }
