package chat

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestPendingFits: however much the open questions of a conversation say, its
// state is one frame, and has what fits.
func TestPendingFits(t *testing.T) {
	large := json.RawMessage(`"` + strings.Repeat("x", protocol.MaxToolInput-2) + `"`)
	var questions []*question
	for range 64 {
		questions = append(questions, &question{shown: protocol.Pending{
			RequestID: strings.Repeat("r", protocol.MaxIDBytes), ToolName: strings.Repeat("\x01", 128), Input: large, Context: json.RawMessage(`{}`),
			SessionID: protocol.ConversationID(strings.Repeat("c", 120)), ReceivedAt: "2026-01-02T03:04:05.000Z", ExpiresAt: "2026-01-02T03:05:00.000Z", Revision: 1,
		}})
	}
	questions[62].shown.Input = json.RawMessage(`"` + strings.Repeat("<", 10<<10) + `"`)
	questions[63].shown.Input = json.RawMessage(`{"small":true}`)
	pending := pendingOf(questions)
	if _, err := protocol.Append(nil, protocol.ChatState{Run: protocol.RunRunning, Provider: "claude", Pending: pending}); err != nil || len(pending) != 64 {
		t.Fatalf("%d questions: %v", len(pending), err)
	}
	for at, want := range map[int]string{0: string(large), 1: "null", 62: "null", 63: `{"small":true}`} {
		if string(pending[at].Input) != want {
			t.Errorf("question %d has %.20s", at, pending[at].Input)
		}
	}
	if string(questions[1].shown.Input) != string(large) || pending[1].Context != nil {
		t.Error("what is kept has changed, or what is shown hasn't")
	}
}
