package standin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
)

// acp is a program that speaks the Agent Client Protocol.
func acp(p *process, name, version string, m acpMemory) int {
	ctx, stop := untilSignal()
	defer stop()
	a := &acpServer{peer: newPeer(p, "2.0"), stage: &stage{p: p, ctx: ctx}, memory: m, name: name, version: version, mode: m.mode()}
	a.peer.read(a.take)
	a.stage.abort()
	a.stage.busy.Wait()
	return 0
}

// acpMemory keeps a session where the real program does.
type acpMemory interface {
	mode() string // the permission mode at the beginning
	// open begins a session, or reads an earlier one. It returns the session's id and
	// what persons have said in it.
	open(id string) (session string, said []string, err error)
	// add keeps what was said or done. user, text, thought or tool.
	add(what acpSaid)
	replays() bool // a session is loaded with all that was said in it
}

// acpSaid is one thing of a session.
type acpSaid struct {
	kind   string // user, text, thought, tool
	id     string // of the message, thought or tool
	text   string // or the tool's output
	tool   string
	input  json.RawMessage
	failed bool
}

type acpServer struct {
	peer    *peer
	stage   *stage
	memory  acpMemory
	name    string
	version string

	// Owned by the goroutine that reads; what is performed reads the session.
	session string
	mode    string
	said    []string
}

// acpModes are the modes of gemini's by their permission modes.
var acpModes = map[string]string{"default": "default", "autoEdit": "acceptEdits", "yolo": "bypassPermissions", "plan": "plan"}

func (a *acpServer) take(m called) {
	var q struct {
		SessionID string `json:"sessionId"`
		ModeID    string `json:"modeId"`
		Prompt    []struct {
			Type string `json:"type"`
			Text string `json:"text"`
			Data []byte `json:"data"`
		} `json:"prompt"`
	}
	_ = json.Unmarshal(m.Params, &q) // what is missing is empty
	switch m.Method {
	case "initialize":
		can := map[string]any{"loadSession": true, "promptCapabilities": map[string]any{"image": true}}
		if !a.memory.replays() {
			can["sessionCapabilities"] = map[string]any{"resume": map[string]any{}}
		}
		a.peer.reply(m.ID, map[string]any{"protocolVersion": 1, "agentInfo": map[string]any{"name": a.name, "version": a.version}, "agentCapabilities": can})
	case "session/new", "session/load", "session/resume":
		a.open(m, q.SessionID)
	case "session/set_mode":
		mode, ok := acpModes[q.ModeID]
		if !ok {
			a.peer.refuse(m.ID, -32603, "Invalid or unavailable mode: "+q.ModeID)
			return
		}
		a.mode = mode
		a.peer.reply(m.ID, map[string]any{})
	case "session/set_config_option":
		a.peer.reply(m.ID, map[string]any{"configOptions": []any{}})
	case "session/prompt":
		text, images := "", []int(nil)
		for _, part := range q.Prompt {
			if text += part.Text; part.Type == "image" {
				images = append(images, len(part.Data))
			}
		}
		a.prompt(m.ID, text, images)
	case "session/cancel":
		a.stage.abort()
	default:
		if m.ID != nil {
			a.peer.refuse(m.ID, -32601, "\"Method not found\": "+m.Method)
		}
	}
}

func (a *acpServer) open(m called, id string) {
	a.stage.busy.Wait()
	session, said, err := a.memory.open(id)
	if err != nil {
		a.peer.refuse(m.ID, -32603, err.Error())
		return
	}
	a.session, a.said = session, said
	result := map[string]any{"modes": map[string]any{"currentModeId": a.mode, "availableModes": []any{}}}
	if m.Method == "session/new" {
		result["sessionId"] = session
	}
	a.peer.reply(m.ID, result)
	for _, text := range said {
		if m.Method == "session/load" {
			a.update(map[string]any{"sessionUpdate": "user_message_chunk", "content": map[string]any{"type": "text", "text": text}})
		}
	}
}

func (a *acpServer) update(update map[string]any) {
	a.peer.notify("session/update", map[string]any{"sessionId": a.session, "update": update})
}

func (a *acpServer) prompt(id json.RawMessage, text string, images []int) {
	a.stage.busy.Wait()
	a.memory.add(acpSaid{kind: "user", id: newUUID(), text: text})
	said := append([]string(nil), a.said...)
	a.said = append(a.said, text)
	v := &acpVoice{a: a, id: id, may: permissions{mode: a.mode}}
	a.stage.perform(v, text, said, images, v.end)
}

// acpVoice says what happens in a prompt.
type acpVoice struct {
	a    *acpServer
	id   json.RawMessage // of the prompt
	may  permissions
	item string // of the text that is said; "": none is
	text string
}

func (v *acpVoice) delta(text string) {
	if v.item == "" {
		v.item = "msg_" + newUUID()
	}
	v.text += text
	v.a.update(map[string]any{"sessionUpdate": "agent_message_chunk", "messageId": v.item, "content": map[string]any{"type": "text", "text": text}})
}

func (v *acpVoice) endText() {
	if v.item != "" {
		v.a.memory.add(acpSaid{kind: "text", id: v.item, text: v.text})
		v.item, v.text = "", ""
	}
}

func (v *acpVoice) think(text string) {
	id := "prt_" + newUUID()
	if v.a.memory.replays() {
		text = "**" + text + "**\n" // gemini's thoughts have a subject
	}
	v.a.memory.add(acpSaid{kind: "thought", id: id, text: text})
	v.a.update(map[string]any{"sessionUpdate": "agent_thought_chunk", "messageId": id, "content": map[string]any{"type": "text", "text": text}})
}

func (v *acpVoice) useID() string { return "call_" + newUUID() }

// call returns a tool's call as the protocol has it.
func (v *acpVoice) call(u use, status string) map[string]any {
	kind, title := "other", u.name
	switch u.name {
	case "Bash":
		kind, title = "execute", cmp.Or(word(members(u.input), "command"), u.name)
	case "Write", "Edit":
		kind = "edit"
	case "Read":
		kind = "read"
	}
	return map[string]any{"toolCallId": u.id, "title": title, "kind": kind, "status": status, "rawInput": u.input, "locations": []any{}}
}

func (v *acpVoice) use(ctx context.Context, u use) (json.RawMessage, error) {
	begun := v.call(u, "pending")
	begun["sessionUpdate"], begun["title"] = "tool_call", u.name
	v.a.update(begun)
	if v.may.asks(u) {
		_, result, err := v.a.peer.ask(ctx, "session/request_permission", map[string]any{
			"sessionId": v.a.session, "toolCall": v.call(u, "pending"),
			"options": []any{
				map[string]any{"optionId": "always", "kind": "allow_always", "name": "Always allow"},
				map[string]any{"optionId": "once", "kind": "allow_once", "name": "Allow"},
				map[string]any{"optionId": "reject", "kind": "reject_once", "name": "Reject"},
			},
		}, u.giveUp)
		if err != nil {
			return nil, err
		}
		var said struct {
			Outcome struct {
				Option string `json:"optionId"`
			} `json:"outcome"`
		}
		_ = json.Unmarshal(result, &said) // anything else denies
		if said.Outcome.Option != "once" && said.Outcome.Option != "always" {
			return nil, &refusal{"The user rejected permission to use this specific tool call."}
		}
	}
	begun = v.call(u, "in_progress")
	begun["sessionUpdate"] = "tool_call_update"
	v.a.update(begun)
	return u.input, nil
}

func (v *acpVoice) result(u use, output string, bad bool) {
	v.a.memory.add(acpSaid{kind: "tool", id: u.id, tool: u.name, input: u.input, text: output, failed: bad})
	done := v.call(u, "completed")
	if bad {
		done["status"] = "failed"
	}
	done["sessionUpdate"] = "tool_call_update"
	done["content"] = []any{map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": output}}}
	v.a.update(done)
}

func (v *acpVoice) end(err error) {
	switch bad := err.(type) {
	case nil:
		v.endText()
	case *failed:
		v.a.peer.refuse(v.id, -32603, bad.text)
		return
	default:
		v.a.peer.reply(v.id, map[string]any{"stopReason": "cancelled"})
		return
	}
	v.a.peer.reply(v.id, map[string]any{
		"stopReason": "end_turn",
		"usage":      map[string]any{"inputTokens": 10, "outputTokens": 10, "totalTokens": 20},
		"_meta":      map[string]any{"quota": map[string]any{"token_count": map[string]any{"input_tokens": 10, "output_tokens": 10}}},
	})
}

// errNoSession says that a session can't be resumed.
func errNoSession(id string) error { return fmt.Errorf("Invalid session identifier %q.", id) }
