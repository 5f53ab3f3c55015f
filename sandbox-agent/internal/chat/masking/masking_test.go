package masking

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const secret = "hunter2-very-secret"

func set(t testing.TB, secrets ...string) *redact.Set {
	s, err := redact.Compile(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func delta(text string) protocol.ChatEvent {
	return protocol.ChatEvent{ID: "d", Kind: protocol.ChatStreamDelta, Content: &text}
}

// TestSplit: a secret is masked however it is split over deltas, and no other text
// is lost.
func TestSplit(t *testing.T) {
	s := set(t, secret)
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.StringMatching(`[a-z ]{0,20}`).Draw(t, "before")
		after := rapid.StringMatching(`[a-z ]{0,20}`).Draw(t, "after")
		whole := before + secret + after
		var m Masker
		m.Use(s)
		var shown strings.Builder
		show := func(events []protocol.ChatEvent) {
			for _, e := range events {
				if e.Kind == protocol.ChatStreamDelta {
					shown.WriteString(*e.Content)
				}
			}
		}
		first := max(rapid.IntRange(0, len(whole)).Draw(t, "first"), 0)
		// Fewer bytes of a secret than redact.HoldFrom are not held back.
		if into := first - len(before); into > 0 && into < redact.HoldFrom {
			first = len(before)
		}
		show(m.Event(delta(whole[:first])))
		show(m.Event(delta(whole[first:])))
		show(m.Event(protocol.ChatEvent{Kind: protocol.ChatStreamEnd}))
		if want := before + strings.Repeat("*", len(secret)) + after; shown.String() != want {
			t.Fatalf("%q, want %q", shown.String(), want)
		}
	})
}

// TestOrder: what was held back comes before the event that lets it out.
func TestOrder(t *testing.T) {
	var m Masker
	m.Use(set(t, secret))
	if got := m.Event(delta("ab hunter2")); len(got) != 1 || *got[0].Content != "ab " {
		t.Fatalf("%+v", got)
	}
	got := m.Event(protocol.ChatEvent{Kind: protocol.ChatToolUse})
	if len(got) != 2 || got[0].Kind != protocol.ChatStreamDelta || got[1].Kind != protocol.ChatToolUse {
		t.Fatalf("%+v", got)
	}
	if strings.Contains(*got[0].Content, "hunter2") {
		t.Errorf("the beginning of a secret at the end: %q", *got[0].Content)
	}
}

// TestEverywhere: no member of an event shows a secret.
func TestEverywhere(t *testing.T) {
	s := set(t, secret, "1234567890123")
	raw := json.RawMessage(`{"b":"x ` + secret + `","a":[1,true,null,{"n":1234567890123,"` + secret + `":2.5e3}],"q":"\"\\"}`)
	e := protocol.ChatEvent{
		Content: new(secret), ToolName: secret, Text: secret, ToolInput: raw, ToolUseResult: raw, SubagentTools: raw,
		ChatLocal:    protocol.ChatLocal{DisplayText: secret, CommandName: secret, CommandMessage: secret, CommandArgs: secret},
		ChatQuestion: protocol.ChatQuestion{Reason: secret, Input: raw},
		ToolResult:   &protocol.ChatToolOutput{Content: secret, ToolUseResult: raw},
		From:         &protocol.ChatFrom{UserID: "usr_1", GrantID: "gr_1", Name: secret}, Images: []protocol.ChatImage{{Name: secret, Data: "data:,"}},
	}
	masked := Mask(s, e)
	text, err := json.Marshal(masked)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), secret) || strings.Contains(string(text), "1234567890123") {
		t.Errorf("%s", text)
	}
	if want := `{"b":"x *******************","a":[1,true,null,{"n":"*************","*******************":2.5e3}],"q":"\"\\"}`; string(masked.Input) != want {
		t.Errorf("%s\nwant %s", masked.Input, want)
	}
	if masked.From.UserID != "usr_1" || masked.From.GrantID != "gr_1" {
		t.Errorf("nobody knows any more by whom: %+v", masked.From)
	}
	if *e.Content != secret || string(e.Input) != string(raw) || e.ToolResult.Content != secret {
		t.Error("the event itself was changed")
	}
}

// FuzzJSON: what was valid stays valid, and without secrets all stays.
func FuzzJSON(f *testing.F) {
	f.Add(`{"a":"hunter2-very-secret","b":[-1.5e9,"\u00e4\"",{}]}`)
	f.Add(`"\\"`)
	s, none := set(f, secret, "12345678"), set(f, "never-in-there")
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		masked := JSON(s, json.RawMessage(text))
		if !json.Valid(masked) || s.MatchesIn([]byte(masked)) && !s.MatchesIn([]byte(text)) || shows(masked, secret) {
			t.Errorf("%s became %s", text, masked)
		}
		if same := JSON(none, json.RawMessage(text)); string(same) != text && !none.MatchesIn([]byte(text)) {
			t.Errorf("%s became %s", text, same)
		}
	})
}

// shows reports whether a string of valid JSON has text in it.
func shows(raw []byte, text string) bool {
	in := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := in.Token()
		if err != nil {
			return false
		}
		if s, ok := token.(string); ok && strings.Contains(s, text) {
			return true
		}
	}
}

// FuzzStored: a line of a log stays an event of the same kind and number, and what
// was said in it is masked.
func FuzzStored(f *testing.F) {
	f.Add(`{"id":"i","kind":"text","seq":3,"content":"` + secret + `"}`)
	f.Add(`{"kind":"tool_use","seq":4,"toolInput":{"` + secret + `":["` + secret + `\u0041"]},"from":{"userId":"u","name":"` + secret + `"}}`)
	f.Add(`{"kind":"` + secret + `","content":1}`)
	s := set(f, secret)
	f.Fuzz(func(t *testing.T, text string) {
		if !json.Valid([]byte(text)) {
			return
		}
		masked := Stored(s, []byte(text))
		if !json.Valid(masked) {
			t.Fatalf("%s became %s", text, masked)
		}
		var was, is protocol.ChatEvent
		if json.Unmarshal([]byte(text), &was) != nil {
			if shows(masked, secret) {
				t.Errorf("%s became %s", text, masked)
			}
			return
		}
		if err := json.Unmarshal(masked, &is); err != nil || is.Kind != was.Kind || is.Seq != was.Seq || is.ID != was.ID {
			t.Fatalf("%s became %s: %v", text, masked, err)
		}
		if is.Content != nil && strings.Contains(*is.Content, secret) || shows(is.ToolInput, secret) || shows(is.Input, secret) ||
			strings.Contains(is.ToolName, secret) || is.From != nil && strings.Contains(is.From.Name, secret) {
			t.Errorf("%s became %s", text, masked)
		}
		if again := Stored(s, masked); !bytes.Equal(again, masked) {
			t.Errorf("%s became %s", masked, again)
		}
	})
}
