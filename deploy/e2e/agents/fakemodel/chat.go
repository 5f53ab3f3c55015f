package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
)

type chatRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

func (q *chatRequest) turn() turn {
	t := turn{model: q.Model, stream: q.Stream}
	for _, tool := range q.Tools {
		t.offers = append(t.offers, offer{name: tool.Function.Name})
	}
	for _, m := range q.Messages {
		t.result = nil
		said := text(m.Content)
		switch m.Role {
		case "user":
			t.story = append(t.story, line{text: said})
		case "tool":
			t.result = &said
			t.story = append(t.story, line{said, true})
		}
	}
	return t
}

func writeChat(w http.ResponseWriter, t turn, r reply) {
	message := map[string]any{"role": "assistant", "content": r.text}
	reason := "stop"
	if r.call.name != "" {
		message = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
			"index": 0, "id": r.id, "type": "function",
			"function": map[string]any{"name": r.call.name, "arguments": encode(r.arguments)},
		}}}
		reason = "tool_calls"
	}
	usage := map[string]any{"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
	if !t.stream {
		answer(w, map[string]any{
			"id": fmt.Sprint("chat_", r.number), "object": "chat.completion", "created": 0, "model": t.model, "usage": usage,
			"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}},
		})
		return
	}
	chunk := func(delta map[string]any, reason any) map[string]any {
		return map[string]any{
			"id": fmt.Sprint("chat_", r.number), "object": "chat.completion.chunk", "created": 0, "model": t.model,
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": reason}},
		}
	}
	s := newStream(w)
	if r.call.name != "" {
		s.send("", chunk(message, nil))
	} else {
		for _, piece := range r.pieces() {
			s.send("", chunk(map[string]any{"role": "assistant", "content": piece}, nil))
		}
	}
	last := chunk(map[string]any{}, reason)
	last["usage"] = usage
	s.send("", last)
	fmt.Fprint(w, "data: [DONE]\n\n")
}
