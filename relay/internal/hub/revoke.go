package hub

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const revokedCause = "access was revoked"

// Heed has viewers cut whose grants revoked says are void: those who are there
// at once after each change, others when they join. It is called before the
// first Open.
func (s *Set) Heed(revoked *jws.RevocationSet) {
	s.revoked = revoked
	revoked.OnChange(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, t := range s.hubs {
			select {
			case t.hub.revised <- struct{}{}:
			default: // run is about to look, and will see this change
			}
		}
	})
}

// void reports whether a grant was revoked.
func (h *Hub) void(g *jws.Grant) bool { return h.revoked != nil && h.revoked.Grant(g) }

// cutRevoked cuts the viewers whose grants were revoked.
func (h *Hub) cutRevoked() {
	for v := range h.everybody() {
		if h.void(v.grant) {
			h.cut(v, cutRevoked, protocol.KindUnauthenticated, revokedCause)
		}
	}
}
