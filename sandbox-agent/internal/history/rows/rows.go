// Package rows reads what coding agents' programs keep of a session: it makes of
// the bytes of their transcripts the rows that clients show. It knows no file, no
// clock and no goroutine.
//
// Transcripts belong to a sandbox's users: whatever is in them is data, and what
// makes no sense is no row.
package rows

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// A Row is a row of history: an event without SessionID, Provider and Seq.
type Row = protocol.ChatEvent

// A State is what the lines before a line say about it. Its zero value stands at
// the beginning of a transcript.
type State struct {
	Said  provider.Said // in the present turn
	Ended recent        // calls of tools whose results were there
}

// recent are the last few ids of calls, by their hashes.
type recent [8]uint64

func (r *recent) add(id string) {
	copy(r[1:], r[:])
	r[0] = hashOf(id)
}

func (r *recent) has(id string) bool { return slices.Contains(r[:], hashOf(id)) }

// hashOf is never 0.
func hashOf(id string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64() | 1
}

// A Lines is how a program keeps a session when it only ever appends lines. It
// returns the rows of one line and the state behind it, and adds to a, unless
// that is nil, what the line says of the session as a whole.
type Lines func(s State, a *About, line []byte) (State, []Row)

// About is what a transcript says of its session.
type About struct {
	Native   string // the provider's id of the session
	Dir      string // where it works: the first folder that a line names
	Title    string // that the program, or its user, has given
	Said     string // the first thing that a user has said
	Subagent bool   // it is no session of its own
	Usage    *protocol.TokenBudget
}

// Bounds of what a row holds, in bytes. Live events are cut at the same length.
const (
	maxText   = protocol.MaxChatEvent / 2
	maxResult = protocol.MaxChatEvent / 4 // toolUseResult; a longer one is left out
	maxSaid   = 500
)

// Name is what a client calls the session, "" where nothing was said.
func (a *About) Name() string {
	for _, text := range []string{a.Title, a.Said} {
		if text = strings.Join(strings.Fields(text), " "); text != "" {
			return cut(text, 120)
		}
	}
	return ""
}

// CountsAsMessage reports whether a row is one that total counts (seed 002).
func CountsAsMessage(r *Row) bool { return r.Kind != protocol.ChatToolResult }

// Merge puts the result of a tool into the row of its use. The row of the result
// stays.
func Merge(use *Row, result *Row) {
	output := protocol.ChatToolOutput{ToolUseResult: result.ToolUseResult}
	if result.Content != nil {
		output.Content = *result.Content
	}
	if result.IsError != nil {
		output.IsError = *result.IsError
	}
	use.ToolResult, use.SubagentTools = &output, result.SubagentTools
}

// say returns a row of kind with a text.
func say(id, at string, kind protocol.ChatKind, role, text string) Row {
	text = cut(text, maxText)
	return Row{ID: id, Timestamp: at, Kind: kind, Role: role, Content: &text}
}

// use returns the row of a tool's use.
func use(id, at, tool, call string, input json.RawMessage) Row {
	if !usable(input) || len(input) > maxText {
		input = json.RawMessage("{}")
	}
	return Row{ID: id, Timestamp: at, Kind: protocol.ChatToolUse, ToolName: tool, ToolInput: input, ToolID: call}
}

// result returns the row of a tool's result.
func result(id, at, call, content string, failed bool) Row {
	content = cut(content, maxText)
	return Row{ID: id, Timestamp: at, Kind: protocol.ChatToolResult, ToolID: call, Content: &content, IsError: &failed}
}

// usable reports whether raw is there, and not null.
func usable(raw json.RawMessage) bool { return len(raw) > 0 && !bytes.Equal(raw, []byte("null")) }

// spoken returns a JSON string's text, or the JSON of anything else.
func spoken(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	if !usable(raw) || json.Compact(&compact, raw) != nil {
		return ""
	}
	return compact.String()
}

// cut returns text, valid and of at most n bytes.
func cut(text string, n int) string {
	if len(text) > n {
		for n > 0 && !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// Stamp is the layout of timestamps.
const Stamp = "2006-01-02T15:04:05.000Z"

// stamp returns a time as clients expect it; of what is none, the epoch's.
func stamp(text string) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.Year() < 1970 || at.Year() > 9999 {
		at = time.Unix(0, 0)
	}
	return at.UTC().Format(Stamp)
}

// stampMillis is stamp of Unix milliseconds.
func stampMillis(ms int64) string {
	if ms < 0 || ms > 253402300799999 {
		ms = 0
	}
	return time.UnixMilli(ms).UTC().Format(Stamp)
}
