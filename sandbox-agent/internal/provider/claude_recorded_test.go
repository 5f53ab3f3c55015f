package provider

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// claudeRecordings are what was recorded with the real Claude Code.
const claudeRecordings = "testdata/claude"

// A recording is what a host and Claude Code have said to each other.
type recording struct {
	t       *testing.T
	talk    Talk
	native  string
	mode    string
	written []json.RawMessage // by the talk, and not yet compared with the host's
	turns   [][]Effect
	bare    []Effect // outside of turns
	open    bool     // a turn is
}

// take keeps effects.
func (r *recording) take(effects []Effect) {
	for _, e := range effects {
		if w, ok := e.(Write); ok {
			r.written = append(r.written, w.Bytes)
			continue
		}
		if n, ok := e.(Native); ok {
			r.native = n.ID
		}
		if !r.open {
			r.bare = append(r.bare, e)
			continue
		}
		r.turns[len(r.turns)-1] = append(r.turns[len(r.turns)-1], e)
		if _, done := e.(Done); done {
			r.open = false
		}
	}
}

// host has the talk do what the host has done, and wants the same line.
func (r *recording) host(line json.RawMessage) {
	var in struct {
		Type, UUID string
		Message    struct{ Content string }
		Request    struct{ Subtype string }
		Response   struct {
			RequestID string `json:"request_id"`
			Response  struct {
				Behavior, Message string
				UpdatedInput      json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(line, &in); err != nil {
		r.t.Fatal(err)
	}
	switch {
	case in.Type == "user":
		r.turns, r.open = append(r.turns, nil), true
		r.take(r.talk.Send(Turn{ID: in.UUID, Content: in.Message.Content}))
	case in.Type == "control_response":
		said := in.Response.Response
		r.take(r.talk.Answer(in.Response.RequestID, Answer{
			Allow: said.Behavior == "allow", UpdatedInput: said.UpdatedInput, Message: said.Message,
		}))
	case in.Request.Subtype == "initialize":
		r.talk = claude{}.Talk(Start{Native: r.native, Mode: r.mode})
		r.take(r.talk.Begin())
	case in.Request.Subtype == "interrupt":
		r.take(r.talk.Abort())
	}
	if len(r.written) != 1 || !reflect.DeepEqual(withoutID(r.t, r.written[0]), withoutID(r.t, line)) {
		r.t.Errorf("the host wrote\n%s\nthe talk\n%s", line, r.written)
	}
	r.written = nil
}

// withoutID decodes a line and takes out what names a request of the host.
func withoutID(t *testing.T, line []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(line, &v); err != nil {
		t.Fatal(err)
	}
	if v["type"] == "control_request" {
		delete(v, "request_id")
	}
	return v
}

// replay has a talk do what was recorded.
func replay(t *testing.T, path, mode string) *recording {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{t: t, mode: mode}
	for line := range strings.Lines(string(b)) {
		var said struct{ To, From json.RawMessage }
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			t.Fatal(err)
		}
		if said.To != nil {
			r.host(said.To)
		} else {
			r.take(r.talk.Line(said.From))
		}
	}
	return r
}

// TestClaudeRecorded replays what was recorded with the real Claude Code: the
// talk writes what the host has written there, each turn has one end, and the ids
// of its events are those of the transcript of the same run.
func TestClaudeRecorded(t *testing.T) {
	for name, want := range map[string][]string{ // kinds of each turn, and its end
		"tools": {
			"stream_delta stream_end text stream_delta stream_end text status 0",
			"thinking stream_delta stream_end text tool_use tool_use ask Bash tool_result tool_result stream_delta stream_end text status 0",
			"stream_delta stream_end text tool_use ask Write tool_result stream_delta stream_end text status 0",
			"stream_delta stream_end text tool_use ask Write tool_result stream_delta stream_end text status 0",
		},
		"questions": {
			"tool_use ask AskUserQuestion forever tool_result stream_delta stream_end text status 0",
			"tool_use tool_use of-subagent tool_result of-subagent tool_result stream_delta stream_end text status 0",
			"text status 0", "text status 0", "status text text status 0",
		},
		"abort": {
			"stream_delta stream_end text tool_use status 0",
			"stream_delta stream_end text status 0",
			"stream_delta stream_end text tool_use ask Write withdraw status 0",
			"stream_delta stream_end text stream_delta stream_end text status 0",
		},
		"plan": {
			"tool_use ask ExitPlanMode forever tool_result stream_delta stream_end text status 0",
			"stream_delta stream_end text stream_delta stream_end text status 0",
		},
		"resume": {
			"stream_delta stream_end text stream_delta stream_end text status 0",
			"stream_delta stream_end text stream_delta stream_end text status 0",
			"text status error 1",
		},
		"retry": {
			"stream_delta stream_end text status 0",
			"status status stream_delta stream_end text status 0",
		},
		"background": {
			"stream_delta stream_end text tool_use tool_result stream_delta stream_end text status 0",
			"stream_delta stream_end text stream_delta stream_end text status 0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mode := ""
			if name == "plan" {
				mode = modePlan
			}
			r := replay(t, filepath.Join(claudeRecordings, name+".jsonl"), mode)
			if len(r.turns) != len(want) {
				t.Fatalf("%d turns, want %d", len(r.turns), len(want))
			}
			var all []Effect
			for i, turn := range r.turns {
				lastDone(t, turn)
				if got := brief(turn); got != want[i] {
					t.Errorf("turn %d:\n%s, want\n%s", i, got, want[i])
				}
				all = append(all, turn...)
			}
			for _, e := range r.bare {
				if _, native := e.(Native); !native {
					t.Errorf("outside of a turn: %#v", e)
				}
			}
			// What claude's own commands print is no message, and what it does
			// without being asked comes in no run.
			ids := transcriptIDs(t, filepath.Join(claudeRecordings, name+".transcript.jsonl"))
			switch name {
			case "questions":
				all = slices.Concat(r.turns[:2]...)
			case "background":
				ids = ids[:len(ids)-2]
			}
			sameIDs(t, ids, all)
		})
	}
}

// brief tells a turn's effects in words.
func brief(effects []Effect) string {
	var words []string
	for _, e := range effects {
		word := ""
		switch e := e.(type) {
		case Emit:
			word = string(e.Event.Kind)
			if e.Event.ParentToolUseID != "" {
				word += " of-subagent"
			}
			if n := len(words); e.Event.Kind == protocol.ChatStreamDelta && n > 0 && words[n-1] == word {
				continue
			}
		case Ask:
			word = "ask " + e.Tool
			if e.Forever {
				word += " forever"
			}
		case Withdraw:
			word = "withdraw"
		case Done:
			word = string(rune('0' + e.ExitCode))
		default:
			continue
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
