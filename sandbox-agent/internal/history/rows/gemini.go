package rows

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A geminiRecord is a line of a chat of gemini: a message, or something of the
// session. Older versions keep one object with all messages.
type geminiRecord struct {
	Session  string          `json:"sessionId"`
	Kind     string          `json:"kind"`
	Summary  string          `json:"summary"`
	Messages []geminiRecord  `json:"messages"`
	Set      *geminiRecord   `json:"$set"`
	Rewind   string          `json:"$rewindTo"`
	ID       string          `json:"id"`
	Time     string          `json:"timestamp"`
	Type     string          `json:"type"`
	Content  json.RawMessage `json:"content"`
	Display  json.RawMessage `json:"displayContent"`
	Thoughts []struct {
		Subject     string `json:"subject"`
		Description string `json:"description"`
	} `json:"thoughts"`
	Tokens *struct {
		Input  int64 `json:"input"`
		Output int64 `json:"output"`
		Cached int64 `json:"cached"`
		Total  int64 `json:"total"`
	} `json:"tokens"`
	Calls []geminiCall `json:"toolCalls"`
}

type geminiCall struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Args    json.RawMessage `json:"args"`
	Result  json.RawMessage `json:"result"`
	Display json.RawMessage `json:"resultDisplay"`
	Status  string          `json:"status"`
	Time    string          `json:"timestamp"`
}

// Gemini reads a chat of gemini. A later line with the id of an earlier message
// takes its place. The folder where it works isn't in it.
func Gemini(content []byte) Document {
	var chat geminiChat
	var whole geminiRecord
	if json.Unmarshal(content, &whole) == nil {
		chat.take(whole)
	} else {
		for line := range bytes.Lines(content) {
			var r geminiRecord
			if json.Unmarshal(line, &r) == nil {
				chat.take(r)
			}
		}
	}
	d := newDrafter()
	d.doc.About.Native, d.doc.About.Title, d.doc.About.Subagent = chat.session, chat.summary, chat.subagent
	timed := chat.timed()
	var ids provider.GeminiIDs
	var calls []geminiCall // that come later
	for i := range chat.messages {
		m := &chat.messages[i]
		if m.returns(timed) {
			continue
		}
		calls = d.geminiCalls(calls, stamp(m.Time))
		d.gemini(&ids, m, timed)
		calls = append(calls, m.Calls...)
	}
	for _, call := range calls {
		d.geminiCall(call)
	}
	return d.doc
}

// A geminiChat gathers messages.
type geminiChat struct {
	session, summary string
	subagent         bool
	messages         []geminiRecord
}

func (c *geminiChat) take(r geminiRecord) {
	switch {
	case r.Rewind != "":
		for i, m := range c.messages {
			if m.ID == r.Rewind {
				c.messages = c.messages[:i]
				return
			}
		}
	case r.Set != nil:
		c.summary = firstOf(r.Set.Summary, c.summary)
		if len(r.Set.Messages) > 0 && !(r.Set.begins() && len(c.messages) > 0) {
			c.messages = r.Set.Messages
		}
	case r.ID != "" && r.Type != "":
		for i := len(c.messages) - 1; i >= 0; i-- {
			if c.messages[i].ID == r.ID {
				c.messages[i] = r
				return
			}
		}
		c.messages = append(c.messages, r)
	case r.Session != "":
		c.session, c.summary = r.Session, firstOf(r.Summary, c.summary)
		c.subagent = c.subagent || r.Kind == "subagent"
		c.messages = append(c.messages, r.Messages...)
	}
}

// timed returns the calls whose times are known.
func (c *geminiChat) timed() map[string]bool {
	timed := make(map[string]bool)
	for _, m := range c.messages {
		for _, call := range m.Calls {
			if call.ID != "" && call.Time != "" {
				timed[call.ID] = true
			}
		}
	}
	return timed
}

// returns reports whether a message is nothing but what calls of timed have
// returned. When gemini loads a session, it writes those of an earlier process once
// more, all in one place and at the time of the loading.
func (r *geminiRecord) returns(timed map[string]bool) bool {
	parts := geminiParts(r.Content)
	for _, p := range parts {
		if p.Response == nil || !timed[p.Response.ID] {
			return false
		}
	}
	return len(parts) > 0
}

// begins reports whether messages are only what gemini itself says at the
// beginning of a session. It says that again in the same file when the session is
// loaded within the minute in which it has begun; what was said was said.
func (r *geminiRecord) begins() bool {
	for _, m := range r.Messages {
		if m.Type != "user" || !strings.HasPrefix(geminiText(m.Content), "<session_context>") {
			return false
		}
	}
	return true
}

// gemini adds the rows of a message, but for calls of timed, which have places of
// their own.
func (d *drafter) gemini(ids *provider.GeminiIDs, m *geminiRecord, timed map[string]bool) {
	at := stamp(m.Time)
	text := geminiText(m.Display)
	if text == "" {
		text = geminiText(m.Content)
	}
	switch m.Type {
	case "user":
		for _, p := range geminiParts(m.Content) {
			if r := p.Response; r != nil && r.ID != "" && !timed[r.ID] {
				output := firstOf(spoken(r.Response.Output), spoken(r.Response.Error))
				d.once(result(provider.CallResultID(r.ID), at, r.ID, output, usable(r.Response.Error)))
			}
		}
		if !strings.HasPrefix(text, "<session_context>") {
			ids.Prompt(text)
			d.say(m.ID, at, protocol.ChatText, "user", text)
		}
	case "gemini":
		for _, t := range m.Thoughts {
			thought := "**" + t.Subject + "**\n" + t.Description
			d.say(ids.Thought(thought), at, protocol.ChatThinking, "", thought)
		}
		if strings.TrimSpace(text) != "" {
			d.say(ids.Text(text), at, protocol.ChatText, "assistant", text)
		}
		for _, p := range geminiParts(m.Content) {
			if c := p.Call; c != nil && c.ID != "" && !timed[c.ID] {
				d.once(use(c.ID, at, c.Name, c.ID, c.Args))
			}
		}
	case "error":
		d.say(m.ID, at, protocol.ChatError, "", text)
	}
	if t := m.Tokens; t != nil {
		d.doc.About.Usage = &protocol.TokenBudget{
			Used: t.Total, InputTokens: t.Input, OutputTokens: t.Output, CacheReadTokens: t.Cached,
			Breakdown: protocol.TokenBreakdown{Input: t.Input, Output: t.Output},
		}
	}
}

// geminiCalls adds the rows of those calls that aren't later than now, and returns
// the others: gemini keeps the calls of a process in the message of the first one.
func (d *drafter) geminiCalls(calls []geminiCall, now string) (later []geminiCall) {
	for _, call := range calls {
		if stamp(call.Time) > now {
			later = append(later, call)
		} else {
			d.geminiCall(call)
		}
	}
	return later
}

func (d *drafter) geminiCall(c geminiCall) {
	if c.ID == "" {
		return
	}
	at := stamp(c.Time)
	d.once(use(c.ID, at, c.Name, c.ID, c.Args))
	if c.Status == "" || c.Status == "executing" || c.Status == "scheduled" || c.Status == "awaiting_approval" {
		return
	}
	d.once(result(provider.CallResultID(c.ID), at, c.ID, geminiOutput(c), c.Status != "success"))
}

// A geminiPart is a part of a content. Where a session was loaded again, calls of
// tools and their results are parts as well.
type geminiPart struct {
	Text     string      `json:"text"`
	Thought  bool        `json:"thought"`
	Call     *geminiCall `json:"functionCall"`
	Response *struct {
		ID       string `json:"id"`
		Response struct {
			Output json.RawMessage `json:"output"`
			Error  json.RawMessage `json:"error"`
		} `json:"response"`
	} `json:"functionResponse"`
}

// geminiParts returns the parts of a content: a text, a part, or a list of them.
func geminiParts(raw json.RawMessage) []geminiPart {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []geminiPart{{Text: text}}
	}
	if len(raw) > 0 && raw[0] == '{' {
		raw = append(append([]byte{'['}, raw...), ']')
	}
	var parts []geminiPart
	if json.Unmarshal(raw, &parts) != nil {
		return nil
	}
	return parts
}

// geminiText returns the texts of a content.
func geminiText(raw json.RawMessage) string {
	var texts []string
	for _, p := range geminiParts(raw) {
		if p.Text != "" && !p.Thought {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// geminiOutput returns what a tool has returned: to the model, or else for people.
func geminiOutput(c geminiCall) string {
	for _, p := range geminiParts(c.Result) {
		if p.Response != nil {
			if text := firstOf(spoken(p.Response.Response.Output), spoken(p.Response.Response.Error)); text != "" {
				return text
			}
		}
	}
	return firstOf(spoken(c.Display), spoken(c.Result))
}
