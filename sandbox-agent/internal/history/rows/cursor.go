package rows

import (
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

type cursorLine struct {
	Role    string `json:"role"`
	Message struct {
		Content json.RawMessage `json:"content"`
	} `json:"message"`
	Content   json.RawMessage `json:"content"` // older
	Timestamp string          `json:"timestamp"`
}

type cursorPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Call     string          `json:"toolCallId"`
	Tool     string          `json:"toolName"`
	Args     json.RawMessage `json:"args"`
	Result   json.RawMessage `json:"result"`
	Use      string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	IsFailed bool            `json:"is_error"`
}

// Cursor is how cursor-agent writes down a session for people and tools. What it
// resumes from is a database of its own, which nothing here reads. Its lines name
// neither session, folder nor time.
func Cursor(s State, a *About, raw []byte) (State, []Row) {
	var l cursorLine
	if json.Unmarshal(raw, &l) != nil {
		return s, nil
	}
	var list []Row
	at := stamp(l.Timestamp)
	for _, p := range l.parts() {
		switch p.Type {
		case "text", "reasoning", "thinking":
			list = append(list, l.say(&s.Said, p, at)...)
		case "tool_use", "tool-call":
			if call := firstOf(p.ID, p.Call); call != "" {
				input := p.Input
				if !usable(input) {
					input = p.Args
				}
				list = append(list, use(call, at, firstOf(p.Name, p.Tool), call, input))
			}
		case "tool_result", "tool-result":
			if call := firstOf(p.Use, p.Call); call != "" {
				content := p.Content
				if !usable(content) {
					content = p.Result
				}
				list = append(list, result(provider.CallResultID(call), at, call, provider.ToolOutput(content), p.IsFailed))
			}
		}
	}
	for _, r := range list {
		if a != nil && a.Said == "" && r.Role == "user" {
			a.Said = cut(*r.Content, maxSaid)
		}
	}
	return s, list
}

// parts returns the content as parts.
func (l *cursorLine) parts() (parts []cursorPart) {
	content := l.Message.Content
	if !usable(content) {
		content = l.Content
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []cursorPart{{Type: "text", Text: text}}
	}
	if json.Unmarshal(content, &parts) != nil {
		return nil
	}
	return parts
}

// say returns the row of what was said. A user's text is between tags, behind
// what cursor adds; it begins a turn.
func (l *cursorLine) say(said *provider.Said, p cursorPart, at string) []Row {
	text, kind, role := p.Text, protocol.ChatText, "assistant"
	if p.Type != "text" {
		kind, role = protocol.ChatThinking, ""
	}
	if l.Role == "user" {
		role = "user"
		if query, ok := tagged(text, "user_query"); ok {
			text = strings.TrimSpace(query)
		} else if strings.HasPrefix(text, "<") {
			return nil
		}
		said.Begin(text)
	}
	if strings.TrimSpace(text) == "" || (l.Role != "user" && l.Role != "assistant") {
		return nil
	}
	return []Row{say(said.Next(kind, role, text), at, kind, role, text)}
}
