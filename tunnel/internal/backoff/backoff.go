// Package backoff spaces out attempts so that a crowd that lost the same relay
// doesn't return at the same instant.
package backoff

import (
	"math/rand/v2"
	"time"
)

const (
	// Base bounds the first pause, Cap every pause.
	Base = 50 * time.Millisecond
	Cap  = 5 * time.Second
)

// A Backoff counts failures in a row. Its zero value has seen none.
type Backoff struct{ failures int }

// Next returns the pause before the next attempt: full jitter, that is
// anything from 0 to a ceiling that doubles with each failure up to Cap.
func (b *Backoff) Next() time.Duration {
	ceiling := b.ceiling()
	b.failures++
	return rand.N(ceiling + 1)
}

// ceiling bounds the next pause.
func (b *Backoff) ceiling() time.Duration { return min(Base<<min(b.failures, 16), Cap) }

// Lived notes that an attempt led to something that lasted for d. When that is
// longer than the next pause can be, it was a success and the failures before
// are forgotten. So what comes and goes at once is tried less and less often,
// and what works and is lost is tried again without delay.
func (b *Backoff) Lived(d time.Duration) {
	if d > b.ceiling() {
		b.Reset()
	}
}

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }
