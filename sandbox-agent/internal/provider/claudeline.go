package provider

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Permission modes of Claude Code.
const (
	modeDefault = "default"
	modePlan    = "plan"
)

// claudeMode returns the permission mode that s asks for. Nobody is asked in
// bypassPermissions; a plan stays a plan.
func claudeMode(s Start) string {
	switch {
	case s.SkipPermissions && s.Mode != modePlan:
		return op.BypassPermissions
	case s.Mode == "":
		return modeDefault
	}
	return s.Mode
}

// claudeLine is a line that claude prints. Which members it has depends on its
// type.
type claudeLine struct {
	claudeWord
	Subtype   string          `json:"subtype"`
	UUID      string          `json:"uuid"`
	SessionID string          `json:"session_id"`
	Message   *message        `json:"message"`         // assistant, user
	Output    json.RawMessage `json:"tool_use_result"` // user
	Synthetic bool            `json:"isSynthetic"`     // user: claude has written it
	Error     string          `json:"error"`           // assistant
	Mode      string          `json:"permissionMode"`  // system
	Status    string          `json:"status"`          // system/status
	Attempt   int             `json:"attempt"`         // system/api_retry
	Attempts  int             `json:"max_retries"`
	Refused   int             `json:"error_status"`
	RequestID string          `json:"request_id"` // control_request, control_cancel_request
	Request   *claudeRequest  `json:"request"`    // control_request
	claudeResult
}

// claudeWord is what is needed of a line that streams a message. Somebody waits for
// each of its words, and decoding this takes a third of the time of a claudeLine.
type claudeWord struct {
	Type   string       `json:"type"`
	Parent string       `json:"parent_tool_use_id"`
	Event  *streamEvent `json:"event"` // stream_event
}

// claudeRequest is something that claude asks of us.
type claudeRequest struct {
	Subtype  string          `json:"subtype"`
	ToolName string          `json:"tool_name"`
	Input    json.RawMessage `json:"input"`

	ToolUseID      string          `json:"tool_use_id"`
	DisplayName    string          `json:"display_name"`
	Description    string          `json:"description"`
	BlockedPath    string          `json:"blocked_path"`
	DecisionReason string          `json:"decision_reason"`
	Suggestions    json.RawMessage `json:"permission_suggestions"`
}

// context is what claude says of a question beside the tool and its input.
func (r *claudeRequest) context() json.RawMessage {
	return object(struct {
		ToolUseID      string          `json:"toolUseId,omitempty"`
		DisplayName    string          `json:"displayName,omitempty"`
		Description    string          `json:"description,omitempty"`
		BlockedPath    string          `json:"blockedPath,omitempty"`
		DecisionReason string          `json:"decisionReason,omitempty"`
		Suggestions    json.RawMessage `json:"suggestions,omitempty"`
	}{r.ToolUseID, r.DisplayName, r.Description, r.BlockedPath, r.DecisionReason, orNil(r.Suggestions)})
}

// claudeResult is the end of a turn.
type claudeResult struct {
	IsError    bool            `json:"is_error"`
	Result     json.RawMessage `json:"result"` // a string
	Errors     json.RawMessage `json:"errors"` // strings
	Usage      *usage          `json:"usage"`
	ModelUsage map[string]struct {
		ContextWindow int64 `json:"contextWindow"`
	} `json:"modelUsage"`
}

// claudePart returns the event of a part of an assistant's message, without its
// id. Of a subagent only what it does is told.
func claudePart(p part, l *claudeLine) (event protocol.ChatEvent, ok bool) {
	switch {
	case p.Type == "text" && p.Text != "" && l.Parent == "":
		return protocol.ChatEvent{Kind: protocol.ChatText, Role: "assistant", Content: &p.Text}, true
	case p.Type == "thinking" && p.Thinking != "" && l.Parent == "":
		return protocol.ChatEvent{Kind: protocol.ChatThinking, Content: &p.Thinking}, true
	case p.Type == "tool_use" && p.ID != "":
		return protocol.ChatEvent{
			Kind: protocol.ChatToolUse, ToolName: p.Name, ToolInput: orObject(p.Input), ToolID: p.ID, ParentToolUseID: l.Parent,
		}, true
	}
	return protocol.ChatEvent{}, false
}

// synthetic is the model of what no model has said.
const synthetic = "<synthetic>"

// claudeNote returns what claude itself writes in the place of a person, as
// something that it says: what one of its own commands has printed, or a summary
// that it has just made.
func claudeNote(l *claudeLine, text string, compact bool) (event protocol.ChatEvent, ok bool) {
	printed, local := LocalOutput(text)
	summary := compact && l.Synthetic && text != ""
	if summary {
		printed = text
	}
	event = protocol.ChatEvent{Kind: protocol.ChatText, Role: "assistant", Content: &printed}
	event.IsCompactSummary = summary
	return event, (local || summary) && l.Parent == ""
}

// claudeStatus returns what a system line tells of a turn that goes on without
// anything being said: claude waits for its model, or sums the conversation up.
func claudeStatus(l *claudeLine) (text string, ok bool) {
	switch {
	case l.Subtype == "api_retry":
		return fmt.Sprintf("The model can't answer (%s): attempt %d of %d follows", cmp.Or(l.Error, strconv.Itoa(l.Refused)), l.Attempt, l.Attempts), true
	case l.Subtype == "status" && l.Status == "compacting":
		return "Claude Code summarises the earlier conversation", true
	}
	return "", false
}

// claudeFailure says why a turn failed.
func claudeFailure(l *claudeLine) string {
	var text string
	_ = json.Unmarshal(l.Result, &text) // "" if it is something else
	var texts []string
	if text == "" && json.Unmarshal(l.Errors, &texts) == nil {
		text = strings.Join(texts, "\n")
	}
	if text == "" {
		text = "Claude Code: " + strings.ReplaceAll(l.Subtype, "_", " ")
	}
	return text
}

// maxImage bounds an image within a message, in bytes; a larger one is named by
// its path.
const maxImage = 3 << 20

// claudeContent returns a message's text, or its parts where it has others.
func claudeContent(turn Turn) any {
	text := turn.Content
	var images []any
	var paths []string
	for _, image := range turn.Images {
		switch image.MimeType {
		case "image/jpeg", "image/png", "image/gif", "image/webp":
			if len(image.Data) > 0 && len(image.Data) <= maxImage {
				images = append(images, map[string]any{"type": "image", "source": map[string]any{
					"type": "base64", "media_type": image.MimeType, "data": image.Data,
				}})
				continue
			}
		}
		paths = append(paths, image.Path)
	}
	if len(paths) > 0 {
		text += "\n\n[Images provided at the following paths:]"
		for i, path := range paths {
			text += fmt.Sprintf("\n%d. %s", i+1, path)
		}
	}
	if turn.Context != "" { // for claude, and not shown to people, see HiddenText
		images = append(images, map[string]any{"type": "text", "text": "<system-reminder>\n" + turn.Context + "\n</system-reminder>"})
	}
	if len(images) == 0 && len(turn.Images) == 0 {
		return text
	}
	text = cmp.Or(text, "[Image]") // no text may be empty
	return append([]any{map[string]any{"type": "text", "text": text}}, images...)
}

// LocalOutput returns what one of Claude Code's own commands has printed, if the
// text of a person's message is that.
func LocalOutput(text string) (printed string, ok bool) {
	printed, ok = strings.CutPrefix(text, "<local-command-stdout>")
	return strings.TrimSpace(strings.TrimSuffix(printed, "</local-command-stdout>")), ok
}

// Interruption reports whether a text of a person's message, or of a tool's
// result that is an error, is one that Claude Code writes when a person has
// stopped it. Nobody has said it.
func Interruption(text string) bool {
	return strings.HasPrefix(text, "[Request interrupted by user") ||
		strings.HasPrefix(text, "The user doesn't want to proceed with this tool use.")
}
