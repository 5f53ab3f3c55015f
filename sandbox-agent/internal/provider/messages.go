package provider

import (
	"encoding/json"
	"strings"
)

// A streamEvent is an event of a message that is being made, as the Messages API
// streams it.
type streamEvent struct {
	Type    string         `json:"type"`
	Index   int            `json:"index"`
	Message *streamMessage `json:"message"` // message_start
	Block   struct {
		Type string `json:"type"`
	} `json:"content_block"` // content_block_start
	Delta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"delta"` // content_block_delta
	Usage *usage `json:"usage"` // message_delta
}

// A streamMessage is a message, of which a streamEvent tells the head.
type streamMessage struct {
	Model string `json:"model"`
	Usage *usage `json:"usage"`
}

// usage counts tokens as the Messages API does.
type usage struct {
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
}

// A message is a whole message of either role.
type message struct {
	Role    string          `json:"role"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
}

// A part is one block of a message's content.
type part struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"` // tool_use
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"` // tool_result
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// parts returns the content as a string, or else as parts.
func (m message) parts() (text string, parts []part) {
	if json.Unmarshal(m.Content, &text) == nil {
		return text, nil
	}
	_ = json.Unmarshal(m.Content, &parts) // something else has no parts
	return "", parts
}

// ToolOutput returns what a tool has returned, the content of a tool_result, as
// text: a string as it is, the texts of its parts, and the other parts named in
// brackets.
func ToolOutput(content json.RawMessage) string {
	var text string
	if null(content) || json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []part
	if json.Unmarshal(content, &parts) != nil {
		return string(content)
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		} else {
			texts = append(texts, "["+p.Type+"]")
		}
	}
	return strings.Join(texts, "\n")
}
