package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/fairlead/fairlead/protocol"
)

// Bounds of what one process makes its talk keep.
const (
	maxAsked = 64   // open questions; further ones are denied
	maxOpen  = 64   // blocks of one message that are being made
	maxHeld  = 8    // texts that wait for the end of their block; further ones end it
	maxSaid  = 1024 // ids of events, none of which comes twice
)

// claudeTalk speaks Claude Code's stdio protocol.
type claudeTalk struct {
	// Static after construction.
	start  Start
	window int64 // tokens of the context as somebody has set it; 0: as claude says

	// Of the process.
	native   string                     // id of the session
	mode     string                     // permission mode that it is in
	begun    bool                       // it has begun a turn
	requests int                        // control requests that we have sent
	working  bool                       // it has begun a turn, ours or one of its own, and not ended it
	asked    map[string]json.RawMessage // the inputs of open questions, by claude's id
	said     *recent                    // ids of events
	compact  bool                       // it has just made a summary of the conversation
	noise    []byte                     // the last line that was no JSON, a piece of it
	over     bool                       // it has ended

	// Of our turn.
	turn     string // its id; "": none
	foreign  bool   // claude was at a turn of its own when ours was sent
	taken    bool   // claude has begun with ours
	aborting bool

	// Of the message that is being made.
	open   map[int]*openBlock // its blocks, by index
	last   int                // index of the block that was begun last
	held   []protocol.ChatEvent
	model  string
	tokens usage
}

// An openBlock is a block of a message that is being made.
type openBlock struct {
	text    bool
	deltas  bool // some of its text was shown
	stopped bool
}

func newClaudeTalk(s Start, window int64) *claudeTalk {
	return &claudeTalk{
		start: s, window: window, native: s.Native, mode: claudeMode(s),
		open: make(map[int]*openBlock), asked: make(map[string]json.RawMessage), said: newRecent(maxSaid),
	}
}

func (t *claudeTalk) Begin() []Effect {
	return []Effect{t.request(map[string]any{"subtype": "initialize", "hooks": nil})}
}

// request writes a control request. The answer tells nothing that is needed.
func (t *claudeTalk) request(body map[string]any) Effect {
	t.requests++
	return Write{encode(map[string]any{
		"type": "control_request", "request_id": "fairlead-" + strconv.Itoa(t.requests), "request": body,
	})}
}

func (t *claudeTalk) Send(turn Turn) []Effect {
	t.turn, t.foreign, t.taken, t.aborting = turn.ID, t.working, false, false
	return []Effect{Write{encode(map[string]any{
		"type": "user", "uuid": turn.ID, "session_id": "", "parent_tool_use_id": nil,
		"message": map[string]any{"role": "user", "content": claudeContent(turn)},
	})}}
}

func (t *claudeTalk) Line(line []byte) []Effect {
	var l claudeLine
	word := bytes.HasPrefix(line, streamHead) && parse(line, &l.claudeWord) && l.Type == "stream_event"
	if !word && !parse(line, &l) {
		t.noise = append(t.noise[:0], line[:min(len(line), maxReason)]...)
		return nil
	}
	switch l.Type {
	case "stream_event":
		if l.Event != nil && l.Parent == "" && t.turn != "" {
			return t.stream(l.Event)
		}
	case "assistant":
		if l.Message != nil {
			return t.assistant(&l)
		}
	case "user":
		if l.Message != nil {
			return t.user(&l)
		}
	case "system":
		return t.system(&l)
	case "result":
		return t.result(&l)
	case "control_request":
		if l.Request != nil && l.RequestID != "" {
			return t.asks(&l)
		}
	case "control_cancel_request":
		if _, open := t.asked[l.RequestID]; open {
			delete(t.asked, l.RequestID)
			return []Effect{Withdraw{l.RequestID}}
		}
	}
	return nil
}

// streamHead is how claude begins the lines of which there are most.
var streamHead = []byte(`{"type":"stream_event",`)

// stream takes an event of the message that is being made.
func (t *claudeTalk) stream(e *streamEvent) []Effect {
	switch e.Type {
	case "message_start":
		out := t.release()
		clear(t.open)
		if e.Message != nil {
			t.model = e.Message.Model
			if e.Message.Usage != nil {
				t.tokens = *e.Message.Usage
			}
		}
		return out
	case "content_block_start":
		if len(t.open) < maxOpen {
			t.open[e.Index] = &openBlock{text: e.Block.Type == "text"}
			t.last = e.Index
		}
	case "content_block_delta":
		b := t.open[e.Index]
		if b == nil || !b.text || b.stopped || e.Delta.Type != "text_delta" || e.Delta.Text == "" {
			return nil
		}
		b.deltas = true
		return []Effect{Emit{protocol.ChatEvent{Kind: protocol.ChatStreamDelta, Content: &e.Delta.Text}}}
	case "content_block_stop":
		return t.stop(e.Index)
	case "message_delta":
		if e.Usage != nil {
			t.tokens.Output = e.Usage.Output
		}
	}
	return nil
}

// stop ends a block. Its whole text follows the deltas.
func (t *claudeTalk) stop(index int) []Effect {
	b := t.open[index]
	if b == nil || b.stopped {
		return nil
	}
	if b.text {
		return t.release()
	}
	b.stopped = true
	return nil
}

// release ends the text that is being made, and gives out what was held back
// until then.
func (t *claudeTalk) release() []Effect {
	var out []Effect
	for _, b := range t.open {
		if b.deltas && !b.stopped {
			out = []Effect{Emit{protocol.ChatEvent{Kind: protocol.ChatStreamEnd}}}
		}
		b.stopped = b.stopped || b.text
	}
	for _, event := range t.held {
		out = append(out, Emit{event})
	}
	t.held = nil
	return out
}

// streaming reports whether a text is being made whose deltas were shown.
func (t *claudeTalk) streaming() bool {
	b := t.open[t.last]
	return b != nil && b.text && !b.stopped
}

// assistant takes blocks of a message, whole.
func (t *claudeTalk) assistant(l *claudeLine) []Effect {
	text, parts := l.Message.parts()
	if text != "" {
		parts = []part{{Type: "text", Text: text}}
	}
	var out []Effect
	for i, p := range parts {
		event, ok := claudePart(p, l)
		id := PartID(l.UUID, i)
		if l.Message.Model == synthetic && l.Error == "" && !t.taken && len(parts) == 1 {
			id = l.UUID // what a command of claude's own has printed: its row has no parts
		}
		if !ok || t.turn == "" || !t.fresh(&event, l, id) {
			continue
		}
		if event.Kind == protocol.ChatText && t.streaming() && len(t.held) < maxHeld {
			t.held = append(t.held, event)
			continue
		}
		out = append(out, t.emit(event)...)
	}
	return out
}

// fresh gives an event of l its id, and reports whether it comes for the first
// time. One without an id always does.
func (t *claudeTalk) fresh(event *protocol.ChatEvent, l *claudeLine, id string) bool {
	if l.UUID == "" {
		return true
	}
	event.ID = id
	return t.said.add(id)
}

// emit gives out an event, and before it the text that is being made. What a
// subagent does comes in between.
func (t *claudeTalk) emit(event protocol.ChatEvent) []Effect {
	if event.ParentToolUseID != "" {
		return []Effect{Emit{event}}
	}
	return append(t.release(), Emit{event})
}

// user takes results of tools, and our own message as claude repeats it.
func (t *claudeTalk) user(l *claudeLine) []Effect {
	switch {
	case t.turn == "":
		return nil
	case l.UUID == t.turn:
		t.taken = true
		return nil
	}
	text, parts := l.Message.parts()
	if event, ok := claudeNote(l, text, t.compact); ok {
		t.compact = false
		if t.fresh(&event, l, l.UUID) {
			return t.emit(event)
		}
		return nil
	}
	var out []Effect
	for _, p := range parts {
		content := ToolOutput(p.Content)
		if p.Type != "tool_result" || p.IsError && Interruption(content) {
			continue
		}
		event := protocol.ChatEvent{
			Kind: protocol.ChatToolResult, ToolID: p.ToolUseID, Content: &content, IsError: &p.IsError,
			ToolUseResult: orNil(l.Output), ParentToolUseID: l.Parent,
		}
		if t.fresh(&event, l, ToolResultID(l.UUID, p.ToolUseID)) {
			out = append(out, t.emit(event)...)
		}
	}
	return out
}

// system takes what claude says of itself. Each turn begins with an init.
func (t *claudeTalk) system(l *claudeLine) (out []Effect) {
	asked := t.mode
	if l.Mode != "" {
		t.mode = l.Mode
	}
	if l.Subtype != "init" {
		t.compact = t.compact || l.Subtype == "compact_boundary"
		if text, ok := claudeStatus(l); ok && t.turn != "" {
			out = append(out, Emit{protocol.ChatEvent{Kind: protocol.ChatStatus, Text: text, CanInterrupt: new(true)}})
		}
		return out
	}
	first := !t.begun
	t.working, t.begun = true, true
	if l.SessionID != "" && l.SessionID != t.native {
		t.native = l.SessionID
		out = append(out, Native{l.SessionID})
	}
	if first && t.mode != asked && t.turn != "" {
		text := fmt.Sprintf("Claude Code doesn't offer the permission mode %s here: it would work in %s", asked, t.mode)
		out = append(out, t.done(1, true, failure(text))...)
	}
	return out
}

// questions are tools that ask a person something, as opposed to permission.
// They wait without limit.
var questions = []string{"AskUserQuestion", "ExitPlanMode"}

// asks takes a question of claude. One that nobody can answer is refused, so that
// claude doesn't wait.
func (t *claudeTalk) asks(l *claudeLine) []Effect {
	r := l.Request
	if r.Subtype != "can_use_tool" {
		return []Effect{Write{encode(map[string]any{"type": "control_response", "response": map[string]any{
			"subtype": "error", "request_id": l.RequestID, "error": "not supported: " + r.Subtype,
		}})}}
	}
	if _, again := t.asked[l.RequestID]; again {
		return nil
	}
	if t.turn == "" || t.aborting || len(t.asked) >= maxAsked {
		return []Effect{t.answer(l.RequestID, Answer{Message: "Nobody can be asked now"}, r.Input)}
	}
	t.asked[l.RequestID] = orObject(r.Input)
	name := r.ToolName
	if name == "" {
		name = "UnknownTool"
	}
	return []Effect{Ask{
		Question: l.RequestID, Tool: name, Input: orObject(r.Input), Context: r.context(),
		Forever: slices.Contains(questions, name),
	}}
}

func (t *claudeTalk) Answer(question string, a Answer) []Effect {
	input, open := t.asked[question]
	if !open {
		return nil
	}
	delete(t.asked, question)
	return []Effect{t.answer(question, a, input)}
}

// answer writes an answer to a question about a tool with input.
func (t *claudeTalk) answer(question string, a Answer, input json.RawMessage) Effect {
	body := map[string]any{"behavior": "deny", "message": a.Message}
	if a.Allow {
		if !null(a.UpdatedInput) {
			input = a.UpdatedInput
		}
		body = map[string]any{"behavior": "allow", "updatedInput": input}
	} else if a.Message == "" {
		body["message"] = "The user denied this"
	}
	return Write{encode(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": question, "response": body,
	}})}
}

func (t *claudeTalk) Abort() []Effect {
	if t.turn == "" || t.aborting {
		return nil
	}
	t.aborting = true
	return append(t.withdraw(), t.request(map[string]any{"subtype": "interrupt"}))
}

// withdraw takes back all questions, in a fixed order.
func (t *claudeTalk) withdraw() []Effect {
	var ids []string
	for id := range t.asked {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	clear(t.asked)
	var out []Effect
	for _, id := range ids {
		out = append(out, Withdraw{id})
	}
	return out
}

// result ends a turn, ours unless claude was at one of its own and hasn't begun
// with ours.
func (t *claudeTalk) result(l *claudeLine) []Effect {
	t.working = false
	if t.turn == "" {
		return nil
	}
	waiting := t.foreign && !t.taken
	if waiting && !t.aborting {
		t.foreign = false
		return t.release()
	}
	var last []Effect
	if budget := claudeBudget(t.tokens, t.model, t.window, &l.claudeResult); budget != nil {
		last = append(last, Emit{protocol.ChatEvent{Kind: protocol.ChatStatus, Text: "token_budget", TokenBudget: budget}})
	}
	code := 0
	if (l.IsError || l.Subtype != "success") && !t.aborting {
		code = 1
		last = append(last, failure(claudeFailure(l)))
	}
	return t.done(code, waiting, last...) // a process that waits would still begin with our turn
}

// done ends our turn: nothing of it is held back or asked any more. The last
// effects come before the end.
func (t *claudeTalk) done(exitCode int, over bool, last ...Effect) []Effect {
	out := append(t.release(), t.withdraw()...)
	t.turn, t.foreign, t.taken, t.aborting = "", false, false, false
	clear(t.open)
	return append(append(out, last...), Done{ExitCode: exitCode, Last: over})
}

func (t *claudeTalk) End(exitCode int, stderr []byte) []Effect {
	t.over = true
	switch {
	case t.turn == "":
		return t.withdraw()
	case t.aborting:
		return t.done(0, true)
	}
	text, code := ended("Claude Code", exitCode, stderr, t.noise)
	return t.done(code, true, failure(text))
}

func (t *claudeTalk) Fits(s Start) bool {
	return !t.over && s.Native == t.native && s.Dir == t.start.Dir && s.Model == t.start.Model &&
		claudeMode(s) == t.mode &&
		slices.Equal(s.AllowedTools, t.start.AllowedTools) && slices.Equal(s.DisallowedTools, t.start.DisallowedTools)
}
