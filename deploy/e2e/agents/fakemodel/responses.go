package fakemodel

import (
	"encoding/json"
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
		Type   string          `json:"type"`
		Output json.RawMessage `json:"output"`
	}
	_ = json.Unmarshal(q.Input, &items) // a string holds no result
	if n := len(items); n > 0 && items[n-1].Type == "function_call_output" {
		result := text(items[n-1].Output)
		t.result = &result
	}
	return t
}

func writeResponses(w http.ResponseWriter, t turn, r reply) {
	item := map[string]any{
		"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": r.text, "annotations": []any{}}},
	}
	if r.call.name != "" {
		item = map[string]any{
			"type": "function_call", "id": "fc_1", "call_id": r.id, "status": "completed",
			"name": r.call.name, "arguments": encode(r.arguments),
		}
		if r.call.namespace != "" {
			item["namespace"] = r.call.namespace
		}
	}
	response := func(status string, output []any) map[string]any {
		return map[string]any{
			"id": "resp_1", "object": "response", "created_at": 0, "model": t.model, "status": status, "output": output,
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
	s.send("response.output_item.done", map[string]any{"type": "response.output_item.done", "output_index": 0, "item": item})
	s.send("response.completed", map[string]any{"type": "response.completed", "response": response("completed", []any{item})})
}
