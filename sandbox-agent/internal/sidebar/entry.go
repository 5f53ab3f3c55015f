package sidebar

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/places"
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
	typeQuestion = "question" // ours, as the next one: panels of the seed show nothing
	typeAnswered = "answered"
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

	entryQuestion

	// Its place.
	at      int64 // Unix milliseconds
	seq     uint64
	command protocol.CommandID
}

// place is where an entry stands.
func (e Entry) place() places.Place {
	p := places.Place{Number: e.ID, Tab: int64(e.TabID), Type: e.Type, Time: e.at, Seq: e.seq, Command: e.command, Question: e.RequestID}
	if e.Role == roleUser {
		p.Type = roleUser
	}
	if e.seq == 0 {
		p.Text = e.Error
	}
	return p
}

// ownEntry returns an entry that says nothing but what the panel knows by itself.
func ownEntry(p places.Place) (e Entry, ok bool) {
	e = Entry{Role: roleAgent, Type: p.Type, Error: p.Text}
	switch {
	case p.Type == typeStart, p.Type == typeError && p.Seq == 0:
		return e, true
	case p.Type == typeAnswered && p.Seq == 0:
		e = answered(protocol.ChatEvent{ChatQuestion: protocol.ChatQuestion{RequestID: p.Question}})
		e.Role = roleAgent
		return e, true
	}
	return e, false
}

// begins reports whether an event is the message that a run begins with.
func begins(e protocol.ChatEvent) bool {
	return e.Kind == protocol.ChatText && e.Role == roleUser && e.CommandID != "" && e.Content != nil
}

// An entryQuestion is what the entries of a question have.
type entryQuestion struct {
	RequestID string          `json:"requestId,omitempty"` // the approval's id
	Revision  uint64          `json:"revision,omitempty"`  // of that
	ExpiresAt string          `json:"expiresAt,omitempty"` // absent: never
	Cut       bool            `json:"cut,omitempty"`       // the input isn't all that the tool is to do
	Outcome   string          `json:"outcome,omitempty"`   // one of op.QuestionAllowed and its like
	By        protocol.UserID `json:"by,omitempty"`        // who has answered
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
	asks    []string           // questions that are open, by their ids
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
		t.asks = append(t.asks, e.RequestID)
		return []Entry{question(e)}, false
	case protocol.ChatPermissionCancelled:
		t.asks = slices.DeleteFunc(t.asks, func(id string) bool { return id == e.RequestID })
		return []Entry{answered(e)}, false
	case protocol.ChatError:
		t.failed = content
	case protocol.ChatComplete:
		return t.over(e), false
	}
	return nil, false
}

// question is the entry of a question. It shows all that the tool is to do, since a
// person decides by it.
func question(e protocol.ChatEvent) Entry {
	whole := whole(e.Input)
	shown := cut(whole, maxText)
	return Entry{Type: typeQuestion, Tool: e.ToolName, Input: shown, entryQuestion: entryQuestion{
		RequestID: e.RequestID, Revision: e.Revision, ExpiresAt: e.ExpiresAt, Cut: len(shown) < len(whole),
	}}
}

// whole is all that a tool is to do: the command, where there is little else, or the
// input as it is.
func whole(input json.RawMessage) string {
	var members map[string]json.RawMessage
	var command string
	if json.Unmarshal(input, &members) == nil && json.Unmarshal(members["command"], &command) == nil && command != "" {
		delete(members, "command")
		delete(members, "description") // the agent's own words
		if len(members) == 0 {
			return command
		}
	}
	var indented bytes.Buffer
	if json.Indent(&indented, input, "", "  ") != nil {
		return string(input)
	}
	return indented.String()
}

// answered is the entry that says that a question is over.
func answered(e protocol.ChatEvent) Entry {
	q := entryQuestion{RequestID: e.RequestID, Outcome: op.QuestionWithdrawn}
	switch {
	case e.Reason == protocol.CancelledTimeout:
		q.Outcome = op.QuestionTimeout
	case e.Reason == protocol.CancelledDecided && e.Decision.Allows():
		q.Outcome = op.QuestionAllowed
	case e.Reason == protocol.CancelledDecided:
		q.Outcome = op.QuestionDenied
	}
	if e.From != nil {
		q.By = e.From.UserID
	}
	return Entry{Type: typeAnswered, entryQuestion: q}
}

// end notes that the panel is told that the run is over, and returns what has to be
// said before: nobody can answer its questions any more.
func (t *telling) end() (withdrawn []Entry) {
	for _, id := range t.asks {
		withdrawn = append(withdrawn, answered(protocol.ChatEvent{ChatQuestion: protocol.ChatQuestion{RequestID: id}}))
	}
	t.asks, t.ended = nil, true
	return withdrawn
}

// over returns the entries of a run's end.
func (t *telling) over(e protocol.ChatEvent) []Entry { return append(t.end(), t.last(e)...) }

// last returns the entries that say how a run has ended.
func (t *telling) last(e protocol.ChatEvent) []Entry {
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
