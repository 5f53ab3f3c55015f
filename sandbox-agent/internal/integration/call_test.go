package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// run calls the tool of that name, which caller must have.
func run(t *testing.T, s *Set, caller toolbox.Caller, name, args string) protocol.ToolResult {
	t.Helper()
	tools := s.Tools(caller)
	i := slices.IndexFunc(tools, func(tool toolbox.Tool) bool { return tool.Name == name })
	if i < 0 {
		t.Fatalf("no tool %s", name)
	}
	result, err := tools[i].Call(t.Context(), caller, json.RawMessage(args))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func texts(r protocol.ToolResult) string {
	var list []string
	for _, c := range r.Content {
		list = append(list, c.Type+":"+c.Text)
	}
	return fmt.Sprint(strings.Join(list, "|"), " ", r.IsError)
}

func TestCall(t *testing.T) {
	s, g, _ := newSet(t)
	s.Track("ses_1", "pty_1")
	g.attached["pty_1"] = []string{"gmail", "google_drive", "google_calendar"}
	if err := s.Refresh(t.Context(), "ses_1", "pty_1"); err != nil {
		t.Fatal(err)
	}
	var status int
	var answer string
	g.execute = func(context.Context) ([]byte, int, error) { return []byte(answer), status, nil }
	for _, test := range []struct {
		status       int
		answer, want string
	}{
		{200, `{"allowed":true,"decision":"allowed","filteredResponse":{"a":[1]},"policyId":"p"}`, `text:{"a":[1]} false`},
		{200, `{"allowed":true,"decision":"allowed","filteredResponse":{"a":"\u003cb\u003e \u0026 \\u003c \u00e4"}}`, `text:{"a":"<b> & \\u003c \u00e4"} false`},
		{200, `{"allowed":true,"decision":"allowed"}`, `text:{} false`},
		{200, `{"allowed":true,"decision":"filtered","filteredResponse":{},"reason":"2 withheld"}`,
			`text:{}|text:the policy of this integration withholds part of the answer: 2 withheld false`},
		{200, `{"allowed":false,"decision":"denied","reason":"read only","filteredResponse":{"a":1}}`, `text:the policy of this integration denies it: read only true`},
		{200, `{"allowed":true,"decision":"denied","filteredResponse":{"a":1}}`, `text:the policy of this integration denies it: it gives no reason true`},
		{200, `{"allowed":true,"decision":"perhaps","filteredResponse":{"a":1}}`, `text:the gateway's answer is not what it should be true`},
		{200, `<html>`, `text:the gateway's answer is not what it should be true`},
		{200, `{"allowed":true,"decision":"allowed","filteredResponse":"` + strings.Repeat("x", maxAnswer) + `"}`, `text:the gateway's answer is not what it should be true`},
		{403, `{"error":{"message":"gmail is not attached","name":"AuthError","code":"NOT_ATTACHED"},"revision":"r"}`, `text:gmail is not attached true`},
		{400, `{"error":"seed form"}`, `text:bad request true`},
		{502, "{\"error\":{\"message\":\"a\\nb\u202ec\"}}", `text:a bc true`},
		{504, `garbage`, `text:gateway timeout true`},
		{799, `[]`, `text:the gateway refused true`},
	} {
		status, answer = test.status, test.answer
		if got := texts(run(t, s, program, "gmail_search", `{"query":"x"}`)); got != test.want {
			t.Errorf("%d %.80s: %.200s, want %s", test.status, test.answer, got, test.want)
		}
	}

	g.requests, g.targets = nil, nil
	status, answer = 200, `{"allowed":true,"decision":"allowed"}`
	run(t, s, program, "drive_list", `{"query":"x"}`)
	run(t, s, person(protocol.CapControl), "calendar_get_event", `{"event_id":"e"}`)
	run(t, s, toolbox.Caller{Session: "ses_1"}, "task_list", `{}`)
	run(t, s, program, "create_note", `{"text":"t"}`)
	got := fmt.Sprintf("%s %s", g.targets, encode(t, g.requests))
	want := `[/internal/gateway/google_drive/execute /internal/gateway/google_calendar/execute /internal/gateway/tasks/execute /internal/gateway/dashboard/execute] ` +
		`[{"session_id":"ses_1","pty_id":"pty_1","action":"google_drive.list","args":{"query":"x"}},` +
		`{"session_id":"ses_1","pty_id":"pty_1","user_id":"usr_alice","action":"google_calendar.get_event","args":{"event_id":"e"}},` +
		`{"session_id":"ses_1","action":"tasks.list","args":{}},` +
		`{"session_id":"ses_1","pty_id":"pty_1","action":"dashboard.create_note","args":{"text":"t"}}]`
	if got != want {
		t.Errorf("asked %s\nwant  %s", got, want)
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestHang: a gateway that hangs is given up after CallTimeout, and no error of
// the connection is shown.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, _ := newSet(t)
		g.execute = func(ctx context.Context) ([]byte, int, error) { <-ctx.Done(); return nil, 0, ctx.Err() }
		began := time.Now()
		if got := texts(run(t, s, program, "list_items", `{}`)); !strings.Contains(got, "did not answer in time") || time.Since(began) != CallTimeout {
			t.Errorf("%s after %s", got, time.Since(began))
		}
		g.execute = func(context.Context) ([]byte, int, error) { return nil, 0, errors.New("dial https://token@10.0.0.1") }
		if got := texts(run(t, s, program, "list_items", `{}`)); got != "text:the control plane can't be reached true" {
			t.Error(got)
		}
	})
}

// TestNotAttached: who is told that something isn't attached has an old list.
func TestNotAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g, c := newSet(t)
		g.attached["pty_1"] = []string{"gmail"}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Run(ctx) }()
		s.Track("ses_1", "pty_1")
		synctest.Wait()
		c.take()
		g.set(func() { g.attached["pty_1"] = nil })
		g.execute = func(context.Context) ([]byte, int, error) {
			return []byte(`{"error":{"message":"gmail is not attached","code":"NOT_ATTACHED"}}`), http.StatusForbidden, nil
		}
		run(t, s, program, "gmail_search", `{}`)
		synctest.Wait()
		if len(c.take()) != 1 || len(s.Tools(program)) != 22 {
			t.Errorf("%d tools", len(s.Tools(program)))
		}
		cancel()
		<-done
	})
}

// FuzzReadable: what is readable says the same.
func FuzzReadable(f *testing.F) {
	f.Add([]byte(`{"a":"\u003cb\u003e \u0026 \\u003c \u00e4 \""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var was, is any
		got := readable(text)
		if json.Unmarshal(text, &was) != nil {
			return
		}
		if err := json.Unmarshal(got, &is); err != nil || !reflect.DeepEqual(was, is) {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	})
}

// FuzzRefusal: whatever the gateway answers, what is shown is one short line.
func FuzzRefusal(f *testing.F) {
	f.Add(403, []byte(`{"error":{"message":"m","name":"n","code":"NOT_ATTACHED"}}`))
	f.Add(400, []byte(`{"error":"text"}`))
	f.Add(200, []byte(`{"error":{"message":1}}`))
	f.Fuzz(func(t *testing.T, status int, data []byte) {
		r := refusal(status, data)
		if r.Message == "" || len(r.Message) > maxReason+len("…") || strings.ContainsAny(r.Message, "\n\r\x00\x1b") {
			t.Errorf("%q", r.Message)
		}
	})
}
