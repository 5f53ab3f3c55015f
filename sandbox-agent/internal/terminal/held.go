package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// holding says since when bytes of the program in front have been held back
// without more output, because they may be the beginning of a secret. The
// terminal's mutex guards it.
type holding struct {
	since     time.Time // zero: none are
	announced bool
}

// noteHeld notes whether the display holds back output of the program in front,
// after some was printed or not. The caller holds mu.
func (t *Terminal) noteHeld(holdsBack, printed bool) {
	h := &t.held
	switch {
	case !holdsBack:
		if h.announced {
			t.announceHeld(false)
		}
		*h = holding{}
	case h.since.IsZero():
		h.since = time.Now()
		t.poke()
	case printed:
		h.since = time.Now() // the deadline that runs is early
	}
}

// checkHeld tells everybody of output that has been held back for long, and
// returns how long until that is due. The caller holds mu.
func (t *Terminal) checkHeld(now time.Time) time.Duration {
	h := &t.held
	if h.since.IsZero() || h.announced {
		return noDeadline
	}
	if wait := h.since.Add(protocol.HeldNotice).Sub(now); wait > 0 {
		return wait
	}
	t.announceHeld(true)
	return noDeadline
}

// announceHeld tells everybody. The caller holds mu.
func (t *Terminal) announceHeld(held bool) {
	t.held.announced = held
	for a := range t.attachments {
		a.post(protocol.Held{Held: held})
	}
}
