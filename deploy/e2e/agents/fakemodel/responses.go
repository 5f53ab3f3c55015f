package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

type responsesRequest struct {
	Model  string          `json:"model"`
	Stream bool            `json:"stream"`
	Input  json.RawMessage `json:"input"`
	Tools  []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"` // of a namespace
	} `json:"tools"`
}

func (q *responsesRequest) turn() turn {
	t := turn{model: q.Model, stream: q.Stream}
	for _, tool := range q.Tools {
		if tool.Type == "namespace" {
			for _, inner := range tool.Tools {
				t.offers = append(t.offers, offer{name: inner.Name, namespace: tool.Name})
			}
		} else if tool.Name != "" {
			t.offers = append(t.offers, offer{name: tool.Name})
		}
	}
	var items []struct {
		Type    string          `json:"type"`
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
		Output  json.RawMessage `json:"output"`
	}
	_ = json.Unmarshal(q.Input, &items) // a string holds no result
	for _, item := range items {
		t.result = nil
		switch {
		case item.Type == "function_call_output":
			result := text(item.Output)
			t.result = &result
			t.story = append(t.story, line{result, true})
		case item.Role == "user":
			t.story = append(t.story, line{text: text(item.Content)})
		}
	}
	return t
}

func writeResponses(w http.ResponseWriter, t turn, r reply) {
	item := map[string]any{
		"type": "message", "id": fmt.Sprint("msg_", r.number), "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": r.text, "annotations": []any{}}},
	}
	if r.call.name != "" {
		item = map[string]any{
			"type": "function_call", "id": fmt.Sprint("fc_", r.number), "call_id": r.id, "status": "completed",
			"name": r.call.name, "arguments": encode(r.arguments),
		}
		if r.call.namespace != "" {
			item["namespace"] = r.call.namespace
		}
	}
	response := func(status string, output []any) map[string]any {
		return map[string]any{
			"id": fmt.Sprint("resp_", r.number), "object": "response", "created_at": 0, "model": t.model, "status": status, "output": output,
			"usage": map[string]any{
				"input_tokens": 10, "output_tokens": 10, "total_tokens": 20,
				"input_tokens_details":  map[string]any{"cached_tokens": 0},
				"output_tokens_details": map[string]any{"reasoning_tokens": 0},
			},
		}
	}
	if !t.stream {
		answer(w, response("completed", []any{item}))
		return
	}
	s := newStream(w)
	s.send("response.created", map[string]any{"type": "response.created", "response": response("in_progress", []any{})})
	s.send("response.output_item.added", map[string]any{"type": "response.output_item.added", "output_index": 0, "item": item})
	for _, piece := range r.pieces() {
		if r.call.name == "" {
			s.send("response.output_text.delta", map[string]any{
				"type": "response.output_text.delta", "item_id": item["id"], "output_index": 0, "content_index": 0, "delta": piece,
			})
		}
	}
	s.send("response.output_item.done", map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item})
	s.send("response.completed", map[string]any{"type": "response.completed", "response": response("completed", []any{item})})
}
