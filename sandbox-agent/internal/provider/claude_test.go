package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

func TestClaudeCommand(t *testing.T) {
	c := claude{}.Command(Start{
		Native: "11111111-2222-4333-8444-555555555555", Model: "opus[1m]", Mode: modePlan, Dir: "/workspace",
		AllowedTools: []string{"Read", "Bash(git log:*)"}, DisallowedTools: []string{"WebFetch"},
	})
	want := "-p --input-format stream-json --output-format stream-json --verbose --include-partial-messages" +
		" --replay-user-messages --permission-prompt-tool stdio --resume 11111111-2222-4333-8444-555555555555" +
		" --model opus[1m] --permission-mode plan --allowedTools Read,Bash(git log:*) --disallowedTools WebFetch" +
		" --setting-sources user,project,local"
	if got := strings.Join(c.Args, " "); c.Program != "claude" || got != want || c.Install == "" {
		t.Errorf("%s %s", c.Program, got)
	}
	for mode, want := range map[string]string{"": "default", "plan": "plan", "acceptEdits": "bypassPermissions"} {
		args := claude{}.Command(Start{Mode: mode, SkipPermissions: mode != ""}).Args
		if at := slices.Index(args, "--permission-mode"); args[at+1] != want {
			t.Errorf("mode %q, without questions: %s", mode, args[at+1])
		}
	}
}

func TestClaudeCheck(t *testing.T) {
	good := Turn{Content: "hello"}
	for _, c := range []struct {
		start Start
		turn  Turn
		want  bool
	}{
		{Start{}, good, true},
		{Start{Mode: "auto", Model: "claude-opus-4-8[1m]", AllowedTools: []string{"Read", "Bash(git log --format='%h, %s':*)", "mcp__x__y"}}, good, true},
		{Start{}, Turn{Images: []Image{{Path: "/a.png"}}}, true},
		{Start{}, Turn{Content: " \n"}, false},
		{Start{Mode: "yolo"}, good, false},
		{Start{Mode: "yolo", SkipPermissions: true}, good, true}, // it is in no mode but that
		{Start{Model: "--dangerously-skip-permissions"}, good, false},
		{Start{Model: "a b"}, good, false},
		{Start{Native: "-p"}, good, false},
		{Start{Native: "../x"}, good, false},
		{Start{AllowedTools: []string{"--model"}}, good, false},
		{Start{AllowedTools: []string{""}}, good, false},
		{Start{AllowedTools: []string{"Read,Bash"}}, good, false},
		{Start{AllowedTools: []string{"Read Bash"}}, good, false},
		{Start{AllowedTools: []string{"Bash(a"}}, good, false},
		{Start{DisallowedTools: []string{"Bash)("}}, good, false},
		{Start{DisallowedTools: []string{"Bash(a\n)"}}, good, false},
	} {
		if err := (claude{}).Check(c.start, c.turn); (err == nil) != c.want {
			t.Errorf("%+v, %+v: %v", c.start, c.turn, err)
		} else if err != nil && protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%+v: %v", c.start, err)
		}
	}
}

// initLine is how claude begins a turn.
func initLine(session, mode string) string {
	return fmt.Sprintf(`{"type":"system","subtype":"init","session_id":%q,"permissionMode":%q}`, session, mode)
}

const doneLine = `{"type":"result","subtype":"success","is_error":false,"result":"x"}`

func TestClaudeFits(t *testing.T) {
	s := Start{Dir: "/w", Model: "m", AllowedTools: []string{"Read"}}
	c := check(t, claude{}, s)
	c.begin()
	c.send(say(1, "x"))
	c.line(initLine("s1", "default"))
	c.line(doneLine)
	s.Native = "s1"
	if !c.talk.Fits(s) {
		t.Error("the same doesn't fit")
	}
	for name, change := range map[string]func(*Start){
		"session":    func(s *Start) { s.Native = "s2" },
		"no session": func(s *Start) { s.Native = "" },
		"folder":     func(s *Start) { s.Dir = "/v" },
		"model":      func(s *Start) { s.Model = "n" },
		"mode":       func(s *Start) { s.Mode = "plan" },
		"skip":       func(s *Start) { s.SkipPermissions = true },
		"allowed":    func(s *Start) { s.AllowedTools = nil },
		"disallowed": func(s *Start) { s.DisallowedTools = []string{"Bash"} },
	} {
		other := s
		change(&other)
		if c.talk.Fits(other) {
			t.Errorf("another %s fits", name)
		}
	}
	c.line(`{"type":"system","subtype":"status","permissionMode":"acceptEdits"}`)
	if c.talk.Fits(s) {
		t.Error("it has left its mode, and fits")
	}
	s.Mode = "acceptEdits"
	if !c.talk.Fits(s) {
		t.Error("the mode that it is in doesn't fit")
	}
	c.end(0, "")
	if c.talk.Fits(s) {
		t.Error("a process that has ended fits")
	}
}

// TestClaudeOtherMode: a mode that claude doesn't take is an error, not another
// mode.
func TestClaudeOtherMode(t *testing.T) {
	c := check(t, claude{}, Start{Mode: "auto"})
	c.begin()
	c.send(say(1, "x"))
	c.drain()
	c.line(initLine("s1", "default"))
	got := c.drain()
	if len(got) != 3 || !strings.Contains(got[1], "doesn't offer the permission mode auto") || got[2] != `done {"ExitCode":1,"Last":true}` {
		t.Errorf("%q", got)
	}
}

// TestClaudeOwnTurn: while claude is at a turn that nobody asked for, its end is
// not that of ours.
func TestClaudeOwnTurn(t *testing.T) {
	own := []string{
		initLine("s1", "default"),
		`{"type":"assistant","uuid":"u1","message":{"role":"assistant","content":[{"type":"text","text":"on my own"}]}}`,
		`{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}`,
	}
	start := func() *checked {
		c := check(t, claude{}, Start{})
		c.begin()
		for _, line := range own {
			c.line(line)
		}
		got := c.drain()
		if len(got) != 3 || !strings.Contains(got[2], `"behavior":"deny"`) {
			t.Fatalf("outside of a turn: %q", got)
		}
		c.send(say(1, "x"))
		c.drain()
		return c
	}
	t.Run("behind", func(t *testing.T) {
		c := start()
		c.line(doneLine)
		if got := c.drain(); len(got) != 0 {
			t.Errorf("its own end: %q", got)
		}
		c.line(initLine("s1", "default"))
		c.line(doneLine)
		if c.dones != 1 {
			t.Error("our turn has no end")
		}
	})
	t.Run("within", func(t *testing.T) { // it takes our message in
		c := start()
		c.line(`{"type":"user","uuid":"` + turnID(1) + `","isReplay":true,"message":{"role":"user","content":"x"}}`)
		c.line(doneLine)
		if c.dones != 1 {
			t.Error("our turn has no end")
		}
	})
	t.Run("aborted", func(t *testing.T) { // ours would still begin
		c := start()
		c.take(c.talk.Abort())
		c.line(`{"type":"result","subtype":"error_during_execution","is_error":true}`)
		if got := c.drain(); got[len(got)-1] != `done {"ExitCode":0,"Last":true}` {
			t.Errorf("%q", got)
		}
	})
}

// TestClaudeContent: images go with the text where the model can see them, else
// their paths do.
func TestClaudeContent(t *testing.T) {
	turn := say(1, "look")
	turn.Images = []Image{
		{Path: "/w/a.png", MimeType: "image/png", Data: []byte("png")},
		{Path: "/w/b.svg", MimeType: "image/svg+xml", Data: []byte("<svg/>")},
		{Path: "/w/c.png", MimeType: "image/png", Data: make([]byte, maxImage+1)},
	}
	c := check(t, claude{}, Start{})
	c.send(turn)
	var line struct {
		UUID    string
		Message struct {
			Content []struct {
				Type, Text string
				Source     struct {
					MediaType string `json:"media_type"`
					Data      []byte
				}
			}
		}
	}
	if err := json.Unmarshal(c.out[0].(Write).Bytes, &line); err != nil {
		t.Fatal(err)
	}
	parts := line.Message.Content
	if line.UUID != turn.ID || len(parts) != 2 || parts[0].Text != "look\n\n[Images provided at the following paths:]\n1. /w/b.svg\n2. /w/c.png" ||
		parts[1].Source.MediaType != "image/png" || string(parts[1].Source.Data) != "png" {
		t.Errorf("%+v", line)
	}
	if turn.EventID() != turn.ID+"_text_0" || say(1, "x").EventID() != turn.ID {
		t.Errorf("ids %s, %s", turn.EventID(), say(1, "x").EventID())
	}
}

// What is said to claude beside a message is a part of its own, behind it, which
// history doesn't show; the message has the id of its part.
func TestClaudeContext(t *testing.T) {
	turn := say(1, "hello")
	turn.Context = "a context"
	parts, ok := claudeContent(turn).([]any)
	if !ok || len(parts) != 2 || parts[0].(map[string]any)["text"] != "hello" {
		t.Fatalf("%+v", parts)
	}
	if said := parts[1].(map[string]any)["text"].(string); !strings.Contains(said, "a context") || !HiddenText(said) {
		t.Errorf("%q", said)
	}
	if turn.EventID() != UserTextID(turn.ID, 0) {
		t.Errorf("id %s", turn.EventID())
	}
}

// TestClaudeHostile feeds lines that no claude prints.
func TestClaudeHostile(t *testing.T) {
	deep := func(n int) string {
		return `{"type":"assistant","uuid":"d","message":{"content":[{"type":"tool_use","id":"t","name":"N","input":` +
			strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) + `}]}}`
	}
	long := `{"type":"assistant","uuid":"l","message":{"content":[{"type":"text","text":"` + strings.Repeat("x", 8<<20)
	c := check(t, claude{}, Start{})
	c.begin()
	c.send(say(1, "x"))
	c.drain()
	for _, line := range []string{
		"", "null", "[]", "7", `"x"`, "{", "garbage", "\x00\xff\xfe", deep(1000), deep(100_000), long,
		`{"type":"assistant"}`, `{"type":"user","message":null}`, `{"type":"stream_event"}`, `{"type":"control_request"}`,
		`{"type":"stream_event","event":{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"x"}}}`,
		`{"type":"stream_event","event":{"type":"content_block_stop","index":1e18}}`,
		`{"type":"nobody_knows"}`, `{"type":{"a":1}}`,
		`{"type":"control_cancel_request","request_id":"none"}`,
	} {
		c.line(line)
		if got := c.drain(); len(got) != 0 {
			t.Errorf("%.80q came to %.300q", line, got)
		}
	}
	c.line("{\"type\":\"assistant\",\"uuid\":\"h\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"N\",\"input\":{\"a\":\"half \xe2\x82\"}}]},\"parent_tool_use_id\":7}")
	if got := c.drain(); len(got) != 1 || !strings.Contains(got[0], "half \uFFFD") {
		t.Errorf("half a character came to %q", got)
	}
	for i := range 3 * maxAsked {
		c.line(fmt.Sprintf(`{"type":"control_request","request_id":"q%d","request":{"subtype":"can_use_tool"}}`, i))
	}
	if len(c.open) != maxAsked {
		t.Errorf("%d questions are open", len(c.open))
	}
	c.line(`{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback"}}`)
	if got := c.drain(); !strings.Contains(got[len(got)-1], `"subtype":"error"`) {
		t.Errorf("a request that nobody knows: %q", got[len(got)-1])
	}
	c.end(0, "")
}

// TestClaudeHolds: texts that wait for the end of a block that has none are given
// out in the end.
func TestClaudeHolds(t *testing.T) {
	c := check(t, claude{}, Start{})
	c.send(say(1, "x"))
	c.line(`{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text"}}}`)
	c.drain()
	for i := range 4 * maxHeld {
		c.line(fmt.Sprintf(`{"type":"assistant","uuid":"u%d","message":{"content":[{"type":"text","text":"a"}]}}`, i))
	}
	if got := c.drain(); len(got) != 4*maxHeld || !strings.Contains(got[0], `"id":"u0_0"`) {
		t.Errorf("%d events: %q", len(got), got)
	}
}

// TestClaudeTwice: claude repeats lines, and each event comes once.
func TestClaudeTwice(t *testing.T) {
	c := check(t, claude{}, Start{})
	c.send(say(1, "x"))
	c.drain()
	line := `{"type":"assistant","uuid":"u","message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}`
	c.line(line)
	c.line(line)
	if got := c.drain(); len(got) != 2 || !strings.Contains(got[1], `"id":"u_1"`) {
		t.Errorf("%q", got)
	}
}

func TestClaudeBudget(t *testing.T) {
	start := `{"type":"stream_event","event":{"type":"message_start","message":{"model":"m","usage":{"input_tokens":1,"cache_read_input_tokens":20,"cache_creation_input_tokens":300,"output_tokens":1}}}}`
	delta := `{"type":"stream_event","event":{"type":"message_delta","usage":{"output_tokens":4000}}}`
	end := `{"type":"result","subtype":"success","modelUsage":{"m":{"contextWindow":1000000},"small":{"contextWindow":5}}}`
	for _, c := range []struct {
		window int64
		end    string
		want   int64
	}{{0, end, 1_000_000}, {0, doneLine, 160_000}, {77_000, end, 77_000}} {
		talk := check(t, claude{window: c.window}, Start{})
		talk.send(say(1, "x"))
		for _, line := range []string{start, delta, c.end} {
			talk.line(line)
		}
		b := events(talk.out)[0].TokenBudget
		if b == nil || b.Used != 4321 || b.Total != c.want || b.InputTokens != 321 || b.Breakdown.Input != 321 || b.Breakdown.Output != 4000 {
			t.Errorf("window %d: %+v", c.window, b)
		}
	}
}

// FuzzClaude has a talk take whatever a program may print, with people who send,
// answer and abort in between, as FuzzTalks does.
func FuzzClaude(f *testing.F) {
	paths, err := filepath.Glob(filepath.Join(claudeRecordings, "*.jsonl"))
	if err != nil || len(paths) == 0 {
		f.Fatal(paths, err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		seed := []byte("!s\n")
		for line := range bytes.Lines(b) { // a seed for each turn
			var said struct{ From json.RawMessage }
			if json.Unmarshal(line, &said) != nil || said.From == nil {
				continue
			}
			seed = append(append(seed, said.From...), '\n')
			if bytes.Contains(said.From, []byte(`"type":"result"`)) {
				f.Add(seed)
				seed = []byte("!s\n")
			}
		}
	}
	f.Add([]byte("!s\n{\"type\":\"control_request\",\"request_id\":\"1\",\"request\":{\"subtype\":\"can_use_tool\"}}\n!a\n!e"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := check(t, claude{}, Start{Dir: "/w"})
		c.begin()
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			c.step(line)
		}
		if !c.over {
			c.end(3, "")
		}
	})
}

// TestHowALineBegins: a line says the same whichever way its JSON is written. Words
// are decoded apart from all else.
func TestHowALineBegins(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(claudeRecordings, "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	words := 0
	for _, file := range files {
		recorded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		as, spaced := claude{}.Talk(Start{}), claude{}.Talk(Start{})
		for line := range bytes.Lines(recorded) {
			var said struct{ From, To json.RawMessage }
			if json.Unmarshal(line, &said) != nil || said.From == nil {
				continue
			}
			if as.(*claudeTalk).turn == "" {
				as.Send(say(1, "x"))
				spaced.Send(say(1, "x"))
			}
			if bytes.HasPrefix(said.From, streamHead) {
				words++
			}
			got, want := as.Line(said.From), spaced.Line(append([]byte("{ "), said.From[1:]...))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s\n%+v\nwith a space %+v", file, said.From, got, want)
			}
		}
	}
	if words == 0 {
		t.Error("no recording has words")
	}
	talk := claude{}.Talk(Start{})
	talk.Send(say(1, "x"))
	if got := talk.Line([]byte(`{"type":"stream_event","type":"result","subtype":"success"}`)); !slices.ContainsFunc(got, func(e Effect) bool { _, done := e.(Done); return done }) {
		t.Errorf("a result that begins as a word: %+v", got)
	}
}

// BenchmarkClaudeLine takes the lines of a recording, as many bytes as they have.
func BenchmarkClaudeLine(b *testing.B) {
	recorded, err := os.ReadFile(filepath.Join(claudeRecordings, "tools.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	var lines [][]byte
	size := 0
	for line := range bytes.Lines(recorded) {
		var said struct{ From json.RawMessage }
		if json.Unmarshal(line, &said) == nil && said.From != nil {
			lines = append(lines, said.From)
			size += len(said.From)
		}
	}
	for b.Loop() {
		talk := claude{}.Talk(Start{})
		for _, line := range lines {
			if talk.(*claudeTalk).turn == "" {
				talk.Send(say(1, "x"))
			}
			talk.Line(line)
		}
	}
	b.SetBytes(int64(size))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(lines)), "ns/line")
}
