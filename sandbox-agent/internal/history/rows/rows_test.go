package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// readLines returns what a transcript of lines says.
func readLines(read Lines, content []byte) (list []Row, about About) {
	var state State
	for line := range bytes.Lines(content) {
		var of []Row
		state, of = read(state, &about, bytes.TrimSuffix(line, []byte("\n")))
		list = append(list, of...)
	}
	return list, about
}

// brief says of a row what tests compare.
func brief(r Row) string {
	text := ""
	if r.Content != nil {
		text = *r.Content
	}
	return strings.TrimRight(fmt.Sprintf("%s %s %s %s%s %s", r.ID, r.Kind, r.Role, r.ToolName, r.ToolInput, text), " ")
}

func compare(t *testing.T, list []Row, want []string) {
	t.Helper()
	for i, r := range list {
		if i < len(want) && brief(r) != want[i] {
			t.Errorf("row %d is %q instead of %q", i, brief(r), want[i])
		}
	}
	if len(list) != len(want) {
		t.Errorf("%d rows instead of %d", len(list), len(want))
	}
}

func readTestdata(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestClaude(t *testing.T) {
	list, about := readLines(Claude, readTestdata(t, "claude.jsonl"))
	compare(t, list, []string{
		"aaaa0001 text user  Please list the files",
		"aaaa0002_0 thinking   I look first.",
		"aaaa0003_0 text assistant  I will.",
		`aaaa0003_1 tool_use  Bash{"command":"ls"}`,
		"aaaa0004_tr_toolu_1 tool_result   a.txt\nb.txt",
		"aaaa0006 text user  /cost now",
		"aaaa0007 text assistant  Total: 1",
		"aaaa0008 text assistant  This session is being continued.",
		"aaaa0010_text_0 text user  See this",
	})
	command, printed, summary, image := list[5], list[6], list[7], list[8]
	if !command.IsLocalCommand || command.CommandName != "/cost" || command.CommandMessage != "cost" || command.CommandArgs != "now" {
		t.Errorf("the local command is %+v", command)
	}
	if !printed.IsLocalCommandStdout || !summary.IsCompactSummary {
		t.Error("what a command has printed, or a summary, isn't marked")
	}
	if len(image.Images) != 1 || image.Images[0].Data != "data:image/png;base64,aGVsbG8=" {
		t.Errorf("images: %v", image.Images)
	}
	if list[0].Timestamp != "2026-06-11T10:00:01.500Z" || string(list[4].ToolUseResult) == "" || *list[4].IsError {
		t.Errorf("%+v", list[4])
	}
	if about.Native != "11111111-1111-4111-8111-111111111111" || about.Dir != "/workspace/project" || about.Name() != "Listing files" || about.Said != "Please list the files" {
		t.Errorf("about: %+v", about)
	}
	if about.Usage == nil || about.Usage.Used != 122 || about.Usage.Total != 160000 || about.Usage.InputTokens != 115 {
		t.Errorf("usage: %+v", about.Usage)
	}
}

// TestClaudeLive: the ids of rows are those of the live events of the same lines.
func TestClaudeLive(t *testing.T) {
	p, _ := provider.ByName(provider.All(provider.Options{}), "claude")
	talk := p.Talk(provider.Start{Dir: "/workspace/project"})
	talk.Begin()
	talk.Send(provider.Turn{ID: "aaaa0001", Content: "Please list the files"})
	live := make(map[string]protocol.ChatKind)
	list, _ := readLines(Claude, readTestdata(t, "claude.jsonl"))
	for line := range bytes.Lines(readTestdata(t, "claude.jsonl")) {
		if !bytes.Contains(line, []byte("aaaa0002")) && !bytes.Contains(line, []byte("aaaa0003")) && !bytes.Contains(line, []byte("aaaa0004")) {
			continue
		}
		line = bytes.ReplaceAll(line, []byte("toolUseResult"), []byte("tool_use_result"))
		for _, e := range talk.Line(bytes.TrimSpace(line)) {
			if emit, ok := e.(provider.Emit); ok && emit.Event.ID != "" {
				live[emit.Event.ID] = emit.Event.Kind
			}
		}
	}
	for _, r := range list[1:5] {
		if live[r.ID] != r.Kind {
			t.Errorf("no live event is %s %s: %v", r.Kind, r.ID, live)
		}
	}
	if turn := (provider.Turn{ID: "aaaa0010", Images: make([]provider.Image, 1)}); turn.EventID() != list[8].ID {
		t.Errorf("a message with an image is %s live and %s in history", turn.EventID(), list[8].ID)
	}
}

func TestSubagent(t *testing.T) {
	lines := bytes.Split(readTestdata(t, "claude.jsonl"), []byte("\n"))
	tools := SubTools(lines, 10)
	if len(tools) != 1 || tools[0].ToolName != "Bash" || tools[0].ToolResult == nil || tools[0].ToolResult.Content != "a.txt\nb.txt" {
		t.Errorf("%+v", tools)
	}
	if SubagentOf(json.RawMessage(`{"agentId":"a1"}`)) != "a1" || SubagentOf(json.RawMessage(`"text"`)) != "" || SubagentOf(nil) != "" {
		t.Error("not the id of the subagent")
	}
}

func TestCodex(t *testing.T) {
	list, about := readLines(Codex, readTestdata(t, "codex.jsonl"))
	var said provider.Said
	said.Begin("turn1")
	user := said.Next(protocol.ChatText, "user", "Say done twice")
	thought := said.Next(protocol.ChatThinking, "", "**Thinking**")
	first, second := said.Next(protocol.ChatText, "assistant", "done"), said.Next(protocol.ChatText, "assistant", "done")
	compare(t, list, []string{
		user + " text user  Say done twice",
		thought + " thinking   **Thinking**",
		`turn1_call_1 tool_use  Bash{"command":"ls -l"}`,
		"turn1_call_1_result tool_result   total 0",
		first + " text assistant  done",
		second + " text assistant  done",
		`turn1_call_2 tool_use  FileChanges{"patch":"*** Begin Patch"}`,
	})
	if !*list[3].IsError {
		t.Error("a failed command isn't an error")
	}
	if about.Native != "22222222-2222-4222-8222-222222222222" || about.Dir != "/workspace/project" || about.Subagent || about.Usage.Total != 272000 || about.Usage.Used != 55 {
		t.Errorf("about: %+v", about)
	}
	// What the context holds is what the last request held, as live events say.
	token := `{"type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"total_tokens":900000},"last_token_usage":{"input_tokens":70,"output_tokens":7,"total_tokens":77},"model_context_window":272000}}}`
	if Codex(State{}, &about, []byte(token)); about.Usage.Used != 77 || about.Usage.InputTokens != 70 {
		t.Errorf("%+v", about.Usage)
	}
}

// codexLooks are lines of codex 0.169.0: what it searches the web for, a page that
// it opens, and an image that it looks at.
const codexLooks = `{"type":"event_msg","payload":{"type":"item_completed","turn_id":"turn1","item":{"type":"WebSearch","id":"ws_1","query":"what is a medlar","action":{"type":"search","query":"what is a medlar"}}}}
{"type":"response_item","payload":{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"what is a medlar"}}}
{"type":"event_msg","payload":{"type":"item_completed","turn_id":"turn1","item":{"type":"WebSearch","id":"ws_2","query":"https://example.com/a","action":{"type":"open_page","url":"https://example.com/a"}}}}
{"type":"response_item","payload":{"type":"web_search_call","id":"ws_2","status":"completed","action":{"type":"open_page","url":"https://example.com/a"}}}
{"type":"response_item","payload":{"type":"function_call","id":"fc_1","name":"view_image","arguments":"{\"path\":\"/workspace/p.png\"}","call_id":"call_1"}}
{"type":"event_msg","payload":{"type":"item_completed","turn_id":"turn1","item":{"type":"ImageView","id":"call_1","path":"file:///workspace/p.png"}}}
`

// TestCodexLooks: each is there once, under the name that it has live.
func TestCodexLooks(t *testing.T) {
	list, _ := readLines(Codex, []byte(codexLooks))
	compare(t, list, []string{
		`turn1_ws_1 tool_use  WebSearch{"query":"what is a medlar"}`, "turn1_ws_1_result tool_result",
		`turn1_ws_2 tool_use  WebSearch{"query":"https://example.com/a"}`, "turn1_ws_2_result tool_result",
		`turn1_call_1 tool_use  ImageView{"path":"/workspace/p.png"}`,
	})
}

// TestGeminiLoaded reads what gemini 0.61.0 has kept of a session, before and after
// it was loaded by another process: the calls are in their places, each once.
func TestGeminiLoaded(t *testing.T) {
	text := readTestdata(t, "gemini-loaded.jsonl")
	for name, kept := range map[string][]byte{"before": text[:bytes.Index(text, []byte(`{"$set":{"sessionId"`))], "after": text} {
		var told []string
		for _, r := range Gemini(kept).Rows {
			told = append(told, strings.TrimSpace(string(r.Kind)+" "+r.ToolName+" "+strings.SplitN(content(r), "\n", 2)[0]))
		}
		want := []string{
			"text  please-say plum", "text  plum",
			`text  please-call read_file {"file_path":"x.txt"}`, "tool_use read_file", "tool_result  sorb", "text  it came to",
			"text  please-say quince", "text  quince",
			`text  please-call run_shell_command {"description":"d","command":"echo one"}`, "tool_use run_shell_command", "tool_result  <untrusted_context>", "text  it came to",
			"text  please-recall", "text  you had me say", "text  please-say after", "text  after",
		}
		if name == "before" {
			want = want[:len(want)-2]
		}
		if !slices.Equal(told, want) {
			t.Errorf("%s:\n%s\ninstead of\n%s", name, strings.Join(told, "\n"), strings.Join(want, "\n"))
		}
	}
}

const geminiChat1 = `{"sessionId":"33333333-3333-4333-8333-333333333333","projectHash":"p","startTime":"2026-06-11T10:00:00.000Z","lastUpdated":"2026-06-11T10:00:00.000Z","kind":"main"}
{"id":"m1","timestamp":"2026-06-11T10:00:01.000Z","type":"user","content":[{"text":"Hi"}]}
{"id":"m2","timestamp":"2026-06-11T10:00:02.000Z","type":"gemini","content":"Hello","thoughts":[{"subject":"Greeting","description":"Be kind"}]}
{"id":"m2","timestamp":"2026-06-11T10:00:02.000Z","type":"gemini","content":"Hello","thoughts":[{"subject":"Greeting","description":"Be kind"}],"tokens":{"input":5,"output":2,"total":7},"toolCalls":[{"id":"t1","name":"read_file","args":{"path":"a"},"status":"success","timestamp":"2026-06-11T10:00:03.000Z","result":[{"functionResponse":{"response":{"output":"text of a"}}}]}]}
{"id":"m3","timestamp":"2026-06-11T10:00:04.000Z","type":"user","content":"Hi"}
{"id":"m4","timestamp":"2026-06-11T10:00:05.000Z","type":"gemini","content":"Hello"}
{"id":"m5","timestamp":"2026-06-11T10:00:06.000Z","type":"user","content":"never said"}
{"$rewindTo":"m5"}
{"id":"m6","timestamp":"2026-06-11T10:00:07.000Z","type":"gemini","content":[{"functionCall":{"id":"t2","name":"write_file","args":{"path":"b"}}}]}
{"id":"m7","timestamp":"2026-06-11T10:00:08.000Z","type":"user","content":[{"functionResponse":{"id":"t2","response":{"error":"denied"}}}]}
{"$set":{"summary":"A greeting"}}
`

func TestGemini(t *testing.T) {
	doc := Gemini([]byte(geminiChat1))
	kinds := ""
	ids := make(map[string]bool)
	for _, r := range doc.Rows {
		kinds += string(r.Kind) + " "
		ids[r.ID] = true
	}
	if kinds != "text thinking text tool_use tool_result text text tool_use tool_result " {
		t.Errorf("rows: %s", kinds)
	}
	if len(ids) != len(doc.Rows) {
		t.Error("two rows have one id")
	}
	if use := doc.Rows[3]; use.ToolResult == nil || use.ToolResult.Content != "text of a" || use.ToolName != "read_file" {
		t.Errorf("%+v", use)
	}
	if last := doc.Rows[8]; !*last.IsError || *last.Content != "denied" || doc.Rows[7].ToolResult == nil {
		t.Errorf("%+v", last)
	}
	if doc.About.Name() != "A greeting" || doc.About.Native[:3] != "333" || doc.About.Usage.Used != 7 {
		t.Errorf("about: %+v", doc.About)
	}
	again := geminiChat1 + `{"$set":{"messages":[{"id":"m0","type":"user","content":[{"text":"<session_context>\nx"}]}]}}` + "\n"
	if doc := Gemini([]byte(again)); len(doc.Rows) != 9 {
		t.Errorf("begun again in the same file: %d rows", len(doc.Rows))
	}
	late := strings.Replace(geminiChat1, `"toolCalls":[`, `"toolCalls":[{"id":"t0","name":"shell","status":"success","timestamp":"2026-06-11T10:00:04.500Z"},`, 1)
	if doc := Gemini([]byte(late)); doc.Rows[6].ToolID != "t0" || doc.Rows[3].ToolID != "t1" || *doc.Rows[5].Content != "Hi" {
		t.Errorf("a call of a later turn, in the message of the first: %+v", doc.Rows)
	}
	old := Gemini([]byte(`{"sessionId":"s","messages":[{"id":"1","type":"user","content":"old"}]}`))
	if len(old.Rows) != 1 || *old.Rows[0].Content != "old" {
		t.Errorf("older versions: %+v", old.Rows)
	}
}

func TestOpencode(t *testing.T) {
	part := func(s string) json.RawMessage { return json.RawMessage(s) }
	doc := Opencode([]Stored{
		{ID: "msg_1", Data: part(`{"role":"user","time":{"created":1781172000000}}`), IDs: []string{"prt_1"}, Parts: []json.RawMessage{part(`{"type":"text","text":"Hi"}`)}},
		{
			ID: "msg_2", Data: part(`{"role":"assistant","time":{"created":1781172001000},"tokens":{"input":3,"output":4,"reasoning":2,"cache":{"read":5,"write":6}}}`),
			IDs: []string{"prt_2", "prt_3", "prt_4", "prt_5"}, Parts: []json.RawMessage{
				part(`{"type":"step-start"}`), part(`{"type":"reasoning","text":"hm"}`),
				part(`{"type":"tool","tool":"bash","callID":"c1","state":{"status":"completed","input":{"command":"ls"},"output":"a"}}`),
				part(`{"type":"text","text":"Done"}`),
			},
		},
	})
	compare(t, doc.Rows, []string{
		"msg_1 text user  Hi", "prt_3 thinking   hm", `c1 tool_use  bash{"command":"ls"}`, "c1_result tool_result   a", "msg_2 text assistant  Done",
	})
	if doc.About.Usage.Used != 20 || doc.About.Usage.InputTokens != 14 || doc.Rows[2].ToolResult == nil {
		t.Errorf("%+v", doc.About.Usage)
	}
}

func TestCursor(t *testing.T) {
	var messages []Stored
	for _, data := range []string{
		`{"role":"system","content":"You are an assistant"}`,
		`{"role":"user","content":"<user_info>Linux</user_info>"}`,
		`{"role":"user","content":[{"type":"text","text":"<timestamp>x</timestamp>\n<user_query>\nHi\n</user_query>"}]}`,
		`{"id":"1","role":"assistant","content":[{"type":"reasoning","text":"hm"},{"type":"text","text":"Hello"},{"type":"tool-call","toolCallId":"t1","toolName":"Shell","args":{"command":"ls"}}]}`,
		`{"role":"tool","id":"t1","content":[{"type":"tool-result","toolName":"Shell","toolCallId":"t1","result":[{"type":"text","text":"a"}],"isError":true}]}`,
		`{"id":"1","role":"assistant","content":"Hello"}`, `[`,
	} {
		messages = append(messages, Stored{Data: json.RawMessage(data)})
	}
	doc := Cursor(messages)
	kinds := ""
	ids := make(map[string]bool)
	for _, r := range doc.Rows {
		kinds += string(r.Kind) + r.Role + " "
		ids[r.ID] = true
	}
	if kinds != "textuser thinking textassistant tool_use tool_result textassistant " || doc.About.Said != "Hi" || len(ids) != 6 {
		t.Errorf("%s %+v", kinds, doc.About)
	}
	if r := doc.Rows[3].ToolResult; r == nil || r.Content != "a" || !r.IsError {
		t.Errorf("%+v", doc.Rows[3])
	}
}

// checkRows: what is shown is valid whatever a transcript says.
func checkRows(t *testing.T, list []Row) {
	t.Helper()
	for _, r := range list {
		if r.ID == "" || r.Kind == "" || r.Timestamp == "" || r.Seq != 0 {
			t.Fatalf("incomplete: %+v", r)
		}
		if r.Content != nil && (!utf8.ValidString(*r.Content) || len(*r.Content) > maxText) {
			t.Fatalf("a bad text of %d bytes", len(*r.Content))
		}
		if _, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		}
	}
}

func FuzzLines(f *testing.F) {
	for i, name := range []string{"claude.jsonl", "codex.jsonl"} {
		content, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(content) {
			f.Add(uint8(i), line)
		}
	}
	f.Add(uint8(0), []byte(`{"uuid":"u","message":{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":1}]}]}}`))
	f.Fuzz(func(t *testing.T, which uint8, line []byte) {
		read := []Lines{Claude, Codex}[which%2]
		var about About
		state, list := read(State{}, &about, line)
		again, same := read(State{}, nil, line)
		if state != again || len(list) != len(same) {
			t.Fatal("the same line has other rows")
		}
		checkRows(t, list)
		if name := about.Name(); !utf8.ValidString(name) || len(name) > 120 {
			t.Fatalf("name %q", name)
		}
	})
}

func FuzzDocuments(f *testing.F) {
	f.Add([]byte(geminiChat1))
	f.Add([]byte(`{"id":"m","data":{"role":"assistant"},"parts":[{"type":"tool","callID":"c","state":{"status":"error"}}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		checkRows(t, Gemini(content).Rows)
		var m Stored
		if json.Unmarshal(content, &m) == nil {
			checkRows(t, Opencode([]Stored{m, m}).Rows)
			checkRows(t, Cursor([]Stored{m, {Data: content}}).Rows)
		}
	})
}
