package hub

import (
	"errors"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
)

// Under has viewers end with their grants by the clock, and the revocations, of
// grants. It is called before the first Open; without it nothing is revoked.
func (s *Set) Under(grants *lifetime.Grants) { s.grants = grants }

// noteEnded has run look whose grant has ended. It never waits.
func (h *Hub) noteEnded(error) {
	select {
	case h.ended <- struct{}{}:
	default: // run is about to look
	}
}

// cutEnded cuts the viewers whose grants have ended.
func (h *Hub) cutEnded() {
	for v := range h.everybody() {
		if err := h.grants.Check(v.grant); err != nil {
			why, kind, cause := whyEnded(err)
			h.cut(v, why, kind, cause)
		}
	}
}

// whyEnded says what is counted, and what a viewer is told, when its grant has
// ended.
func whyEnded(err error) (why string, kind protocol.Kind, cause string) {
	e := protocol.AsError(err)
	if errors.Is(err, lifetime.ErrRevoked) {
		return cutRevoked, e.Kind, e.Error()
	}
	return cutExpired, e.Kind, e.Error()
}
