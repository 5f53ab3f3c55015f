package chathub

import "github.com/fairlead/fairlead/protocol"

// Pending returns an open question of one of the session's conversations. Its
// conversation need not be one that the socket follows, but somebody must have
// joined it here lately.
func (s *Socket) Pending(requestID string) (protocol.Pending, bool) {
	for _, f := range s.followers() {
		if p, ok := f.hub.asks(requestID); ok {
			return p, true
		}
	}
	for _, h := range s.set.hubsOf(s.sandbox, s.session) {
		if p, ok := h.asks(requestID); ok {
			return p, true
		}
	}
	return protocol.Pending{}, false
}

// asks returns an open question.
func (h *hub) asks(requestID string) (protocol.Pending, bool) {
	for _, p := range h.stateFor("").Pending {
		if p.RequestID == requestID {
			return p, true
		}
	}
	return protocol.Pending{}, false
}

// hubsOf returns the hubs of a session's conversations.
func (s *Set) hubsOf(sandbox protocol.SandboxID, session protocol.SessionID) (all []*hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, h := range s.hubs {
		if key.Sandbox == sandbox && key.Session == session {
			all = append(all, h)
		}
	}
	return all
}
