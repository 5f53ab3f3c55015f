package rows

import (
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

type cursorLine struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type cursorPart struct {
	Type    string          `json:"type"`
	Text    string          `json:"text"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Call    string          `json:"toolCallId"`
	Tool    string          `json:"toolName"`
	Args    json.RawMessage `json:"args"`
	Result  json.RawMessage `json:"result"`
	Use     string          `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	Failed  bool            `json:"is_error"`
	Error   bool            `json:"isError"`
}

// Cursor reads a session of cursor-agent, whose messages are in order. They have
// no times, and their own ids aren't unique.
func Cursor(messages []Stored) Document {
	d := newDrafter()
	var said provider.Said
	for _, m := range messages {
		var l cursorLine
		if json.Unmarshal(m.Data, &l) == nil {
			d.cursor(&said, &l)
		}
	}
	return d.doc
}

// cursor adds the rows of a message.
func (d *drafter) cursor(said *provider.Said, l *cursorLine) {
	for _, p := range l.parts() {
		switch p.Type {
		case "text", "reasoning", "thinking":
			d.cursorText(said, l.Role, p)
		case "tool_use", "tool-call":
			if call := firstOf(p.ID, p.Call); call != "" {
				input := p.Input
				if !usable(input) {
					input = p.Args
				}
				d.once(use(call, stamp(""), firstOf(p.Name, p.Tool), call, input))
			}
		case "tool_result", "tool-result":
			if call := firstOf(p.Use, p.Call); call != "" {
				content := p.Content
				if !usable(content) {
					content = p.Result
				}
				failed := p.Failed || p.Error
				d.once(result(provider.CallResultID(call), stamp(""), call, provider.ToolOutput(content), failed))
			}
		}
	}
}

// parts returns the content as parts.
func (l *cursorLine) parts() (parts []cursorPart) {
	var text string
	if json.Unmarshal(l.Content, &text) == nil {
		return []cursorPart{{Type: "text", Text: text}}
	}
	if json.Unmarshal(l.Content, &parts) != nil {
		return nil
	}
	return parts
}

// cursorText adds what was said. A user's text is between tags, behind what
// cursor adds; it begins a turn.
func (d *drafter) cursorText(said *provider.Said, by string, p cursorPart) {
	text, kind, role := p.Text, protocol.ChatText, "assistant"
	if p.Type != "text" {
		kind, role = protocol.ChatThinking, ""
	}
	switch by {
	case "user":
		role = "user"
		if query, ok := tagged(text, "user_query"); ok {
			text = strings.TrimSpace(query)
		} else if strings.HasPrefix(text, "<") {
			return
		}
		said.Begin(strings.TrimSpace(text))
	case "assistant":
	default:
		return
	}
	if strings.TrimSpace(text) != "" {
		d.say(said.Next(kind, role, text), stamp(""), kind, role, text)
	}
}
