package chat

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// maxPendingInputs bounds what open questions say of their tools in a state, in
// bytes. A state is one frame.
const maxPendingInputs = 40 << 10

// pendingOf returns the open questions as a state has them, the oldest first. The
// inputs that don't fit are left out: the questions' events have them.
func pendingOf(questions []*question) (pending []protocol.Pending) {
	room := maxPendingInputs
	for _, q := range questions {
		shown := q.shown
		whole, err := json.Marshal([]json.RawMessage{shown.Input, shown.Context}) // in JSON, JSON is escaped
		if err == nil && len(whole) <= room {
			room -= len(whole)
		} else {
			shown.Input, shown.Context = json.RawMessage("null"), nil
		}
		pending = append(pending, shown)
	}
	return pending
}
