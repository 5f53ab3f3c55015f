package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// holding says since when bytes of the program in front have been held back
// without more output, because they may be the beginning of a secret. The
// arbiter's mu guards it.
type holding struct {
	since     time.Time // zero: none are
	announced bool
}

// noteHeld notes whether the display holds back output of the program in front,
// after some was printed or not. The caller holds mu.
func (b *arbiter) noteHeld(holdsBack, printed bool) {
	h := &b.held
	switch {
	case !holdsBack:
		if h.announced {
			b.announceHeld(false)
		}
		*h = holding{}
	case h.since.IsZero():
		h.since = time.Now()
		b.poke()
	case printed:
		h.since = time.Now() // the deadline that runs is early
	}
}

// checkHeld tells everybody of output that has been held back for long, and
// returns how long until that is due. The caller holds mu.
func (b *arbiter) checkHeld(now time.Time) time.Duration {
	h := &b.held
	if h.since.IsZero() || h.announced {
		return noDeadline
	}
	if wait := h.since.Add(protocol.HeldNotice).Sub(now); wait > 0 {
		return wait
	}
	b.announceHeld(true)
	return noDeadline
}

// announceHeld tells everybody. The caller holds mu.
func (b *arbiter) announceHeld(held bool) {
	b.held.announced = held
	for a := range b.attachments {
		a.post(protocol.Held{Held: held})
	}
}
