package fakemodel

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// conversations are what agents send: a request that offers the tool under a
// name of theirs, and one that ends with what came of the call.
var conversations = []struct{ api, path, offer, result, call, said string }{
	{
		api: "Messages", path: "/v1/messages",
		offer:  `{"stream": true, "messages": [{"role": "user", "content": "go"}], "tools": [{"name": "mcp__x__list"}]}`,
		result: `{"stream": true, "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "two"}]}]}]}`,
		call:   `"name":"mcp__x__list"`, said: `"text":"it is two"`,
	},
	{
		api: "Responses", path: "/v1/responses",
		offer:  `{"stream": true, "input": [{"type": "message"}], "tools": [{"type": "namespace", "name": "x", "tools": [{"name": "list"}]}]}`,
		result: `{"stream": true, "input": [{"type": "function_call_output", "call_id": "call_1", "output": "two"}]}`,
		call:   `"namespace":"x"`, said: `"text":"it is two"`,
	},
	{
		api: "Chat", path: "/v1/chat/completions",
		offer:  `{"stream": true, "messages": [{"role": "user", "content": "go"}], "tools": [{"function": {"name": "x_list"}}]}`,
		result: `{"stream": true, "messages": [{"role": "tool", "tool_call_id": "call_1", "content": "two"}]}`,
		call:   `"name":"x_list"`, said: `"content":"it is two"`,
	},
	{
		api: "Gemini", path: "/v1beta/models/m:streamGenerateContent",
		offer:  `{"contents": [{"role": "user", "parts": [{"text": "go"}]}], "tools": [{"functionDeclarations": [{"name": "mcp_x_list"}]}]}`,
		result: `{"contents": [{"role": "user", "parts": [{"functionResponse": {"response": "two"}}]}]}`,
		call:   `"functionCall":{"args":{},"name":"mcp_x_list"}`, said: `it is \"two\"`,
	},
}

func ask(t *testing.T, s *Server, path, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	text, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %v: %s", w.Code, err, text)
	}
	return string(text)
}

func TestConversations(t *testing.T) {
	for _, c := range conversations {
		s := New(Script{Tool: "list", Answer: "it is"})
		if got := ask(t, s, c.path, c.offer); !strings.Contains(got, c.call) || !strings.Contains(got, "data: ") {
			t.Errorf("%s: no call in %s", c.api, got)
		}
		if got := ask(t, s, c.path, c.result); !strings.Contains(got, c.said) {
			t.Errorf("%s: not said in %s", c.api, got)
		}
		if got := ask(t, s, strings.Replace(c.path, ":stream", ":", 1), strings.Replace(c.offer, `"stream": true, `, "", 1)); strings.Contains(got, "data: ") && c.api != "Gemini" {
			t.Errorf("%s: streamed unasked: %s", c.api, got)
		}
		if len(s.Offered()) != 1 || len(s.Results()) != 1 || !strings.Contains(s.Results()[0], "two") {
			t.Errorf("%s: offered %v, results %v", c.api, s.Offered(), s.Results())
		}
	}
}

// TestSearch: a tool that isn't described is searched for, but not for ever.
func TestSearch(t *testing.T) {
	s := New(Script{Tool: "list", Answer: "it is"})
	const hidden = `{"messages": [{"role": "user", "content": "go"}], "tools": [{"name": "ToolSearch"}]}`
	if got := ask(t, s, "/v1/messages", hidden); !strings.Contains(got, `"name":"ToolSearch"`) || !strings.Contains(got, `"query":"list"`) {
		t.Error(got)
	}
	const found = `{"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "search_1", "content": "loaded"}]}], "tools": [{"name": "ToolSearch"}, {"name": "x___list"}]}`
	if got := ask(t, s, "/v1/messages", found); !strings.Contains(got, `"name":"x___list"`) {
		t.Error(got)
	}
	for range maxSearches {
		ask(t, s, "/v1/messages", hidden)
	}
	if got := ask(t, s, "/v1/messages", hidden); !strings.Contains(got, "nothing to do") {
		t.Error(got)
	}
}

// TestObeys: of a conversation in each API the last thing that a person asks for is
// done, once, whatever else is said in between.
func TestObeys(t *testing.T) {
	s := New(Script{Obeys: true})
	for _, c := range []struct{ path, stream, offer, story, person, result string }{
		{
			"/v1/messages", `"stream":true,`, `"tools":[{"name":"list"}]`, "messages",
			`{"role":"user","content":[{"type":"text","text":%q},{"type":"text","text":"a reminder"}]}`,
			`{"role":"user","content":[{"type":"tool_result","content":"two"},{"type":"text","text":"a reminder"}]}`,
		},
		{
			"/v1/responses", `"stream":true,`, `"tools":[{"name":"list"}]`, "input",
			`{"type":"message","role":"user","content":[{"text":%q}]},{"role":"user","content":"a reminder"}`,
			`{"type":"function_call_output","output":"two"},{"role":"user","content":"a reminder"}`,
		},
		{
			"/v1/chat/completions", `"stream":true,`, `"tools":[{"function":{"name":"list"}}]`, "messages",
			`{"role":"user","content":%q},{"role":"user","content":"a reminder"}`,
			`{"role":"tool","content":"two"},{"role":"user","content":"a reminder"}`,
		},
		{
			"/v1/models/m:streamGenerateContent", "", `"tools":[{"functionDeclarations":[{"name":"list"}]}]`, "contents",
			`{"role":"user","parts":[{"text":%q},{"text":"a reminder"}]}`,
			`{"role":"user","parts":[{"functionResponse":{"response":"two"}},{"text":"a reminder"}]}`,
		},
	} {
		say := func(story ...string) string {
			body := fmt.Sprintf(`{%s%s,%q:[%s]}`, c.stream, c.offer, c.story, strings.Join(story, ","))
			return ask(t, s, c.path, body)
		}
		plum := fmt.Sprintf(c.person, "please-say plum\nfig")
		if got := say(plum); !strings.Contains(got, `plum\n"`) || !strings.Contains(got, `"fig"`) {
			t.Errorf("%s: not said in pieces: %s", c.path, got)
		}
		call := fmt.Sprintf(c.person, `please-call list {"a":"b"}`)
		if got := say(plum, call); !strings.Contains(got, `"list"`) || !strings.Contains(strings.ReplaceAll(got, `\`, ""), `{"a":"b"}`) {
			t.Errorf("%s: no call: %s", c.path, got)
		}
		if got := say(plum, call, c.result); !strings.Contains(got, "two") || strings.Contains(got, `"list"`) {
			t.Errorf("%s: not what came of it: %s", c.path, got)
		}
		if got := say(plum, call, c.result, fmt.Sprintf(c.person, "please-recall")); !strings.Contains(got, `plum\n"`) {
			t.Errorf("%s: not remembered: %s", c.path, got)
		}
	}
}

func TestOtherRequests(t *testing.T) {
	s := New(Script{Tool: "list"})
	for _, path := range []string{"/v1/messages/count_tokens", "/v1beta/models/m:countTokens"} {
		if got := ask(t, s, path, "{}"); !strings.Contains(got, "100") {
			t.Error(got)
		}
	}
	for _, r := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodGet, "/v1/models", "", http.StatusOK},
		{http.MethodPost, "/v1/messages", "[]", http.StatusBadRequest},
		{http.MethodPost, "/elsewhere", "{}", http.StatusNotFound},
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(r.method, r.path, strings.NewReader(r.body)))
		if w.Code != r.status {
			t.Errorf("%s: %d", r.path, w.Code)
		}
	}
	if !slices.Contains(s.Requests(), "POST /elsewhere") {
		t.Error(s.Requests())
	}
}
