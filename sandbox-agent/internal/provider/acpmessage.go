package provider

import (
	"cmp"
	"encoding/json"
	"strings"
)

// acpCan is what a program says that it can do.
type acpCan struct {
	ProtocolVersion   int `json:"protocolVersion"`
	AgentCapabilities struct {
		LoadSession        bool `json:"loadSession"`
		PromptCapabilities struct {
			Image bool `json:"image"`
		} `json:"promptCapabilities"`
		SessionCapabilities struct {
			Resume json.RawMessage `json:"resume"`
		} `json:"sessionCapabilities"`
	} `json:"agentCapabilities"`
}

// An acpOpened is the result of session/new, session/load and session/resume.
type acpOpened struct {
	SessionID string `json:"sessionId"` // of session/new
	Modes     *struct {
		Current string `json:"currentModeId"`
	} `json:"modes"`
}

// acpLoginRequired is the code of a call that needs a login first.
const acpLoginRequired = -32000

// An acpPrompted is the end of a prompt.
type acpPrompted struct {
	StopReason string `json:"stopReason"`
	Usage      *struct {
		Input       int64 `json:"inputTokens"`
		Output      int64 `json:"outputTokens"`
		Total       int64 `json:"totalTokens"`
		CacheReads  int64 `json:"cachedReadTokens"`
		CacheWrites int64 `json:"cachedWriteTokens"`
	} `json:"usage"`
	Meta struct {
		Quota *struct {
			Tokens struct {
				Input  int64 `json:"input_tokens"`
				Output int64 `json:"output_tokens"`
			} `json:"token_count"`
		} `json:"quota"`
	} `json:"_meta"`
}

// acpStopped says why a turn has ended early.
var acpStopped = map[string]string{
	"max_tokens":        "the model's limit of tokens is reached",
	"max_turn_requests": "the limit of requests in one turn is reached",
	"refusal":           "the model refuses to go on",
	"cancelled":         "the turn was cancelled",
}

// An acpAsk is an open question: how to answer it.
type acpAsk struct {
	id          json.RawMessage
	allow, deny string // ids of options; "": there is none
}

// acpCancelled answers a question that nobody decides any more.
var acpCancelled = map[string]any{"outcome": map[string]any{"outcome": "cancelled"}}

func acpSelected(option string) any {
	return map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": option}}
}

// An acpUpdate is a session/update.
type acpUpdate struct {
	SessionID string `json:"sessionId"`
	Update    struct {
		Kind      string          `json:"sessionUpdate"`
		MessageID string          `json:"messageId"`
		Content   json.RawMessage `json:"content"` // of chunks: one block
		Used      int64           `json:"used"`    // usage_update
		Size      int64           `json:"size"`
	} `json:"update"`
}

// An acpBlock is a piece of content.
type acpBlock struct {
	Type    string    `json:"type"` // text, diff, content, terminal, …
	Text    string    `json:"text"`
	Content *acpBlock `json:"content"` // of type content
	Path    string    `json:"path"`    // of type diff
	OldText *string   `json:"oldText"`
	NewText string    `json:"newText"`
}

// An acpCall is the call of a tool.
type acpCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`   // execute, edit, read, …
	Status    string          `json:"status"` // pending, in_progress, completed, failed
	RawInput  json.RawMessage `json:"rawInput"`
	RawOutput json.RawMessage `json:"rawOutput"`
	Content   []acpBlock      `json:"content"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`

	named string // the first title
	shown bool   // its use has been told
}

// text returns the text of a chunk.
func (u acpUpdate) text() string {
	var b acpBlock
	_ = json.Unmarshal(u.Update.Content, &b) // content of another kind has no text
	return b.Text
}

// merge takes news of a call. What a tool was given is told once.
func (c *acpCall) merge(n acpCall) {
	c.Title, c.Kind, c.Status = cmp.Or(n.Title, c.Title), cmp.Or(n.Kind, c.Kind), cmp.Or(n.Status, c.Status)
	if len(n.RawInput) > len("{}") && !c.shown {
		c.RawInput = n.RawInput
	}
	if len(n.RawOutput) > 0 {
		c.RawOutput = n.RawOutput
	}
	if n.Content != nil {
		c.Content = n.Content
	}
	if len(n.Locations) > 0 {
		c.Locations = n.Locations
	}
}

// input returns what a tool was given: as the program says, or else what follows
// from what it shows.
func (c acpCall) input() json.RawMessage {
	if len(c.RawInput) > 0 && c.RawInput[0] == '{' {
		return c.RawInput
	}
	for _, b := range c.Content {
		if b.Type == "diff" {
			old := ""
			if b.OldText != nil {
				old = *b.OldText
			}
			return object(map[string]any{"file_path": b.Path, "old_string": old, "new_string": b.NewText})
		}
	}
	switch {
	case c.Kind == "execute":
		return c.command()
	case len(c.Locations) > 0:
		return object(map[string]any{"file_path": c.Locations[0].Path})
	}
	return object(map[string]any{"title": c.Title})
}

// command returns the input of a tool that runs a command, as all providers ask
// for it.
func (c acpCall) command() json.RawMessage {
	var raw struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal(c.RawInput, &raw) // then the title is the command
	if raw.Command == "" {
		raw.Command = c.Title
	}
	return object(raw)
}

// context returns what else a request for permission says.
func (c acpCall) context() json.RawMessage {
	more := map[string]any{}
	if c.Title != "" {
		more["title"] = c.Title
	}
	if text := texts(c.Content); text != "" {
		more["description"] = text
	}
	for _, b := range c.Content {
		if b.Type == "diff" && c.RawInput != nil {
			more["diff"] = map[string]any{"path": b.Path, "oldText": b.OldText, "newText": b.NewText}
		}
	}
	if len(more) == 0 {
		return nil
	}
	return object(more)
}

// output returns what a tool has returned.
func (c acpCall) output() string {
	var raw struct {
		Output string `json:"output"`
		Error  string `json:"error"`
	}
	_ = json.Unmarshal(c.RawOutput, &raw) // another form is in the content
	switch {
	case raw.Output != "":
		return raw.Output
	case raw.Error != "":
		return raw.Error
	}
	return texts(c.Content)
}

// texts joins the texts of content.
func texts(blocks []acpBlock) string {
	var parts []string
	for _, b := range blocks {
		if b.Type == "content" && b.Content != nil && b.Content.Text != "" {
			parts = append(parts, b.Content.Text)
		}
	}
	return strings.Join(parts, "\n")
}
