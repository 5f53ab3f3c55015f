package fakemodel

import (
	"encoding/json"
	"fmt"
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
	for _, m := range q.Messages {
		t.result, t.search = nil, false
		var parts []struct {
			Type    string          `json:"type"`
			Text    string          `json:"text"`
			Of      string          `json:"tool_use_id"`
			Content json.RawMessage `json:"content"`
		}
		switch {
		case m.Role != "user":
		case json.Unmarshal(m.Content, &parts) != nil: // a string
			t.story = append(t.story, line{text: text(m.Content)})
		}
		for _, p := range parts {
			switch p.Type {
			case "text":
				t.story = append(t.story, line{text: p.Text})
			case "tool_result":
				result := text(p.Content)
				t.result, t.search = &result, p.Of == searchID
				t.story = append(t.story, line{result, true})
			}
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
		"id": fmt.Sprint("msg_", r.number), "type": "message", "role": "assistant", "model": t.model, "usage": usage,
		"content": []any{block}, "stop_reason": reason, "stop_sequence": nil,
	}
	if !t.stream {
		answer(w, message)
		return
	}
	s := newStream(w)
	message["content"], message["stop_reason"] = []any{}, nil
	s.send("message_start", map[string]any{"type": "message_start", "message": message})
	var deltas []map[string]any
	for _, piece := range r.pieces() {
		deltas = append(deltas, map[string]any{"type": "text_delta", "text": piece})
	}
	start := map[string]any{"type": "text", "text": ""}
	if r.call.name != "" {
		deltas = []map[string]any{{"type": "input_json_delta", "partial_json": encode(r.arguments)}}
		start = map[string]any{"type": "tool_use", "id": r.id, "name": r.call.name, "input": map[string]any{}}
	}
	s.send("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": start})
	for _, delta := range deltas {
		s.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": delta})
	}
	s.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	s.send("message_delta", map[string]any{
		"type": "message_delta", "usage": usage, "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil},
	})
	s.send("message_stop", map[string]any{"type": "message_stop"})
}
