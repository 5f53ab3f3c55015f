package provider

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// maxWhole is the longest text, in bytes, that is put together from pieces: an
// event doesn't hold more.
const maxWhole = protocol.MaxChatEvent

// maxKept bounds the tools, questions and commands of one turn that are kept.
const maxKept = 4096

// turns is what the talks of programs that live longer than a turn have in
// common: a session that is opened first, one turn at a time, questions, and a
// text that comes in pieces.
type turns struct {
	title string // of the program, for people
	lacks string // what an older version of the program doesn't have; "": nothing
	start Start

	ready   bool   // the session is open
	failed  string // why it can't be opened; "": nothing is known
	waiting *Turn  // sent before the session was open

	running  bool
	aborting bool

	asked  map[string]json.RawMessage // open questions with what they ask for
	whole  streamed
	thinks streamed

	out []Effect
}

// streamed is a text that comes in pieces.
type streamed struct {
	id   string
	open bool
	text strings.Builder
}

func (s *streamed) add(id, piece string) {
	s.id, s.open = id, true
	if room := maxWhole - s.text.Len(); room > 0 {
		s.text.WriteString(cut(piece, room))
	}
}

func (s *streamed) take() (id, text string, open bool) {
	id, text, open = s.id, s.text.String(), s.open
	*s = streamed{}
	return id, text, open
}

// do adds effects.
func (t *turns) do(effects ...Effect) { t.out = append(t.out, effects...) }

// flush returns the effects since the last time.
func (t *turns) flush() []Effect {
	out := t.out
	t.out = nil
	return out
}

func (t *turns) emit(e protocol.ChatEvent) { t.do(Emit{Event: e}) }

// say emits the text of an assistant.
func (t *turns) say(id, text string) {
	if text != "" {
		t.emit(protocol.ChatEvent{ID: id, Kind: protocol.ChatText, Role: "assistant", Content: &text})
	}
}

// think emits what the model has thought.
func (t *turns) think(id, text string) {
	if text != "" {
		t.emit(protocol.ChatEvent{ID: id, Kind: protocol.ChatThinking, Content: &text})
	}
}

// piece emits a piece of a text.
func (t *turns) piece(id, text string) {
	if text == "" {
		return
	}
	t.whole.add(id, text)
	t.emit(protocol.ChatEvent{Kind: protocol.ChatStreamDelta, Content: &text})
}

// endPieces ends a text in pieces; the whole of it follows.
func (t *turns) endPieces() (id, text string, open bool) {
	id, text, open = t.whole.take()
	if open {
		t.emit(protocol.ChatEvent{Kind: protocol.ChatStreamEnd})
	}
	return id, text, open
}

// use emits the use of a tool.
func (t *turns) use(id, toolID, name string, input json.RawMessage) {
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	t.emit(protocol.ChatEvent{ID: id, Kind: protocol.ChatToolUse, ToolID: toolID, ToolName: name, ToolInput: input})
}

// result emits what a tool has returned.
func (t *turns) result(id, toolID, content string, failed bool, raw json.RawMessage) {
	content = cut(content, maxWhole)
	t.emit(protocol.ChatEvent{
		ID: id, Kind: protocol.ChatToolResult, ToolID: toolID, Content: &content, IsError: &failed, ToolUseResult: raw,
	})
}

func (t *turns) status(text string) {
	t.emit(protocol.ChatEvent{Kind: protocol.ChatStatus, Text: text, CanInterrupt: new(true)})
}

// budget emits the use of the model's context.
func (t *turns) budget(b protocol.TokenBudget) {
	b.Breakdown = protocol.TokenBreakdown{Input: b.InputTokens, Output: b.OutputTokens}
	t.emit(protocol.ChatEvent{Kind: protocol.ChatStatus, Text: "token_budget", TokenBudget: &b})
}

func (t *turns) complain(text string) { t.do(failure(text)) }

// ask asks a question. It reports false of one too many, and of one that is open.
func (t *turns) ask(a Ask) bool {
	if t.asked == nil {
		t.asked = make(map[string]json.RawMessage)
	}
	if _, twice := t.asked[a.Question]; twice || len(t.asked) == maxAsked {
		return false
	}
	t.asked[a.Question] = a.Input
	t.do(a)
	return true
}

// withdraw takes back a question, if it is open.
func (t *turns) withdraw(question string) {
	if _, ok := t.asked[question]; ok {
		delete(t.asked, question)
		t.do(Withdraw{Question: question})
	}
}

func (t *turns) withdrawAll() {
	for _, q := range t.questions() {
		t.withdraw(q)
	}
}

// questions returns the open ones in a fixed order.
func (t *turns) questions() []string {
	var list []string
	for q := range t.asked {
		list = append(list, q)
	}
	slices.Sort(list)
	return list
}

// answered closes a question and reports whether it was open, and whether the
// answer changes what was asked for, which this program can't do.
func (t *turns) answered(question string, a Answer) (open, changed bool) {
	input, open := t.asked[question]
	delete(t.asked, question)
	return open, a.Allow && !null(a.UpdatedInput) && !sameJSON(input, a.UpdatedInput)
}

// unchangeable says why an answer that changes a tool's input is a denial.
func (t *turns) unchangeable() {
	t.complain(t.title + " can't use a tool in another way than it has asked for, so the changed request was denied.")
}

// send has begin begin a turn, as soon as the session is open.
func (t *turns) send(turn Turn, begin func(Turn)) []Effect {
	t.running = true
	switch {
	case t.failed != "":
		t.complain(t.failed)
		t.done(1, true)
	case !t.ready:
		t.waiting = &turn
	default:
		begin(turn)
	}
	return t.flush()
}

// opened notes that the session is open, which the program calls native, and has
// begin begin the turn that waits for that.
func (t *turns) opened(native string, begin func(Turn)) {
	t.ready = true
	t.do(Native{ID: native})
	if t.waiting != nil {
		turn := *t.waiting
		t.waiting = nil
		begin(turn)
	}
}

// fail ends the way to a session: every turn from here on ends at once.
func (t *turns) fail(why string) {
	if t.ready || t.failed != "" {
		return
	}
	t.failed = why
	if t.running {
		t.complain(why)
		t.done(1, true)
	}
}

// done ends the turn.
func (t *turns) done(exitCode int, last bool) {
	t.withdrawAll()
	t.waiting, t.running, t.aborting = nil, false, false
	t.do(Done{ExitCode: exitCode, Last: last})
}

// ended ends the turn because the program has. words say what exit codes mean.
func (t *turns) ended(exitCode int, stderr, noise []byte, words map[int]string) {
	switch {
	case !t.running:
		t.withdrawAll()
	case t.aborting:
		t.done(0, true)
	default:
		text, code := ended(t.title, exitCode, stderr, noise)
		if word := words[exitCode]; word != "" {
			text = t.title + ": " + word + ". " + text
		}
		switch {
		case t.failed != "":
			text = t.failed
		case !t.ready && t.lacks != "":
			text += "\n" + t.lacks
		}
		t.complain(text)
		t.done(code, true)
	}
	t.ready, t.failed = false, t.title+" has ended"
}

// fits reports whether a process that works as has can do a turn as wants, whose
// session is native.
func fits(has, wants Start, native string) bool {
	return wants.Native == native && has.Dir == wants.Dir && has.Model == wants.Model && has.Mode == wants.Mode &&
		has.SkipPermissions == wants.SkipPermissions && slices.Equal(has.AllowedTools, wants.AllowedTools) &&
		slices.Equal(has.DisallowedTools, wants.DisallowedTools)
}

// permits refuses what c lacks of s and t.
func permits(c Capabilities, s Start, t Turn) error {
	name := c.Provider
	switch {
	case s.Mode != "" && !slices.Contains(c.PermissionModes, s.Mode):
		return protocol.Errorf(protocol.KindInvalid, "%s has no permission mode %q, only %s", name, s.Mode, strings.Join(c.PermissionModes, ", "))
	case !plainArgument(s.Model):
		return protocol.Errorf(protocol.KindInvalid, "%q is not the name of a model", s.Model)
	case !plainArgument(s.Native):
		return protocol.Errorf(protocol.KindInvalid, "%q is not the id of a session of %s", s.Native, name)
	case len(t.Images) > 0 && !c.SupportsImages:
		return protocol.Errorf(protocol.KindInvalid, "%s takes no images", name)
	case strings.TrimSpace(t.Content) == "" && len(t.Images) == 0:
		return protocol.Errorf(protocol.KindInvalid, "the message is empty")
	case len(s.DisallowedTools) > 0:
		return protocol.Errorf(protocol.KindInvalid, "%s can't be kept from using single tools", name)
	}
	for _, rule := range s.AllowedTools {
		if !plainRule(rule) {
			return protocol.Errorf(protocol.KindInvalid, "%q is not a rule for tools", rule)
		}
	}
	return nil
}

// cut returns at most n bytes of s, whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// sameJSON reports whether a and b are the same value.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
