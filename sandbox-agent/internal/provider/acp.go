package provider

import (
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// acpVersion is the version of the Agent Client Protocol that we speak.
const acpVersion = 1

// An acpDialect says how a program differs from others that speak the Agent Client
// Protocol.
type acpDialect interface {
	// textID and thoughtID return the ids of events; message is the program's id of
	// the message or thought, "": it tells none.
	textID(message, text string) string
	thoughtID(message, text string) string
	// prompted is told what persons say, in order, also of an earlier process that
	// had the session.
	prompted(text string)
	// toolName returns the name of a tool by what is known of a call.
	toolName(c acpCall) string
	// usage returns the use of tokens that the end of a prompt tells of.
	usage(end acpPrompted) (protocol.TokenBudget, bool)
}

// An acpProgram is what a session of a program needs.
type acpProgram struct {
	acpDialect
	title string
	lacks string         // what an older version doesn't have
	login string         // how to log in
	words map[int]string // what exit codes mean
	// mode is the session mode to set; "": none. Where the program can't, the
	// session isn't opened.
	mode string
	// model is set as a configuration option of the session; "": not.
	model string
	// loads comes before the id of a session that is loaded, on the wire.
	loads string
	// wholeThoughts: each piece of a thought is a thought.
	wholeThoughts bool
}

// acpTalk is the protocol of one program that speaks the Agent Client Protocol.
type acpTalk struct {
	turns
	program acpProgram
	rpc     rpc
	session string
	can     acpCan

	prompts int64 // so many were sent; the end of an earlier one is too late
	calls   map[string]*acpCall
	asks    map[string]acpAsk
}

func newACP(s Start, p acpProgram) *acpTalk {
	return &acpTalk{
		turns: turns{title: p.title, start: s, lacks: p.lacks}, program: p, rpc: rpc{version: "2.0"},
		calls: make(map[string]*acpCall), asks: make(map[string]acpAsk),
	}
}

// Begin opens a session.
func (t *acpTalk) Begin() []Effect {
	t.do(t.rpc.call("initialize", map[string]any{
		"protocolVersion":    acpVersion,
		"clientInfo":         map[string]any{"name": "fairlead", "title": "fairlead", "version": "1"},
		"clientCapabilities": map[string]any{"fs": map[string]any{"readTextFile": false, "writeTextFile": false}, "terminal": false},
	}, func(result json.RawMessage, err *rpcError) {
		switch {
		case err != nil:
			t.fail(t.title + " doesn't begin to talk: " + err.text())
		case json.Unmarshal(result, &t.can) != nil || t.can.ProtocolVersion != acpVersion:
			t.fail(t.title + " speaks another version of the Agent Client Protocol than 1")
		default:
			t.open()
		}
	}))
	return t.flush()
}

// open opens a new session or the one of Start; where the program can, without
// telling again what was said in it.
func (t *acpTalk) open() {
	params := map[string]any{"cwd": t.start.Dir, "mcpServers": []any{}}
	method := "session/new"
	if t.start.Native != "" {
		t.session = t.start.Native
		switch can := t.can.AgentCapabilities; {
		case len(can.SessionCapabilities.Resume) > 0 && string(can.SessionCapabilities.Resume) != "null":
			method = "session/resume"
		case can.LoadSession:
			method = "session/load"
			t.session = t.program.loads + t.session
		default:
			t.fail("This version of " + t.title + " can't resume a session.")
			return
		}
		params["sessionId"] = t.session
	}
	t.do(t.rpc.call(method, params, func(result json.RawMessage, err *rpcError) {
		var opened acpOpened
		switch {
		case err != nil && err.Code == acpLoginRequired:
			t.fail(t.title + " isn't logged in: " + err.text() + " " + t.program.login)
			return
		case err != nil:
			t.fail(t.title + " can't open the session: " + err.text())
			return
		case json.Unmarshal(result, &opened) != nil:
			t.fail(t.title + " has opened no session that it can name")
			return
		}
		if method == "session/new" {
			t.session = opened.SessionID
		}
		if t.session == "" {
			t.fail(t.title + " has opened no session that it can name")
			return
		}
		t.setModel(opened, method == "session/load")
	}))
}

// setModel has the session use the model of Start, if it isn't in the command.
func (t *acpTalk) setModel(opened acpOpened, loaded bool) {
	if t.program.model == "" {
		t.setMode(opened, loaded)
		return
	}
	params := map[string]any{"sessionId": t.session, "configId": "model", "value": t.program.model}
	t.do(t.rpc.call("session/set_config_option", params, func(_ json.RawMessage, err *rpcError) {
		if err != nil {
			t.fail(t.title + " doesn't use this model: " + err.text())
			return
		}
		t.setMode(opened, loaded)
	}))
}

// setMode sets the session's mode where it isn't what is wanted. A program may
// go on telling what was said in a session after it has been loaded; it does so
// before it takes another call, so this call is made after each load.
func (t *acpTalk) setMode(opened acpOpened, loaded bool) {
	is := opened.Modes != nil && opened.Modes.Current == t.program.mode
	if t.program.mode == "" || is && !loaded {
		t.opened(t.native(), t.prompt)
		return
	}
	params := map[string]any{"sessionId": t.session, "modeId": t.program.mode}
	t.do(t.rpc.call("session/set_mode", params, func(_ json.RawMessage, err *rpcError) {
		if err != nil && !is {
			t.fail(t.title + " doesn't work in this permission mode: " + err.text())
			return
		}
		t.opened(t.native(), t.prompt)
	}))
}

// native returns the program's own id of the session.
func (t *acpTalk) native() string { return strings.TrimPrefix(t.session, t.program.loads) }

// Send begins a turn, as soon as the session is open.
func (t *acpTalk) Send(turn Turn) []Effect { return t.send(turn, t.prompt) }

func (t *acpTalk) prompt(turn Turn) {
	if len(turn.Images) > 0 && !t.can.AgentCapabilities.PromptCapabilities.Image {
		t.complain("This version of " + t.title + " takes no images.")
		t.done(1, false)
		return
	}
	clear(t.calls)
	clear(t.asks)
	t.program.prompted(turn.Content)
	parts := []any{map[string]any{"type": "text", "text": turn.Content}}
	for _, image := range turn.Images {
		parts = append(parts, map[string]any{"type": "image", "mimeType": image.MimeType, "data": image.Data})
	}
	t.prompts++
	n := t.prompts
	params := map[string]any{"sessionId": t.session, "prompt": parts}
	t.do(t.rpc.call("session/prompt", params, func(result json.RawMessage, err *rpcError) {
		if t.running && t.prompts == n {
			t.finish(result, err)
		}
	}))
}

// finish ends the turn as the program has.
func (t *acpTalk) finish(result json.RawMessage, err *rpcError) {
	t.endText()
	t.endThought()
	if err != nil {
		if t.aborting {
			t.done(0, false)
			return
		}
		why := err.text()
		if err.Code == acpLoginRequired {
			why += " " + t.program.login
		}
		t.complain(t.title + ": " + why)
		t.done(1, false)
		return
	}
	var end acpPrompted
	_ = json.Unmarshal(result, &end) // an end without a reason is an end
	if b, ok := t.program.usage(end); ok && !t.aborting {
		t.budget(b)
	}
	why := acpStopped[end.StopReason]
	if why == "" || t.aborting {
		t.done(0, false)
		return
	}
	t.complain(t.title + " has stopped: " + why)
	t.done(1, false)
}

// Abort cancels the turn. Questions are answered as cancelled: some programs
// wait for that.
func (t *acpTalk) Abort() []Effect {
	switch {
	case !t.running || t.aborting:
	case t.waiting != nil:
		t.done(0, false)
	default:
		t.aborting = true
		t.do(t.rpc.notify("session/cancel", map[string]any{"sessionId": t.session}))
		for _, q := range t.questions() {
			t.do(t.rpc.answer(t.asks[q].id, acpCancelled))
			delete(t.asks, q)
			t.withdraw(q)
		}
	}
	return t.flush()
}

// Line takes a line of the program's.
func (t *acpTalk) Line(line []byte) []Effect {
	m, ok := t.rpc.read(line)
	switch {
	case !ok:
	case m.ID != nil && m.Method == "session/request_permission":
		t.request(m)
	case m.ID != nil:
		t.do(t.rpc.refuse(m.ID, m.Method))
	case m.Method == "session/update":
		t.news(m.Params)
	}
	return t.flush()
}

// request takes a request for permission. A person's answer is for once: what
// lasts is remembered by whoever asks the person.
func (t *acpTalk) request(m rpcMessage) {
	var p struct {
		ToolCall acpCall `json:"toolCall"`
		Options  []struct {
			ID   string `json:"optionId"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	if json.Unmarshal(m.Params, &p) != nil || !t.running || t.waiting != nil || t.aborting {
		t.do(t.rpc.answer(m.ID, acpCancelled))
		return
	}
	option := func(kinds ...string) string {
		for _, kind := range kinds {
			for _, o := range p.Options {
				if o.Kind == kind {
					return o.ID
				}
			}
		}
		return ""
	}
	how := acpAsk{id: m.ID, allow: option("allow_once", "allow_always"), deny: option("reject_once", "reject_always")}
	c := t.call(p.ToolCall)
	t.endText()
	t.endThought()
	t.useCall(c)
	tool, input := t.program.toolName(*c), c.input()
	if p.ToolCall.Kind == "execute" {
		tool, input = "Bash", p.ToolCall.command()
	}
	if how.allow != "" && Allowed(t.start.AllowedTools, tool, input) {
		t.do(t.rpc.answer(how.id, acpSelected(how.allow)))
		return
	}
	q := string(m.ID)
	if !t.ask(Ask{Question: q, Tool: tool, Input: input, Context: p.ToolCall.context()}) {
		t.do(t.rpc.answer(how.id, acpCancelled))
		return
	}
	t.asks[q] = how
}

// Answer answers a request for permission.
func (t *acpTalk) Answer(question string, a Answer) []Effect {
	how, known := t.asks[question]
	open, changed := t.answered(question, a)
	delete(t.asks, question)
	if !known || !open {
		return t.flush()
	}
	if changed {
		t.unchangeable()
		a.Allow = false
	}
	option := how.deny
	if a.Allow {
		option = how.allow
	}
	if option == "" {
		t.do(t.rpc.answer(how.id, acpCancelled))
		return t.flush()
	}
	t.do(t.rpc.answer(how.id, acpSelected(option)))
	return t.flush()
}

// End ends what is left of a turn.
func (t *acpTalk) End(exitCode int, stderr []byte) []Effect {
	t.endText()
	t.ended(exitCode, stderr, t.rpc.noise, t.program.words)
	return t.flush()
}

// Fits reports whether the session is the one that s asks for, worked on as s
// says.
func (t *acpTalk) Fits(s Start) bool { return t.ready && fits(t.start, s, t.native()) }

// news takes an update of the session. What comes before the session is open was
// said in it earlier.
func (t *acpTalk) news(params json.RawMessage) {
	var u acpUpdate
	if json.Unmarshal(params, &u) != nil || u.SessionID != t.session {
		return
	}
	if !t.ready {
		t.earlier(u)
		return
	}
	if !t.running || t.waiting != nil {
		return
	}
	switch u.Update.Kind {
	case "agent_message_chunk":
		t.endThought()
		if t.whole.open && t.whole.id != u.Update.MessageID {
			t.endText()
		}
		t.piece(u.Update.MessageID, u.text())
	case "agent_thought_chunk":
		t.endText()
		if t.program.wholeThoughts || t.thinks.id != u.Update.MessageID {
			t.endThought()
		}
		t.thinks.add(u.Update.MessageID, u.text())
	case "tool_call", "tool_call_update":
		t.endText()
		t.endThought()
		t.tool(params, u.Update.Kind == "tool_call")
	case "usage_update":
		t.budget(protocol.TokenBudget{Used: u.Update.Used, Total: u.Update.Size})
	}
}

// earlier takes what was said in the session before it was loaded.
func (t *acpTalk) earlier(u acpUpdate) {
	switch u.Update.Kind {
	case "user_message_chunk":
		t.program.prompted(u.text())
	case "agent_message_chunk":
		t.program.textID(u.Update.MessageID, u.text())
	case "agent_thought_chunk":
		t.program.thoughtID(u.Update.MessageID, u.text())
	}
}

// endText ends a text in pieces, and emits it whole.
func (t *acpTalk) endText() {
	if id, text, open := t.endPieces(); open {
		t.say(t.program.textID(id, text), text)
	}
}

// endThought emits what the model has thought.
func (t *acpTalk) endThought() {
	if id, text, open := t.thinks.take(); open {
		t.think(t.program.thoughtID(id, text), text)
	}
}

// tool takes news of a tool's call. Its use is told as soon as its input is
// known, which isn't so while it is pending.
func (t *acpTalk) tool(params json.RawMessage, begins bool) {
	var p struct {
		Update acpCall `json:"update"`
	}
	if json.Unmarshal(params, &p) != nil || p.Update.ID == "" {
		return
	}
	if _, known := t.calls[p.Update.ID]; !known && len(t.calls) == maxKept {
		return
	}
	c := t.call(p.Update)
	if begins && c.Status == "pending" {
		return
	}
	t.useCall(c)
	if c.Status == "completed" || c.Status == "failed" {
		t.result(c.ID+"_result", c.ID, c.output(), c.Status == "failed", nil)
		delete(t.calls, c.ID)
	}
}

// call merges news of a call with what is known of it.
func (t *acpTalk) call(n acpCall) *acpCall {
	c, ok := t.calls[n.ID]
	if !ok {
		c = &acpCall{ID: n.ID, named: n.Title}
		t.calls[n.ID] = c
	}
	c.merge(n)
	return c
}

// useCall emits the use of a tool, once.
func (t *acpTalk) useCall(c *acpCall) {
	if !c.shown && c.ID != "" {
		c.shown = true
		t.use(c.ID, c.ID, t.program.toolName(*c), c.input())
	}
}
