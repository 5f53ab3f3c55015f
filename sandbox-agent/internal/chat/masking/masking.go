// Package masking hides secrets in the events of one conversation, also one that
// is split over two deltas. It has no clock.
package masking

import (
	"bytes"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A Masker masks the events of a run, in their order. Its zero value hides
// nothing. It is not safe for concurrent use.
type Masker struct {
	set    *redact.Set
	stream *redact.Stream // of the deltas since the last other event; nil: there were none
	last   protocol.ChatEvent
}

// Use has the secrets of set hidden from now on. It returns what was held back
// and may be shown now.
func (m *Masker) Use(set *redact.Set) []protocol.ChatEvent {
	out := m.Flush()
	m.set = set
	return out
}

// Event returns what is to be shown for e: nothing while a delta may be the
// beginning of a secret, and before other events what was held back.
func (m *Masker) Event(e protocol.ChatEvent) []protocol.ChatEvent {
	if m.set.Empty() {
		return []protocol.ChatEvent{e}
	}
	if e.Kind != protocol.ChatStreamDelta || e.Content == nil {
		return append(m.Flush(), Mask(m.set, e))
	}
	var out []protocol.ChatEvent
	if m.stream != nil && m.last.ParentToolUseID != e.ParentToolUseID {
		out = m.Flush()
	}
	if m.stream == nil {
		m.stream = m.set.NewStream()
	}
	m.last = e
	if text := m.stream.Write(nil, []byte(*e.Content)); len(text) > 0 {
		e.Content = new(string(text))
		out = append(out, e)
	}
	return out
}

// Flush returns what is held back: the deltas are over.
func (m *Masker) Flush() []protocol.ChatEvent {
	if m.stream == nil {
		return nil
	}
	rest := m.stream.Flush(nil)
	m.stream = nil
	if len(rest) == 0 {
		return nil
	}
	e := m.last
	e.ID, e.Content = "", new(string(rest))
	return []protocol.ChatEvent{e}
}

// Mask returns an event without the secrets of set.
func Mask(set *redact.Set, e protocol.ChatEvent) protocol.ChatEvent {
	if set.Empty() {
		return e
	}
	for _, s := range []*string{
		&e.DisplayText, &e.CommandName, &e.CommandMessage, &e.CommandArgs, &e.ToolName, &e.Text, &e.Reason,
	} {
		*s = text(set, *s)
	}
	if e.Content != nil {
		e.Content = new(text(set, *e.Content))
	}
	for _, raw := range []*json.RawMessage{&e.ToolInput, &e.ToolUseResult, &e.SubagentTools, &e.Input} {
		*raw = JSON(set, *raw)
	}
	if e.ToolResult != nil {
		e.ToolResult = &protocol.ChatToolOutput{
			Content: text(set, e.ToolResult.Content), IsError: e.ToolResult.IsError, ToolUseResult: JSON(set, e.ToolResult.ToolUseResult),
		}
	}
	if e.From != nil {
		from := *e.From
		from.Name = text(set, from.Name)
		e.From = &from
	}
	if e.Images != nil {
		images := make([]protocol.ChatImage, len(e.Images))
		for i, image := range e.Images {
			image.Name = text(set, image.Name)
			images[i] = image
		}
		e.Images = images
	}
	return e
}

func text(set *redact.Set, s string) string {
	if s == "" {
		return s
	}
	return string(set.Mask([]byte(s)))
}

// JSON returns valid JSON without the secrets of set: strings are masked, names of
// members too, and a number that holds a secret becomes a masked string. All else
// stays as it is.
func JSON(set *redact.Set, raw json.RawMessage) json.RawMessage {
	if set.Empty() || len(raw) == 0 {
		return raw
	}
	var out []byte
	for rest := []byte(raw); len(rest) > 0; {
		n, kind := token(rest)
		piece := rest[:n]
		rest = rest[n:]
		switch kind {
		case '"':
			var s string
			if json.Unmarshal(piece, &s) == nil {
				if masked := text(set, s); masked != s {
					piece, _ = json.Marshal(masked) // a string always can be
				}
			}
		case '0':
			if set.MatchesIn(piece) {
				piece = append(append([]byte{'"'}, bytes.Repeat([]byte{'*'}, n)...), '"')
			}
		}
		out = append(out, piece...)
	}
	return out
}

// token returns the length of the first piece of valid JSON, and '"' for a string,
// '0' for a number.
func token(p []byte) (n int, kind byte) {
	switch c := p[0]; {
	case c == '"':
		for n = 1; n < len(p); n++ {
			switch p[n] {
			case '\\':
				n++
			case '"':
				return n + 1, '"'
			}
		}
		return len(p), '"'
	case c == '-' || '0' <= c && c <= '9':
		n = 1
		for n < len(p) && bytes.IndexByte([]byte("0123456789+-.eE"), p[n]) >= 0 {
			n++
		}
		return n, '0'
	}
	return 1, p[0]
}

// Stored returns a stored event without the secrets of set. What it is keeps its
// form: names of members, ids and numbers stay.
func Stored(set *redact.Set, event []byte) []byte {
	if set.Empty() || !set.MatchesIn(event) {
		return event
	}
	var e protocol.ChatEvent
	if json.Unmarshal(event, &e) != nil {
		return JSON(set, event)
	}
	masked, err := json.Marshal(Mask(set, e))
	if err != nil {
		return nil
	}
	return masked
}
