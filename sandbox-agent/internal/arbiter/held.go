package arbiter

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// holding says since when bytes of the program in front have been held back
// without more output, because they may be the beginning of a secret.
type holding struct {
	// Static after construction.
	streams streams
	changed wakeup

	// Guarded by Arbiter.mu.
	since     time.Time // zero: none are
	announced bool
}

// note notes whether the display holds back output of the program in front, after
// some was printed or not. The caller holds Arbiter.mu.
func (h *holding) note(holdsBack, printed bool) {
	switch {
	case !holdsBack:
		if h.announced {
			h.announce(false)
		}
		h.since = time.Time{}
	case h.since.IsZero():
		h.since = time.Now()
		h.changed.raise()
	case printed:
		h.since = time.Now() // the deadline that runs is early
	}
}

// check tells everybody of output that has been held back for long, and returns
// how long until that is due. The caller holds Arbiter.mu.
func (h *holding) check(now time.Time) time.Duration {
	if h.since.IsZero() || h.announced {
		return NoDeadline
	}
	if wait := h.since.Add(protocol.HeldNotice).Sub(now); wait > 0 {
		return wait
	}
	h.announce(true)
	return NoDeadline
}

// announce tells everybody. The caller holds Arbiter.mu.
func (h *holding) announce(held bool) {
	h.announced = held
	h.streams.tell(protocol.Held{Held: held})
}
