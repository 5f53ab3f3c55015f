package hub

import "github.com/fairlead/fairlead/protocol"

// turned tells everybody that a coding agent has finished a turn. One that is
// told again was masked anew: then what is remembered changes, and nothing has
// happened.
func (h *Hub) turned(m protocol.AgentTurn) {
	if h.follow(&m) {
		h.broadcast(*h.lastTurn)
		return
	}
	for _, v := range h.viewers {
		if v.greeted {
			v.outbox.Tell(h.stateFor(v))
		}
	}
}

// follow notes the last turn, and reports whether it is another one than before.
// An agent that knows of none was started anew: then there is none.
func (h *Hub) follow(m *protocol.AgentTurn) (another bool) {
	was := h.lastTurn
	if m == nil {
		h.lastTurn = nil
		return false
	}
	h.lastTurn = &protocol.AgentStoppedMessage{Agent: m.Agent, LastMessage: m.LastMessage, Reason: m.Reason, Timestamp: m.At}
	return was == nil || was.Timestamp != m.At
}
