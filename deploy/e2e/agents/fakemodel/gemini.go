package fakemodel

import (
	"encoding/json"
	"net/http"
)

type geminiRequest struct {
	Contents []struct {
		Role  string `json:"role"`
		Parts []struct {
			Text             string `json:"text"`
			FunctionResponse *struct {
				Response json.RawMessage `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"contents"`
	Tools []struct {
		FunctionDeclarations []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

func (q *geminiRequest) turn() turn {
	var t turn
	for _, group := range q.Tools {
		for _, f := range group.FunctionDeclarations {
			t.offers = append(t.offers, offer{name: f.Name})
		}
	}
	for _, c := range q.Contents {
		t.result = nil
		for _, p := range c.Parts {
			switch {
			case p.FunctionResponse != nil:
				result := string(p.FunctionResponse.Response)
				t.result = &result
				t.story = append(t.story, line{result, true})
			case c.Role == "user":
				t.story = append(t.story, line{text: p.Text})
			}
		}
	}
	return t
}

func writeGemini(w http.ResponseWriter, t turn, r reply) {
	part := map[string]any{"text": r.text}
	if r.call.name != "" {
		args := r.arguments
		if args == nil {
			args = map[string]any{}
		}
		part = map[string]any{"functionCall": map[string]any{"name": r.call.name, "args": args}}
	}
	chunk := func(part map[string]any, reason any) map[string]any {
		return map[string]any{
			"candidates": []any{map[string]any{
				"index": 0, "finishReason": reason,
				"content": map[string]any{"role": "model", "parts": []any{part}},
			}},
			"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
		}
	}
	if !t.stream {
		answer(w, chunk(part, "STOP"))
		return
	}
	s := newStream(w)
	if pieces := r.pieces(); r.call.name == "" {
		for _, piece := range pieces[:len(pieces)-1] {
			s.send("", chunk(map[string]any{"text": piece}, nil))
		}
		part["text"] = pieces[len(pieces)-1]
	}
	s.send("", chunk(part, "STOP"))
}
