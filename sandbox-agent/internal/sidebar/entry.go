package sidebar

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// Who says an entry, and what an agent's says (seed 000).
const (
	roleUser  = "user"
	roleAgent = "agent"

	typeStart    = "agent_start"
	typeDone     = "agent_done"
	typeError    = "agent_error"
	typeDelta    = "text_delta"
	typeText     = "text"
	typeResult   = "result"
	typeTool     = "tool_use"
	typeQuestion = "permission_request"   // ours: panels of the seed show nothing
	typeAnswered = "permission_cancelled" // ours
)

// Texts of the seed.
const (
	textStopped = "Stopped by user"
	textKilled  = "Killed by user"
)

const (
	// maxText bounds a text of an entry, in bytes; what is longer is cut.
	maxText = 64 << 10
	// maxInput bounds what an entry says about a tool's input, in characters.
	maxInput = 200
)

// An Entry is one of the panel's chat (seed 000).
type Entry struct {
	ID      uint64     `json:"id"`
	Time    string     `json:"ts"`
	Role    string     `json:"role"`
	Type    string     `json:"type,omitempty"`
	Message string     `json:"message,omitempty"` // of a user
	Text    string     `json:"text,omitempty"`
	Tool    string     `json:"tool,omitempty"`
	Input   string     `json:"input,omitempty"`
	Error   string     `json:"error,omitempty"`
	TabID   lineup.Tab `json:"tabId"`

	RequestID string `json:"requestId,omitempty"` // of a question: the approval's id
	Revision  uint64 `json:"revision,omitempty"`  // of that
}

// size is about what an entry takes in memory.
func (e Entry) size() int { return 256 + len(e.Message) + len(e.Text) + len(e.Input) + len(e.Error) }

// stamp is a time as the panel has it.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// A telling turns the events of one run into entries. Its zero value is of a run
// that nobody has begun to tell of.
type telling struct {
	command protocol.CommandID // of the run
	ended   bool               // the panel was told that it is over
	deltas  bool               // it was told of a text in pieces that isn't whole yet
	said    string             // the latest whole text
	failed  string             // the latest error
}

// tell returns the entries of an event, and whether the pieces of a text are
// there as a whole now. Nothing comes behind the one entry that ends a run.
func (t *telling) tell(e protocol.ChatEvent) (entries []Entry, whole bool) {
	if t.ended || e.ParentToolUseID != "" {
		return nil, false
	}
	content := ""
	if e.Content != nil {
		content = cut(*e.Content, maxText)
	}
	switch e.Kind {
	case protocol.ChatStreamDelta:
		t.deltas = true
		return []Entry{{Type: typeDelta, Text: content}}, false
	case protocol.ChatText:
		if e.Role == roleUser {
			return nil, false
		}
		whole, t.deltas, t.said = t.deltas, false, content
		return []Entry{{Type: typeText, Text: content}}, whole
	case protocol.ChatToolUse:
		return []Entry{{Type: typeTool, Tool: e.ToolName, Input: summary(e.ToolName, e.ToolInput)}}, false
	case protocol.ChatPermissionRequest:
		return []Entry{{Type: typeQuestion, Tool: e.ToolName, Input: summary(e.ToolName, e.Input), RequestID: e.RequestID, Revision: e.Revision}}, false
	case protocol.ChatPermissionCancelled:
		return []Entry{{Type: typeAnswered, RequestID: e.RequestID, Text: e.Reason}}, false
	case protocol.ChatError:
		t.failed = content
	case protocol.ChatComplete:
		return t.over(e), false
	}
	return nil, false
}

// over returns the entries of a run's end.
func (t *telling) over(e protocol.ChatEvent) []Entry {
	t.ended = true
	switch {
	case e.Aborted != nil && *e.Aborted:
		return []Entry{{Type: typeError, Error: textStopped}}
	case e.Success != nil && *e.Success:
		if t.said == "" {
			return []Entry{{Type: typeDone}}
		}
		return []Entry{{Type: typeResult, Text: t.said}, {Type: typeDone}}
	case t.failed != "":
		return []Entry{{Type: typeError, Error: t.failed}}
	}
	return []Entry{{Type: typeError, Error: "The agent has failed."}}
}

// telling are the members of tools' inputs that say most.
var tellingMembers = []string{"command", "file_path", "path", "pattern", "url", "selector", "query", "description", "text", "script", "prompt"}

// summary says in a line what a tool is to do. A panel of the seed shows no tool
// without it.
func summary(tool string, input json.RawMessage) string {
	var members map[string]json.RawMessage
	if json.Unmarshal(input, &members) == nil {
		for _, name := range tellingMembers {
			var text string
			if json.Unmarshal(members[name], &text) == nil && text != "" {
				return line(text)
			}
		}
	}
	if text := line(string(input)); text != "" && text != "{}" && text != "null" {
		return text
	}
	return tool
}

// line is a text in one line of bounded length.
func line(text string) string {
	text = strings.Join(strings.Fields(cut(text, 8*maxInput)), " ")
	if runes := []rune(text); len(runes) > maxInput {
		return string(runes[:maxInput]) + "…"
	}
	return text
}

// cut is a text of at most so many bytes, valid UTF-8.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
