package hub

import "github.com/fairlead/fairlead/protocol"

// hold notes whether output is held back, since what was typed last may be the
// beginning of a secret, and tells who typed it.
func (h *Hub) hold(held bool) {
	if held == h.held {
		return
	}
	h.held = held
	for _, v := range h.viewers {
		if v.greeted && h.typed(v) {
			v.outbox.Tell(protocol.OutputHeld{Held: held})
		}
	}
}

// typed reports whether what is held back is v's concern: nobody else learns
// that somebody types a secret.
func (h *Hub) typed(v *Viewer) bool { return v.user != "" && v.user == h.pacers.controller }
