package fakemodel

import (
	"encoding/json"
	"net/http"
)

type geminiRequest struct {
	Contents []struct {
		Role  string `json:"role"`
		Parts []struct {
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
	if n := len(q.Contents); n > 0 {
		for _, p := range q.Contents[n-1].Parts {
			if p.FunctionResponse != nil {
				result := string(p.FunctionResponse.Response)
				t.result = &result
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
	whole := map[string]any{
		"candidates": []any{map[string]any{
			"index": 0, "finishReason": "STOP",
			"content": map[string]any{"role": "model", "parts": []any{part}},
		}},
		"usageMetadata": map[string]any{"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20},
	}
	if !t.stream {
		answer(w, whole)
		return
	}
	newStream(w).send("", whole)
}
