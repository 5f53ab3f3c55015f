package chathub

import "github.com/fairlead/fairlead/protocol"

// Pending returns an open question of one of the conversations that the socket
// follows.
func (s *Socket) Pending(requestID string) (protocol.Pending, bool) {
	for _, f := range s.followers() {
		for _, p := range f.hub.stateFor(s.user).Pending {
			if p.RequestID == requestID {
				return p, true
			}
		}
	}
	return protocol.Pending{}, false
}
