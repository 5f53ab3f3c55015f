package provider

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol/op"
)

// cursor is Cursor's cursor-agent, by the stream of its print mode: a process for
// each turn, whose input is the prompt. It asks nobody for permission.
//
// Its program is in no package registry, so this follows its documentation
// (cursor.com/docs/cli/reference/output-format) and was not tried with it.
//
// cursor-agent keeps sessions in ~/.cursor/chats/…/<session>/store.db. Its stream
// has no ids but those of tool calls.
type cursor struct{}

func (cursor) Name() string { return "cursor" }

// Capabilities leave out the mode acceptEdits, which clients know of cursor:
// cursor-agent can run everything or nothing unasked.
func (cursor) Capabilities() Capabilities {
	return Capabilities{
		Provider: "cursor", PermissionModes: []string{modeDefault, op.BypassPermissions, modePlan}, DefaultPermissionMode: modeDefault,
		SupportsAbort: true,
	}
}

// Check refuses what cursor-agent lacks.
func (c cursor) Check(s Start, t Turn) error { return permits(c.Capabilities(), s, t) }

func (cursor) Command(s Start) Command {
	const install = "curl https://cursor.com/install -fsS | bash"
	if s.InTerminal {
		return Command{Program: "cursor-agent", Args: []string{"--resume=" + s.Native}, Install: install}
	}
	args := []string{"-p", "--output-format", "stream-json", "--stream-partial-output", "--trust"}
	if s.Native != "" {
		args = append(args, "--resume="+s.Native)
	}
	if s.Model != "" {
		args = append(args, "--model="+s.Model)
	}
	switch {
	case s.SkipPermissions || s.Mode == op.BypassPermissions:
		args = append(args, "-f")
	case s.Mode == modePlan:
		args = append(args, "--mode=plan")
	}
	return Command{Program: "cursor-agent", Args: args, Install: install}
}

func (cursor) Talk(s Start) Talk {
	return &cursorTalk{turns: turns{title: "cursor-agent", start: s}}
}

// cursorTalk is the protocol of one run of cursor-agent.
type cursorTalk struct {
	turns
	sent    bool
	over    bool // it has said how the turn ended
	session string
	spoken  string // the last whole text: it may come a second time
	tools   []string
}

func (t *cursorTalk) Begin() []Effect { return nil }

// Send writes the prompt, and nothing follows: the process does no other turn.
func (t *cursorTalk) Send(turn Turn) []Effect {
	t.running = true
	if t.sent {
		t.complain("cursor-agent takes one message")
		t.done(1, true)
		return t.flush()
	}
	t.sent = true
	t.do(Write{Bytes: []byte(turn.Content)}, CloseInput{})
	return t.flush()
}

// A cursorLine is a line of the stream.
type cursorLine struct {
	Type      string `json:"type"`
	Subtype   string `json:"subtype"`
	SessionID string `json:"session_id"`
	Text      string `json:"text"` // thinking
	Message   struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
	} `json:"message"`
	Timestamp   int64                      `json:"timestamp_ms"`  // of a piece of a text
	ModelCallID string                     `json:"model_call_id"` // of a whole text before a tool
	CallID      string                     `json:"call_id"`
	ToolCall    map[string]json.RawMessage `json:"tool_call"`
	IsError     bool                       `json:"is_error"`
	Result      string                     `json:"result"`
}

// Line takes a line of the stream. What isn't JSON is a piece of a text (seed
// 002).
func (t *cursorTalk) Line(line []byte) []Effect {
	var l cursorLine
	if line = bytes.TrimSpace(line); t.over || !t.sent || len(line) == 0 {
		return nil
	}
	if line = bytes.ToValidUTF8(line, []byte("\uFFFD")); !parse(line, &l) || l.Type == "" {
		t.piece("", cut(string(line), maxWhole)+"\n")
		return t.flush()
	}
	switch l.Type {
	case "system":
		if l.Subtype == "init" && l.SessionID != "" && t.session == "" {
			t.session = l.SessionID
			t.do(Native{ID: l.SessionID})
		}
	case "thinking":
		t.thought(l)
	case "assistant":
		t.endThought()
		t.text(l)
	case "tool_call":
		t.endThought()
		t.endText()
		t.tool(l)
	case "result":
		t.endThought()
		t.finish(l)
	}
	return t.flush()
}

func (t *cursorTalk) thought(l cursorLine) {
	if l.Text != "" {
		t.endText()
		t.thinks.add("", l.Text)
	}
	if l.Subtype == "completed" {
		t.endThought()
	}
}

func (t *cursorTalk) endThought() {
	if _, text, open := t.thinks.take(); open {
		t.think("", text)
	}
}

// text takes a piece of a text or, at its end, the whole of it.
func (t *cursorTalk) text(l cursorLine) {
	var text strings.Builder
	for _, part := range l.Message.Content {
		if part.Type == "text" {
			text.WriteString(part.Text)
		}
	}
	switch {
	case text.Len() == 0:
	case l.Timestamp != 0 && l.ModelCallID == "":
		t.piece("", text.String())
	default:
		_, _, open := t.endPieces()
		if open || text.String() != t.spoken {
			t.spoken = text.String()
			t.say("", t.spoken)
		}
	}
}

// endText ends a text of which no whole has come.
func (t *cursorTalk) endText() {
	if _, text, open := t.endPieces(); open {
		t.spoken = text
		t.say("", text)
	}
}

func (t *cursorTalk) tool(l cursorLine) {
	if l.CallID == "" {
		return
	}
	name, args, result := cursorTool(l.ToolCall)
	if !slices.Contains(t.tools, l.CallID) {
		if len(t.tools) == maxKept {
			return
		}
		t.tools = append(t.tools, l.CallID)
		t.use(l.CallID, l.CallID, name, args)
	}
	if l.Subtype != "completed" {
		return
	}
	t.tools = slices.DeleteFunc(t.tools, func(id string) bool { return id == l.CallID })
	content, failed := cursorOutcome(result)
	t.result(l.CallID+"_result", l.CallID, content, failed, result)
}

// cursorTool returns the tool of a call: {"readToolCall":{"args":…,"result":…}} or
// {"function":{"name":…,"arguments":…}}.
func cursorTool(call map[string]json.RawMessage) (name string, args, result json.RawMessage) {
	for _, key := range slices.Sorted(maps.Keys(call)) {
		var c struct {
			Name      string          `json:"name"`
			Args      json.RawMessage `json:"args"`
			Arguments json.RawMessage `json:"arguments"`
			Result    json.RawMessage `json:"result"`
		}
		if json.Unmarshal(call[key], &c) != nil {
			continue
		}
		if key == "function" {
			return c.Name, cursorArguments(c.Arguments), c.Result
		}
		if kind, ok := strings.CutSuffix(key, "ToolCall"); ok && kind != "" {
			if kind == "shell" {
				return "Bash", c.Args, c.Result
			}
			first, n := utf8.DecodeRuneInString(kind)
			return string(unicode.ToUpper(first)) + kind[n:], c.Args, c.Result
		}
	}
	return "Tool", nil, nil
}

// cursorArguments returns arguments, which may be JSON in a string.
func cursorArguments(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
		return object(map[string]any{"arguments": text})
	}
	return raw
}

// cursorOutcome returns what a tool has come to: {"success":{…}}, or another word
// than success.
func cursorOutcome(result json.RawMessage) (content string, failed bool) {
	var ways map[string]json.RawMessage
	if json.Unmarshal(result, &ways) != nil {
		return "", false
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		var how struct {
			Content  string `json:"content"`
			Stdout   string `json:"stdout"`
			Stderr   string `json:"stderr"`
			Error    string `json:"error"`
			Reason   string `json:"reason"`
			Message  string `json:"message"`
			ExitCode int    `json:"exitCode"`
		}
		_ = json.Unmarshal(ways[way], &how) // then it is quoted as it is
		content = strings.TrimSuffix(how.Stdout+how.Stderr, "\n")
		for _, s := range []string{how.Content, how.Error, how.Reason, how.Message} {
			if content == "" {
				content = s
			}
		}
		if content == "" {
			content = string(ways[way])
		}
		return content, way != "success" || how.ExitCode != 0
	}
	return "", false
}

func (t *cursorTalk) finish(l cursorLine) {
	t.endText()
	t.over = true
	code := 0
	if l.IsError || l.Subtype != "" && l.Subtype != "success" {
		code = 1
		t.complain("cursor-agent: " + l.Result)
	}
	t.done(code, true)
}

// Answer does nothing: cursor-agent doesn't ask.
func (t *cursorTalk) Answer(string, Answer) []Effect { return nil }

// Abort ends the process: only a signal stops cursor-agent.
func (t *cursorTalk) Abort() []Effect {
	t.aborting = t.running
	return []Effect{Stop{}}
}

// End ends the turn if the stream hasn't.
func (t *cursorTalk) End(exitCode int, stderr []byte) []Effect {
	t.endThought()
	t.endText()
	t.ended(exitCode, stderr, nil, nil)
	return t.flush()
}

// Fits reports false: every turn needs a process of its own.
func (t *cursorTalk) Fits(Start) bool { return false }
