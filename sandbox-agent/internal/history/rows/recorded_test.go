package rows

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// recordings are what was recorded with the real Claude Code.
const recordings = "../../provider/testdata/claude"

// TestClaudeRecorded: of what was recorded with the real Claude Code, each row of
// the transcript that has an event in the live stream of the same run has its id,
// kind and text, and each live event that stays has a row.
func TestClaudeRecorded(t *testing.T) {
	for _, name := range []string{"tools", "questions", "abort", "plan", "resume", "background", "retry"} {
		t.Run(name, func(t *testing.T) {
			transcript, err := os.ReadFile(filepath.Join(recordings, name+".transcript.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			list, _ := readLines(Claude, transcript)
			rows := make(map[string]Row)
			for _, r := range list {
				rows[r.ID] = r
			}
			live := liveClaude(t, filepath.Join(recordings, name+".jsonl"))
			for id, e := range live {
				r, ok := rows[id]
				if !ok || r.Kind != e.Kind || r.Role != e.Role || content(r) != content(e) || r.ToolID != e.ToolID {
					t.Errorf("live event %s %s %q is row %v %+v", id, e.Kind, content(e), ok, r)
				}
			}
			for id, r := range rows {
				_, ok := live[id]
				command := r.Role == "user" && strings.HasPrefix(content(r), "/") // claude gives it an id of its own
				ownTurn := name == "background" && r.Kind == protocol.ChatText    // it is in no run
				if !ok && !command && !ownTurn {
					t.Errorf("row %s %s %s %q was no live event", id, r.Kind, r.Role, content(r))
				}
			}
		})
	}
}

func content(r Row) string {
	if r.Content == nil {
		return ""
	}
	return *r.Content
}

// liveClaude returns the events of a recording that history has as well, by id.
func liveClaude(t *testing.T, path string) map[string]protocol.ChatEvent {
	recorded, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := provider.ByName(provider.All(provider.Options{}), "claude")
	start := provider.Start{}
	if strings.Contains(path, "plan") {
		start.Mode = "plan"
	}
	talk := p.Talk(start)
	live := make(map[string]protocol.ChatEvent)
	for line := range bytes.Lines(recorded) {
		var said struct {
			To struct {
				Type, UUID string
				Message    struct{ Content string }
				Request    struct{ Subtype string }
			}
			From json.RawMessage
		}
		if err := json.Unmarshal(line, &said); err != nil {
			t.Fatal(err)
		}
		switch {
		case said.To.Type == "user":
			talk.Send(provider.Turn{ID: said.To.UUID, Content: said.To.Message.Content})
			if !strings.HasPrefix(said.To.Message.Content, "/") {
				live[said.To.UUID] = protocol.ChatEvent{Kind: protocol.ChatText, Role: "user", Content: &said.To.Message.Content}
			}
		case said.To.Request.Subtype == "interrupt":
			talk.Abort()
		case said.From != nil:
			for _, e := range talk.Line(said.From) {
				if emit, ok := e.(provider.Emit); ok && emit.Event.ID != "" && emit.Event.ParentToolUseID == "" {
					live[emit.Event.ID] = emit.Event
				}
			}
		}
	}
	return live
}
