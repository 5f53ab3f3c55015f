package fakemodel

import (
	"encoding/json"
	"net/http"
)

type anthropicRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
}

func (q *anthropicRequest) turn() turn {
	t := turn{model: q.Model, stream: q.Stream}
	for _, tool := range q.Tools {
		t.offers = append(t.offers, offer{name: tool.Name})
	}
	if len(q.Messages) == 0 {
		return t
	}
	var parts []struct {
		Type    string          `json:"type"`
		Of      string          `json:"tool_use_id"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(q.Messages[len(q.Messages)-1].Content, &parts) // a string holds no result
	for _, p := range parts {
		if p.Type == "tool_result" {
			result := text(p.Content)
			t.result, t.search = &result, p.Of == searchID
		}
	}
	return t
}

func writeAnthropic(w http.ResponseWriter, t turn, r reply) {
	block := map[string]any{"type": "text", "text": r.text}
	reason := "end_turn"
	if r.call.name != "" {
		input := r.arguments
		if input == nil {
			input = map[string]any{}
		}
		block = map[string]any{"type": "tool_use", "id": r.id, "name": r.call.name, "input": input}
		reason = "tool_use"
	}
	usage := map[string]any{"input_tokens": 10, "output_tokens": 10}
	message := map[string]any{
		"id": "msg_1", "type": "message", "role": "assistant", "model": t.model, "usage": usage,
		"content": []any{block}, "stop_reason": reason, "stop_sequence": nil,
	}
	if !t.stream {
		answer(w, message)
		return
	}
	s := newStream(w)
	message["content"], message["stop_reason"] = []any{}, nil
	s.send("message_start", map[string]any{"type": "message_start", "message": message})
	delta := map[string]any{"type": "text_delta", "text": r.text}
	start := map[string]any{"type": "text", "text": ""}
	if r.call.name != "" {
		delta = map[string]any{"type": "input_json_delta", "partial_json": encode(r.arguments)}
		start = map[string]any{"type": "tool_use", "id": r.id, "name": r.call.name, "input": map[string]any{}}
	}
	s.send("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": start})
	s.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": delta})
	s.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	s.send("message_delta", map[string]any{
		"type": "message_delta", "usage": usage, "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil},
	})
	s.send("message_stop", map[string]any{"type": "message_stop"})
}
