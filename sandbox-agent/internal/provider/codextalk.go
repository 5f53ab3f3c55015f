package provider

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// codexTalk is the protocol of one app-server.
type codexTalk struct {
	turns
	rpc    rpc
	thread string

	// Of the present turn.
	turn  string // codex's id of it; "": not known yet
	over  bool   // codex has said that the turn is over; commands may still run
	tools map[string]codexTool
	asks  map[string]codexAsk
	last  string // what codex has said of an error that ends the turn
}

// A codexTool is an item that is a tool's, from its start to its end.
type codexTool struct {
	item    string // its type
	command bool   // a command that runs: it may outlive the turn
	changes json.RawMessage
	output  *strings.Builder
}

// Begin opens a thread: a new one, or the one of Start.
func (t *codexTalk) Begin() []Effect {
	t.do(t.rpc.call("initialize", map[string]any{
		"clientInfo": map[string]any{"name": "fairlead", "title": "fairlead", "version": "1"},
		// Commands that outlive an interrupted turn can only be ended by a method
		// that codex calls experimental.
		"capabilities": map[string]any{"experimentalApi": true, "requestAttestation": false},
	}, func(_ json.RawMessage, err *rpcError) {
		if err != nil {
			t.fail("codex doesn't begin to talk: " + err.text())
			return
		}
		t.do(t.rpc.notify("initialized", nil))
		t.open()
	}))
	return t.flush()
}

// codexModes maps permission modes to what codex calls approval policy and
// sandbox. By default a command runs in codex's own sandbox, and codex asks for
// leave to run it outside.
var codexModes = map[string][2]string{
	"":                   {"on-request", "workspace-write"},
	modeDefault:          {"on-request", "workspace-write"},
	"acceptEdits":        {"never", "workspace-write"},
	op.BypassPermissions: {"never", "danger-full-access"},
}

// codexElsewhere ends what codex says of a thread on which another codex works:
// one in a terminal, or the server that such a one has left in the background.
const codexElsewhere = "already has an active writer"

// open opens the thread.
func (t *codexTalk) open() {
	mode := t.start.Mode
	if t.start.SkipPermissions {
		mode = op.BypassPermissions
	}
	params := map[string]any{
		"cwd": t.start.Dir, "approvalPolicy": codexModes[mode][0], "sandbox": codexModes[mode][1],
	}
	if t.start.Model != "" {
		params["model"] = t.start.Model
	}
	method := "thread/start"
	if t.start.Native != "" {
		method = "thread/resume"
		params["threadId"], params["excludeTurns"] = t.start.Native, true
	}
	t.do(t.rpc.call(method, params, func(result json.RawMessage, err *rpcError) {
		var opened struct {
			Thread struct {
				ID string `json:"id"`
			} `json:"thread"`
		}
		switch {
		case err != nil && strings.HasSuffix(err.Message, codexElsewhere):
			t.fail("The session is open in another codex. Quit that one first. If none is to be seen, it runs in the background: codex app-server daemon stop ends it.")
			return
		case err != nil:
			t.fail("codex can't open the session: " + err.text())
			return
		case json.Unmarshal(result, &opened) != nil || opened.Thread.ID == "":
			t.fail("codex has opened no session that it can name")
			return
		}
		t.thread = opened.Thread.ID
		t.opened(t.thread, t.begin)
	}))
}

// Send begins a turn, as soon as the thread is open.
func (t *codexTalk) Send(turn Turn) []Effect { return t.send(turn, t.begin) }

func (t *codexTalk) begin(turn Turn) {
	t.turn, t.over, t.last = "", false, ""
	clear(t.asks)
	maps.DeleteFunc(t.tools, func(_ string, tool codexTool) bool { return !tool.command })
	input := []any{map[string]any{"type": "text", "text": turn.Content}}
	for _, image := range turn.Images {
		input = append(input, map[string]any{"type": "localImage", "path": image.Path})
	}
	params := map[string]any{"threadId": t.thread, "input": input, "clientUserMessageId": turn.ID}
	t.do(t.rpc.call("turn/start", params, func(result json.RawMessage, err *rpcError) {
		if err != nil {
			t.complain("codex doesn't take the message: " + err.text())
			t.done(1, false)
			return
		}
		var started struct {
			Turn struct {
				ID string `json:"id"`
			} `json:"turn"`
		}
		_ = json.Unmarshal(result, &started) // turn/started says it too
		t.began(started.Turn.ID)
	}))
}

// began learns the id of the present turn.
func (t *codexTalk) began(turn string) {
	if t.turn != "" || turn == "" || !t.running {
		return
	}
	t.turn = turn
	if t.aborting {
		t.interrupt()
	}
}

// Abort interrupts the turn. Commands outlive that; they are ended then.
func (t *codexTalk) Abort() []Effect {
	switch {
	case !t.running || t.aborting:
	case t.waiting != nil:
		t.done(0, false)
	default:
		t.aborting = true
		if t.turn != "" {
			t.interrupt()
		}
	}
	return t.flush()
}

func (t *codexTalk) interrupt() {
	turn := t.turn
	params := map[string]any{"threadId": t.thread, "turnId": turn}
	t.do(t.rpc.call("turn/interrupt", params, func(_ json.RawMessage, err *rpcError) {
		if err != nil && t.turn == turn && t.aborting && !t.over {
			// It knows of no such turn: only its end can end what it does.
			t.done(0, true)
		}
	}))
}

// clean ends the commands that a turn has left behind. Of one that had only just
// begun when the turn was interrupted codex says no end: codex' list of what runs
// says that it is over.
func (t *codexTalk) clean() {
	turn := t.turn
	waits := func() bool { return t.turn == turn && t.over && t.aborting }
	of := map[string]any{"threadId": t.thread}
	t.do(t.rpc.call("thread/backgroundTerminals/list", of, func(result json.RawMessage, err *rpcError) {
		if !waits() {
			return
		}
		if err == nil {
			t.onlyListed(result)
		}
		if !t.commands() {
			t.done(0, false)
			return
		}
		t.do(t.rpc.call("thread/backgroundTerminals/clean", of, func(_ json.RawMessage, err *rpcError) {
			if err != nil && waits() {
				t.done(0, true) // an older codex: its commands end with it
			}
		}))
	}))
}

// onlyListed forgets the commands that a whole list of those that run doesn't
// have.
func (t *codexTalk) onlyListed(result json.RawMessage) {
	var list struct {
		Data []struct {
			ItemID string `json:"itemId"`
		} `json:"data"`
		Next *string `json:"nextCursor"`
	}
	if json.Unmarshal(result, &list) != nil || list.Data == nil || list.Next != nil {
		return
	}
	runs := make(map[string]bool)
	for _, terminal := range list.Data {
		runs[terminal.ItemID] = true
	}
	maps.DeleteFunc(t.tools, func(id string, tool codexTool) bool { return tool.command && !runs[id] })
}

// commands reports whether commands run.
func (t *codexTalk) commands() bool {
	for _, tool := range t.tools {
		if tool.command {
			return true
		}
	}
	return false
}

// Line takes a line of the app-server's.
func (t *codexTalk) Line(line []byte) []Effect {
	m, ok := t.rpc.read(line)
	switch {
	case !ok:
	case m.ID != nil:
		t.request(m)
	default:
		t.notice(m)
	}
	return t.flush()
}

// notice takes a notification. Those of other threads, which agents of the agent
// have, don't concern the conversation.
func (t *codexTalk) notice(m rpcMessage) {
	var p codexNotice
	if json.Unmarshal(m.Params, &p) != nil || p.ThreadID != t.thread || t.thread == "" {
		return
	}
	switch m.Method {
	case "turn/started":
		t.began(p.Turn.ID)
	case "turn/completed":
		t.completed(p.Turn)
	case "item/started":
		if !p.Item.comesWhole() {
			t.started(p.TurnID, p.Item)
		}
	case "item/completed":
		t.finished(p.TurnID, p.Item)
		if t.over && t.aborting && !t.commands() {
			t.done(0, false)
		}
	case "item/agentMessage/delta":
		if t.running {
			t.piece(CodexItemID(p.TurnID, p.ItemID), p.Delta)
		}
	case "item/commandExecution/outputDelta":
		if tool, ok := t.tools[p.ItemID]; ok && tool.output.Len() < maxWhole {
			tool.output.WriteString(cut(p.Delta, maxWhole-tool.output.Len()))
		}
	case "turn/plan/updated":
		t.plan(p)
	case "thread/tokenUsage/updated":
		t.usage(p)
	case "error":
		if p.Error == nil || !t.running {
			return
		}
		if t.last = p.Error.Message; p.WillRetry {
			t.status(t.last)
		}
	case "serverRequest/resolved":
		t.withdraw(string(p.RequestID))
		delete(t.asks, string(p.RequestID))
	}
}

// completed ends the turn, unless its commands have to be ended first.
func (t *codexTalk) completed(turn codexTurn) {
	if !t.running || t.waiting != nil || t.turn != "" && turn.ID != t.turn {
		return
	}
	if id, text, open := t.endPieces(); open {
		t.say(id, text)
	}
	switch {
	case turn.Status == "failed":
		why := t.last
		if turn.Error != nil && turn.Error.Message != "" {
			why = turn.Error.Message
		}
		t.complain("codex: " + why)
		t.done(1, false)
	case t.aborting && t.commands():
		t.over = true
		t.clean()
	case turn.Status == "interrupted" && !t.aborting:
		t.complain("codex has interrupted the turn")
		t.done(1, false)
	default:
		t.done(0, false)
	}
}

// codexWindow is the size of a model's context, in tokens, when codex doesn't
// say (seed 002).
const codexWindow = 200_000

func (t *codexTalk) usage(p codexNotice) {
	if !t.running {
		return // of an earlier turn: codex says it again when a thread is resumed
	}
	last, total := p.TokenUsage.Last, p.TokenUsage.ContextWindow
	if total <= 0 {
		total = codexWindow
	}
	t.budget(protocol.TokenBudget{
		Used: last.Total, Total: total, InputTokens: last.Input, OutputTokens: last.Output,
		CacheReadTokens: last.CachedInput, CacheCreationTokens: last.CacheWrite,
	})
}

// End ends what is left of a turn.
func (t *codexTalk) End(exitCode int, stderr []byte) []Effect {
	t.ended(exitCode, stderr, t.rpc.noise, nil)
	return t.flush()
}

// Fits reports whether the thread is the one that s asks for, worked on as s says.
func (t *codexTalk) Fits(s Start) bool {
	return t.ready && fits(t.start, s, t.thread)
}

// started takes the start of an item.
func (t *codexTalk) started(turn string, item codexItem) {
	if name, input, ok := item.use(); ok && item.ID != "" && t.running && len(t.tools) < maxKept {
		if _, twice := t.tools[item.ID]; twice {
			return
		}
		t.tools[item.ID] = codexTool{
			item: item.Type, command: item.Type == "commandExecution", changes: item.Changes, output: new(strings.Builder),
		}
		t.use(CodexItemID(turn, item.ID), item.ID, name, input)
	}
}

// finished takes the end of an item.
func (t *codexTalk) finished(turn string, item codexItem) {
	id := CodexItemID(turn, item.ID)
	switch item.Type {
	case "agentMessage", "plan":
		if t.running {
			t.endPieces()
			t.say(id, item.Text)
		}
	case "reasoning":
		if t.running {
			t.think(id, item.thought())
		}
	case "contextCompaction":
		if t.running {
			t.status("codex has summarised the earlier conversation")
		}
	default:
		if _, _, ok := item.use(); !ok || !t.running || item.ID == "" {
			delete(t.tools, item.ID)
			return
		}
		t.started(turn, item)
		content, failed, raw := item.outcome()
		if tool, ok := t.tools[item.ID]; ok && content == "" {
			content = tool.output.String()
		}
		delete(t.tools, item.ID)
		t.result(CodexResultID(turn, item.ID), item.ID, content, failed, raw)
	}
}

// plan emits the agent's list of what it has to do.
func (t *codexTalk) plan(p codexNotice) {
	if !t.running {
		return
	}
	items := []any{}
	for _, step := range p.Plan {
		items = append(items, map[string]any{"text": step.Step, "completed": step.Status == "completed", "status": step.Status})
	}
	t.use("", CodexItemID(p.TurnID, "plan"), "TodoList", object(map[string]any{"items": items}))
}

// request takes a request of codex's: a question for a person, or something that
// we don't do, which is refused so that codex doesn't wait for it.
func (t *codexTalk) request(m rpcMessage) {
	var p codexRequest
	parse(m.Params, &p) // a request without params is one that we don't do
	a, how, ok := codexQuestionOf(m, p, t.tools[p.ItemID].changes)
	switch {
	case !ok || !t.running || t.waiting != nil:
		t.do(t.rpc.refuse(m.ID, m.Method))
	case !how.free() && Allowed(t.start.AllowedTools, a.Tool, a.Input):
		t.do(t.rpc.answer(how.id, how.result(Answer{Allow: true})))
	case t.ask(a):
		t.asks[a.Question] = how
		t.runs(p.ItemID, false)
	default:
		t.do(t.rpc.answer(how.id, how.result(Answer{})))
	}
}

// Answer answers a question of codex's.
func (t *codexTalk) Answer(question string, a Answer) []Effect {
	how, known := t.asks[question]
	open, changed := t.answered(question, a)
	delete(t.asks, question)
	if !known || !open {
		return t.flush()
	}
	if changed && !how.free() {
		t.unchangeable()
		a = Answer{}
	}
	t.runs(how.of.ItemID, a.Allow)
	t.do(t.rpc.answer(how.id, how.result(a)))
	return t.flush()
}

// runs notes whether a tool runs that somebody is asked about.
func (t *codexTalk) runs(item string, does bool) {
	if tool, ok := t.tools[item]; ok && tool.item == "commandExecution" {
		tool.command = does
		t.tools[item] = tool
	}
}
