package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// claudeVoice says things in messages as the Messages API streams them.
type claudeVoice struct {
	o      *claudeOut
	id     string // of the message that is being made; "": none
	index  int    // of its next block
	text   strings.Builder
	spoken bool   // a text is being said
	latest string // the last whole text
	using  string // id of the tool that is in use
	turn   string // its uuid
	uses   int    // of tools
}

func (v *claudeVoice) useID() string {
	v.uses++
	return fmt.Sprintf("toolu_%s_%d", v.turn, v.uses)
}

func (v *claudeVoice) event(e any) { v.o.print(line{Type: "stream_event", Event: e}) }

// message begins a message unless one is being made.
func (v *claudeVoice) message() {
	if v.id != "" {
		return
	}
	v.id, v.index = "msg_"+newUUID(), 0
	v.event(map[string]any{"type": "message_start", "message": v.made([]any{})})
}

// made is the message that is being made with some content.
func (v *claudeVoice) made(content []any) map[string]any {
	return map[string]any{
		"id": v.id, "type": "message", "role": "assistant", "model": v.o.model, "content": content,
		"usage": map[string]any{"input_tokens": 10, "output_tokens": 1},
	}
}

// block tells and keeps a whole block.
func (v *claudeVoice) block(block map[string]any) {
	id, message := newUUID(), v.made([]any{block})
	v.o.t.add("assistant", id, message, nil)
	v.o.print(line{Type: "assistant", UUID: id, Message: message})
}

func (v *claudeVoice) start(block map[string]any) {
	v.message()
	v.event(map[string]any{"type": "content_block_start", "index": v.index, "content_block": block})
}

func (v *claudeVoice) stop() {
	v.event(map[string]any{"type": "content_block_stop", "index": v.index})
	v.index++
}

// A textDelta is the event of a piece of text.
type textDelta struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Delta struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"delta"`
}

func (v *claudeVoice) delta(text string) {
	if !v.spoken {
		v.start(map[string]any{"type": "text", "text": ""})
		v.spoken = true
	}
	v.text.WriteString(text)
	e := textDelta{Type: "content_block_delta", Index: v.index}
	e.Delta.Type, e.Delta.Text = "text_delta", text
	v.event(e)
}

// endText tells the whole text before the end of its block, as claude does.
func (v *claudeVoice) endText() {
	if !v.spoken {
		return
	}
	v.told()
	v.stop()
}

// told tells the whole text that was said.
func (v *claudeVoice) told() {
	v.latest = v.text.String()
	v.text.Reset()
	v.spoken = false
	v.block(map[string]any{"type": "text", "text": v.latest})
}

// whole says a text without pieces, in a message of its own.
func (v *claudeVoice) whole(text string) {
	v.endMessage("end_turn")
	v.id = "msg_" + newUUID()
	v.block(map[string]any{"type": "text", "text": text})
	v.id = ""
}

func (v *claudeVoice) think(text string) {
	v.start(map[string]any{"type": "thinking", "thinking": "", "signature": ""})
	v.event(map[string]any{"type": "content_block_delta", "index": v.index, "delta": map[string]any{"type": "thinking_delta", "thinking": text}})
	v.block(map[string]any{"type": "thinking", "thinking": text, "signature": "none"})
	v.stop()
}

// endMessage ends the message that is being made.
func (v *claudeVoice) endMessage(reason string) {
	if v.id == "" {
		return
	}
	v.event(map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": reason}, "usage": map[string]any{"output_tokens": 10}})
	v.event(map[string]any{"type": "message_stop"})
	v.id = ""
}

func (v *claudeVoice) use(ctx context.Context, u use) (json.RawMessage, error) {
	v.start(map[string]any{"type": "tool_use", "id": u.id, "name": u.name, "input": map[string]any{}})
	v.event(map[string]any{"type": "content_block_delta", "index": v.index, "delta": map[string]any{"type": "input_json_delta", "partial_json": string(u.input)}})
	v.block(map[string]any{"type": "tool_use", "id": u.id, "name": u.name, "input": u.input})
	v.stop()
	v.endMessage("tool_use")
	v.using = u.id
	if v.o.may.forbids(u) {
		return nil, &refusal{"Permission to use " + u.name + " has been denied."}
	}
	if !v.o.may.asks(u) {
		return u.input, nil
	}
	return v.ask(ctx, u)
}

// ask asks whether a tool may be used.
func (v *claudeVoice) ask(ctx context.Context, u use) (json.RawMessage, error) {
	id := newUUID()
	answer := v.o.asked.open(id)
	v.o.p.print(map[string]any{"type": "control_request", "request_id": id, "request": map[string]any{
		"subtype": "can_use_tool", "tool_name": u.name, "display_name": u.name, "input": u.input, "tool_use_id": u.id,
		"permission_suggestions": []any{},
	}})
	var giveUp <-chan time.Time
	if u.giveUp > 0 {
		giveUp = time.After(u.giveUp)
	}
	var said struct {
		Behavior string          `json:"behavior"`
		Input    json.RawMessage `json:"updatedInput"`
		Message  string          `json:"message"`
	}
	select {
	case raw, any := <-answer:
		if !any {
			return nil, &refusal{"nobody can be asked any more"}
		}
		_ = json.Unmarshal(raw, &said) // something else denies
	case <-giveUp:
		v.cancel(id)
		return nil, &refusal{"the question was taken back"}
	case <-ctx.Done():
		v.cancel(id)
		return nil, ctx.Err()
	}
	if said.Behavior != "allow" {
		return nil, &refusal{said.Message}
	}
	if u.name == exitPlanMode {
		v.o.setMode("default")
	}
	return said.Input, nil
}

// cancel takes a question back unless it was answered.
func (v *claudeVoice) cancel(question string) {
	if v.o.asked.forget(question) {
		v.o.p.print(map[string]any{"type": "control_cancel_request", "request_id": question})
	}
}

func (v *claudeVoice) result(u use, output string, failed bool) {
	v.using = ""
	v.tell([]any{map[string]any{"type": "tool_result", "tool_use_id": u.id, "content": output, "is_error": failed}},
		map[string]any{"stdout": output, "stderr": "", "interrupted": false})
}

// tell tells and keeps a message of the person's role.
func (v *claudeVoice) tell(content []any, output any) {
	id, message := newUUID(), map[string]any{"role": "user", "content": content}
	v.o.t.add("user", id, message, output)
	v.o.print(line{Type: "user", UUID: id, Message: message, Output: output, Time: now()})
}

// cut says what claude says when it was stopped: the text so far, without an end
// of its block, and who has stopped it.
func (v *claudeVoice) cut() {
	if v.spoken {
		v.told()
	}
	by := interrupted + "]"
	if v.using != "" {
		no := "The user doesn't want to proceed with this tool use. The tool use was rejected."
		v.tell([]any{map[string]any{"type": "tool_result", "tool_use_id": v.using, "content": no, "is_error": true}}, "User rejected tool use")
		by = interrupted + " for tool use]"
	}
	v.tell([]any{map[string]any{"type": "text", "text": by}}, nil)
}
