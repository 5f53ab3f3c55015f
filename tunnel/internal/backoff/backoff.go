// Package backoff spaces out attempts so that a crowd that lost the same relay
// doesn't return at the same instant.
package backoff

import (
	"math/rand/v2"
	"time"
)

const (
	// Base bounds the first pause, Cap every pause.
	Base = 100 * time.Millisecond
	Cap  = 5 * time.Second
)

// A Backoff counts failures in a row. Its zero value has seen none.
type Backoff struct{ failures int }

// Next returns the pause before the next attempt: full jitter, that is
// anything from 0 to a ceiling that doubles with each failure up to Cap.
func (b *Backoff) Next() time.Duration {
	ceiling := min(Base<<min(b.failures, 16), Cap)
	b.failures++
	return rand.N(ceiling + 1)
}

// Reset forgets the failures: an attempt succeeded.
func (b *Backoff) Reset() { b.failures = 0 }
