package provider

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// turnID is the id of the nth message of a test.
func turnID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// say is a message.
func say(n int, script string) Turn { return Turn{ID: turnID(n), Content: script} }

// TestClaudeTurn sends two messages to one process: deltas, their end, the whole
// text, a tool, and the use of the context.
func TestClaudeTurn(t *testing.T) {
	m := newMachine(t)
	r := m.start(t, claude{}, Start{})
	all := r.turn(say(1, "think:let me see\nsay:one two\ntool:Bash {\"command\":\"echo $((6*7))\"}"), r.always(Answer{Allow: true}))
	want := []protocol.ChatKind{
		protocol.ChatThinking, protocol.ChatStreamDelta, protocol.ChatStreamEnd, protocol.ChatText,
		protocol.ChatToolUse, protocol.ChatToolResult, protocol.ChatStatus,
	}
	got := events(all)
	if !slices.Equal(kinds(got), want) {
		t.Fatalf("kinds %v, want %v", kinds(got), want)
	}
	if done := lastDone(t, all); done.ExitCode != 0 || done.Last {
		t.Errorf("done: %+v", done)
	}
	at := slices.IndexFunc(got, func(e protocol.ChatEvent) bool { return e.Kind == protocol.ChatText })
	if text(got[at]) != "one two" || got[at].Role != "assistant" || got[at].ID == "" {
		t.Errorf("the text is %+v", got[at])
	}
	result := got[len(got)-2]
	if text(result) != "42\n" || *result.IsError || result.ToolID == "" || result.ToolID != got[len(got)-3].ToolID {
		t.Errorf("the result is %+v", result)
	}
	if b := got[len(got)-1].TokenBudget; b == nil || b.Used == 0 || b.Total != 200_000 {
		t.Errorf("the budget is %+v", b)
	}
	if r.native == "" || !r.talk.Fits(Start{Dir: m.dir, Native: r.native}) {
		t.Errorf("session %q doesn't fit", r.native)
	}
	if got := events(r.turn(say(2, "recall"), nil)); !strings.Contains(text(got[len(got)-2]), "one two") {
		t.Errorf("it doesn't remember: %+v", got)
	}
}

// TestClaudeResume ends a process and asks another one what was said before. The
// ids of events are those of the transcript.
func TestClaudeResume(t *testing.T) {
	m := newMachine(t)
	r := m.start(t, claude{}, Start{})
	all := r.turn(say(1, "say:the word is heron\ntool:Bash {\"command\":\"true\"}"), r.always(Answer{Allow: true}))
	first := r.native
	again := m.start(t, claude{}, Start{Native: first})
	all = append(all, again.turn(say(2, "recall"), nil)...)
	if again.native != first {
		t.Errorf("session %s was resumed as %s", first, again.native)
	}
	if got := events(all); !strings.Contains(text(got[len(got)-2]), "heron") {
		t.Errorf("it doesn't remember: %+v", got[len(got)-2])
	}
	sameIDs(t, transcriptIDs(t, m.transcript(t)), all)
}

// transcript is the path of the only transcript.
func (m machine) transcript(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(m.home, ".claude/projects/*/*.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("transcripts: %v, %v", paths, err)
	}
	return paths[0]
}

// transcriptIDs returns the ids that history gives the parts of a transcript, but
// for what persons have said, and what an interruption leaves.
func transcriptIDs(t *testing.T, path string) (ids []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var row struct {
			Type, UUID string
			Message    message
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		_, parts := row.Message.parts()
		for i, p := range parts {
			switch {
			case row.Type == "assistant":
				ids = append(ids, PartID(row.UUID, i))
			case p.Type == "tool_result" && !Interruption(ToolOutput(p.Content)):
				ids = append(ids, ToolResultID(row.UUID, p.ToolUseID))
			}
		}
	}
	return ids
}

// sameIDs wants the events that history has to have these ids, in this order.
func sameIDs(t *testing.T, want []string, effects []Effect) {
	t.Helper()
	var got []string
	for _, e := range events(effects) {
		switch e.Kind {
		case protocol.ChatText, protocol.ChatThinking, protocol.ChatToolUse, protocol.ChatToolResult:
			if e.ParentToolUseID == "" {
				got = append(got, e.ID)
			}
		}
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("live events have the ids\n%q, history has\n%q", got, want)
	}
}

// TestClaudeAsks answers questions: allowed, with another input, denied, taken
// back, and one that waits without limit.
func TestClaudeAsks(t *testing.T) {
	m := newMachine(t)
	r := m.start(t, claude{}, Start{})
	for i, c := range []struct {
		script string
		answer Answer
		want   string // in the tool's result
		failed bool
	}{
		{`ask:Bash {"command":"echo first"}`, Answer{Allow: true}, "first\n", false},
		{`ask:Bash {"command":"echo first"}`, Answer{Allow: true, UpdatedInput: json.RawMessage(`{"command":"echo other"}`)}, "other\n", false},
		{`ask:Bash {"command":"echo first"}`, Answer{Message: "not today"}, "not today", true},
		{`ask:Bash {"command":"echo first"}`, Answer{}, "The user denied this", true},
		{"question", Answer{Allow: true, UpdatedInput: json.RawMessage(`{"answers":{"Which one?":"B"}}`)}, `{"Which one?":"B"}`, false},
		{"plan:do it", Answer{Allow: true}, "approved", false},
	} {
		asked := 0
		all := r.turn(say(i, c.script), func(e Effect) []Effect {
			ask, ok := e.(Ask)
			if !ok {
				return nil
			}
			asked++
			if forever := strings.HasPrefix(c.script, "question") || strings.HasPrefix(c.script, "plan"); ask.Forever != forever {
				t.Errorf("%s waits forever: %v", c.script, ask.Forever)
			}
			if !strings.Contains(string(ask.Context), `"toolUseId":"toolu_`) || len(ask.Input) == 0 || ask.Tool == "" {
				t.Errorf("%s asks %+v", c.script, ask)
			}
			return r.talk.Answer(ask.Question, c.answer)
		})
		at := slices.IndexFunc(events(all), func(e protocol.ChatEvent) bool { return e.Kind == protocol.ChatToolResult })
		if asked != 1 || at < 0 {
			t.Fatalf("%s: asked %d times, %+v", c.script, asked, events(all))
		}
		if e := events(all)[at]; !strings.Contains(text(e), c.want) || *e.IsError != c.failed {
			t.Errorf("%s came to %q, failed %v", c.script, text(e), *e.IsError)
		}
		if done := lastDone(t, all); done.ExitCode != 0 {
			t.Errorf("%s: done with %d", c.script, done.ExitCode)
		}
	}
	var asked, taken string
	r.turn(say(20, "withdraw:1ms"), func(e Effect) []Effect {
		switch e := e.(type) {
		case Ask:
			asked = e.Question
		case Withdraw:
			taken = e.Question
			if r.talk.Answer(taken, Answer{Allow: true}) != nil {
				t.Error("a question that was taken back is answered")
			}
		}
		return nil
	})
	if asked == "" || asked != taken {
		t.Errorf("asked %q, took back %q", asked, taken)
	}
}

// TestClaudeAbort aborts a text, a tool, a question, and a message that was just
// sent. The process goes on.
func TestClaudeAbort(t *testing.T) {
	m := newMachine(t)
	r := m.start(t, claude{}, Start{})
	var whole []Effect
	for i, c := range []struct {
		script string
		when   func(Effect) bool
	}{
		{"deltas:100000@100", func(e Effect) bool { emit, ok := e.(Emit); return ok && emit.Event.Kind == protocol.ChatStreamDelta }},
		{"say:now\ntool:Read {\"file_path\":\"none\"}\nsleep:1h", func(e Effect) bool {
			emit, ok := e.(Emit)
			return ok && emit.Event.Kind == protocol.ChatToolResult
		}},
		{`tool:Bash {"command":"sleep 3600"}`, func(e Effect) bool { _, ok := e.(Ask); return ok }},
		{"sleep:1h", func(e Effect) bool { _, ok := e.(Write); return ok }},
	} {
		aborted := false
		all := r.turn(say(i, c.script), func(e Effect) []Effect {
			if aborted || !c.when(e) {
				return nil
			}
			aborted = true
			return r.talk.Abort()
		})
		whole = append(whole, all...)
		if done := lastDone(t, all); !aborted || done.ExitCode != 0 || done.Last {
			t.Errorf("%s: done with %+v", c.script, done)
		}
		for _, e := range events(all) {
			if e.Kind == protocol.ChatError || Interruption(text(e)) {
				t.Errorf("%s: %+v", c.script, e)
			}
		}
		asked, taken := 0, 0
		for _, e := range all {
			switch e.(type) {
			case Ask:
				asked++
			case Withdraw:
				taken++
			}
		}
		if asked != taken {
			t.Errorf("%s: %d questions, %d taken back", c.script, asked, taken)
		}
	}
	all := r.turn(say(9, "say:I am back"), nil)
	if got := events(all); text(got[len(got)-2]) != "I am back" {
		t.Errorf("after aborts: %+v", got)
	}
	sameIDs(t, transcriptIDs(t, m.transcript(t)), append(whole, all...))
}

// TestClaudeAbortsTool aborts a command that runs.
func TestClaudeAbortsTool(t *testing.T) {
	m := newMachine(t)
	r := m.start(t, claude{}, Start{})
	path := filepath.Join(m.dir, "began")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	began, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer began.Close()
	_ = began.SetReadDeadline(time.Now().Add(patience)) // a FIFO has deadlines
	all := r.turn(say(1, `tool:Bash {"command":"echo >began; exec sleep 3600"}`), func(e Effect) []Effect {
		ask, ok := e.(Ask)
		if !ok {
			return nil
		}
		r.apply(r.talk.Answer(ask.Question, Answer{Allow: true}), nil)
		if _, err := began.Read(make([]byte, 1)); err != nil {
			t.Fatalf("the command: %v", err)
		}
		return r.talk.Abort()
	})
	if done := lastDone(t, all); done.ExitCode != 0 || done.Last {
		t.Errorf("done: %+v", done)
	}
	if got := kinds(events(all)); slices.Contains(got, protocol.ChatToolResult) || slices.Contains(got, protocol.ChatError) {
		t.Errorf("kinds %v", got)
	}
}

// TestClaudeMisbehaves has the program do what none should: each turn has one
// end, and says why it failed.
func TestClaudeMisbehaves(t *testing.T) {
	for _, c := range []struct {
		script string
		status int
		last   bool
		says   string // in the error
	}{
		{"fail:the model says no", 1, false, "the model says no"},
		{"crash", -1, true, "Claude Code has ended with status -1"},
		{"exit:3", 3, true, "status 3"},
		{"exit:0", 1, true, "status 0"},
		{"stderr:\x1b[31mno login\x1b[0m\nexit:4", 4, true, "status 4: no login"},
		{"garbage\nexit:5", 5, true, "status 5: "},
		{"garbage\nhalfutf8\nhuge\nsay:still here", 0, false, ""},
		{"ignore-int\nsay:still here", 0, false, ""},
	} {
		t.Run(strings.ReplaceAll(c.script, "\n", " "), func(t *testing.T) {
			t.Parallel()
			r := newMachine(t).start(t, claude{}, Start{})
			all := r.turn(say(1, c.script), nil)
			if done := lastDone(t, all); done.ExitCode != c.status || done.Last != c.last {
				t.Errorf("done: %+v", done)
			}
			got := events(all)
			at := slices.IndexFunc(got, func(e protocol.ChatEvent) bool { return e.Kind == protocol.ChatError })
			if (at >= 0) != (c.says != "") {
				t.Fatalf("events %+v", got)
			}
			if at >= 0 && (at != len(got)-1 || !strings.Contains(text(got[at]), c.says)) {
				t.Errorf("it says %q, and then %d events", text(got[at]), len(got)-1-at)
			}
			if c.says == "" && text(got[len(got)-2]) != "still here" {
				t.Errorf("events %+v", got)
			}
		})
	}
}
