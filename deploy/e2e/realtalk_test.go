package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e/agents/fakemodel"
	"github.com/fairlead/fairlead/protocol"
)

// A realTalker is a published coding agent: how it calls a tool that runs a
// command, for which it asks, and one that reads a file. codex reads by commands.
type realTalker struct {
	name, shell, read string
	options           []any  // of each message
	ready             string // comes on its own screen, below what was said, when it takes what is typed; "": at once
}

var realTalkers = []realTalker{
	{"claude", `Bash {"description":"d","command":"%s"}`, `Read {"file_path":"%s"}`, nil, ""},
	{"codex", `exec_command {"cmd":"%s","sandbox_permissions":"require_escalated","justification":"j"}`, "", nil, ""},
	{"gemini", `run_shell_command {"description":"d","command":"%s"}`, `read_file {"file_path":"%s"}`, []any{"options", map[string]any{"model": "fake"}}, "Type your message"},
	{"opencode", `bash {"description":"d","command":"%s"}`, `read {"filePath":"%s"}`, nil, ""},
}

// TestRealTalk has people talk to published coding agents by the chat socket:
// they are told things, use tools, ask, are stopped, and remember. FAIRLEAD_AGENTS
// is the folder that `make test-agents` has installed them in.
func TestRealTalk(t *testing.T) {
	dir := os.Getenv("FAIRLEAD_AGENTS")
	if dir == "" {
		t.Skip("make test-agents installs and runs them")
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root to see the processes of other users")
	}
	model := fakemodel.New(fakemodel.Script{Obeys: true})
	server := httptest.NewServer(model)
	defer server.Close()
	at := func(text string) string { return strings.ReplaceAll(text, "%MODEL%", server.URL) }
	path, err := os.MkdirTemp(openTemp, tempName())
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(path) })
	must(t, os.Chmod(path, 0o755))
	bin := filepath.Join(reachable(t, dir), "node_modules", ".bin")
	s := talkStackOf(t, path, "chat-patience: 8s\n")
	t.Run("cursor", func(t *testing.T) { missingAndRecorded(t, s, path) })

	// By now the session's programs have a home.
	homes, err := flagOf(s.Ready.Sandboxes[0].PID, "--homes")
	must(t, err)
	workspace, err := flagOf(s.Ready.Sandboxes[0].PID, "--workspace")
	must(t, err)
	home := filepath.Join(homes, ".kept", string(s.Ready.SessionID), "home")
	giveFile(t, home, ".claude.json", beforeScreens(workspace))
	for _, agent := range realAgents {
		giveFile(t, home, agent.file, at(agent.settings))
		// People can't set a proxy for a session.
		script := fmt.Sprintf("#!/bin/sh\nexec env %s %s '%s' \"$@\"\n", quiet, at(agent.environ), filepath.Join(bin, agent.name))
		must(t, os.WriteFile(filepath.Join(path, agent.name), []byte(script), 0o755))
	}
	for _, agent := range realTalkers {
		t.Run(agent.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, agent.name)); err != nil {
				t.Fatalf("%s is not installed: %v", agent.name, err)
			}
			id, k := talks(t, s, agent.name, "alice")
			r := &realTalk{realTalker: agent, s: s, id: id, alice: k[0]}
			r.talk(t)
			if agent.name == "claude" {
				t.Run("speed", r.speed)
			}
		})
	}
}

// giveFile writes a file of whoever owns home.
func giveFile(t *testing.T, home, name, text string) {
	t.Helper()
	owner, err := os.Stat(home)
	must(t, err)
	path := filepath.Join(home, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(t, os.WriteFile(path, []byte(text), 0o600))
	for ; path != home; path = filepath.Dir(path) {
		must(t, os.Lchown(path, int(owner.Sys().(*syscall.Stat_t).Uid), -1))
	}
}

// missingAndRecorded is about cursor-agent, which is in no package registry: what
// is said without it, and what comes of its recorded stream, printed by a script
// of its name.
func missingAndRecorded(t *testing.T, s *Stack, dir string) {
	ctx := within(t)
	id, k := talks(t, s, "cursor", "alice")
	r := &realTalk{s: s, id: id, alice: k[0]}
	events := r.run(ctx, t, "hello", nil)
	last := events[len(events)-1]
	if kinds(events) != "error complete" || !strings.Contains(*events[0].Content, "cursor.com/install") || *last.ExitCode != 1 {
		t.Errorf("without the program: %s %s", events[0].Raw, last.Raw)
	}
	recorded, err := os.ReadFile(filepath.Join("..", "..", "sandbox-agent", "internal", "provider", "testdata", "cursor", "documented.txt"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "stream"), recorded, 0o644))
	script := "#!/bin/sh\ncat >/dev/null\nsed -n '/^end/q; s/^< //p' '" + filepath.Join(dir, "stream") + "'\n"
	must(t, os.WriteFile(filepath.Join(dir, "cursor-agent"), []byte(script), 0o755))
	t.Log("cursor-agent can't be had: its recorded stream is played")
	events = r.run(ctx, t, "hello", nil)
	r.succeeded(t, events)
	if got := kinds(events); !strings.Contains(got, "stream_delta") || !strings.Contains(got, "tool_use tool_result") || !strings.HasSuffix(content(events, protocol.ChatText), "Done.") {
		t.Errorf("%s; it said %q", got, content(events, protocol.ChatText))
	}
}

// A realTalk is one conversation with a coding agent.
type realTalk struct {
	realTalker
	s     *Stack
	id    protocol.ConversationID
	alice *Talker
	runs  int
}

// run sends a message and returns the events of the run. asked is called with
// each question.
func (r *realTalk) run(ctx context.Context, t *testing.T, text string, asked func(Told)) []Told {
	t.Helper()
	before := len(r.alice.Events(r.id))
	must(t, r.alice.Send(ctx, r.id, text, r.options...))
	r.runs++
	for at := before; ; at++ {
		must(t, r.alice.Await(ctx, "another event", r.id, func(talk *Talk) bool { return len(talk.Events) > at }))
		events := r.alice.Events(r.id)
		switch e := events[at]; e.Kind {
		case protocol.ChatPermissionRequest:
			if asked == nil {
				t.Fatalf("a question that nobody expects: %s", e.Raw)
			}
			asked(e)
		case protocol.ChatComplete:
			if n := strings.Count(kindsOfAll(events), "complete"); n != r.runs {
				t.Errorf("%d runs have %d completes", r.runs, n)
			}
			return events[before : at+1]
		}
	}
}

// succeeded wants the run to have ended well.
func (r *realTalk) succeeded(t *testing.T, events []Told) {
	t.Helper()
	if last := events[len(events)-1]; !*last.Success || *last.Aborted || *last.ExitCode != 0 || last.ActualSessionID != r.id {
		t.Errorf("it ended so: %s", raw(events))
	}
}

// raw shows events.
func raw(events []Told) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n%.600s", e.Raw)
	}
	return b.String()
}

// content joins what events of a kind say.
func content(events []Told, kind protocol.ChatKind) string {
	var b strings.Builder
	for _, e := range events {
		if e.Kind == kind && e.Content != nil {
			b.WriteString(*e.Content)
		}
	}
	return b.String()
}

const learnt = "plum\nquince\nmedlar"

// talk takes the steps that every coding agent must.
func (r *realTalk) talk(t *testing.T) {
	workspace, err := flagOf(r.s.Ready.Sandboxes[0].PID, "--workspace")
	must(t, err)
	t.Run("send and stream", func(t *testing.T) {
		events := r.run(within(t), t, "please-say "+learnt, nil)
		r.succeeded(t, events)
		deltas := strings.Count(kindsOfAll(events), "stream_delta")
		if content(events, protocol.ChatStreamDelta) != learnt || content(events, protocol.ChatText) != learnt || deltas < 2 {
			t.Errorf("%d deltas: %s", deltas, raw(events))
		}
	})
	t.Run("tool", func(t *testing.T) {
		ctx := within(t)
		path := filepath.Join(workspace, string(r.id)+".txt")
		must(t, os.WriteFile(path, []byte("the word is sorb\n"), 0o644))
		call, asked := fmt.Sprintf(r.shell, "cat "+path), func(e Told) { r.answer(ctx, t, e, true) }
		if r.read != "" {
			call, asked = fmt.Sprintf(r.read, path), nil
		}
		events := r.run(ctx, t, "please-call "+call, asked)
		r.succeeded(t, events)
		told := r.name == "gemini" || strings.Contains(content(events, protocol.ChatToolResult), "the word is sorb") // gemini tells only its model
		if !told || !strings.Contains(content(events, protocol.ChatText), "the word is sorb") || strings.Count(kindsOfAll(events), "tool_") != 2 {
			t.Errorf("what is in the file isn't told: %s", raw(events))
		}
	})
	t.Run("context", func(t *testing.T) { r.recalls(t, learnt) })
	for _, how := range []string{"allow", "deny", "timeout"} {
		t.Run(how, func(t *testing.T) { r.asks(t, filepath.Join(workspace, string(r.id)+"."+how), how) })
	}
	t.Run("abort", func(t *testing.T) { r.aborts(t) })
	t.Run("resume", func(t *testing.T) {
		ctx := within(t)
		setEnv(ctx, t, r.s, map[string]any{"secrets": map[string]any{"CHANGED": map[string]any{"value": rand.Text()}}})
		await(t, "the end of the process", func() bool { return len(leftovers(t, r.s)) == 0 })
		r.recalls(t, learnt+"\nafter an abort")
	})
	t.Run("history", r.history)
	t.Run("terminal", r.terminal)
}

// history compares what the coding agent has written down with what was told: it
// has the same ids, in the same order. gemini writes down no call that was denied.
func (r *realTalk) history(t *testing.T) {
	ctx := within(t)
	grant, err := r.s.Ready.User("alice").Grant(ctx, r.s.Ready.SessionID)
	must(t, err)
	events := r.alice.Events(r.id)
	spoken := func(e protocol.ChatEvent) string {
		switch e.Kind {
		case protocol.ChatText, protocol.ChatToolResult:
			return string(e.Kind) + " " + e.ID
		case protocol.ChatToolUse:
			return "tool_use " + e.ToolID
		}
		return ""
	}
	var told, kept []string
	for _, e := range events {
		denied := e.Kind == protocol.ChatToolUse && !slices.ContainsFunc(events, func(other Told) bool {
			return other.Kind == protocol.ChatToolResult && other.ToolID == e.ToolID
		})
		if what := spoken(e.ChatEvent); what != "" && !denied {
			told = append(told, what)
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("told\n%s\nkept\n%s", strings.Join(told, "\n"), strings.Join(kept, "\n"))
		}
	}()
	await(t, "all that was told", func() bool {
		kept = nil
		for _, e := range r.messages(ctx, t, grant) {
			if what := spoken(e); slices.Contains(told, what) {
				kept = append(kept, what)
			}
		}
		return len(kept) == len(told)
	})
	if !slices.Equal(kept, told) {
		t.Error("it stands there in another order")
	}
}

// answer answers a question.
func (r *realTalk) answer(ctx context.Context, t *testing.T, question Told, allow bool) {
	must(t, r.alice.Say(ctx, "chat.permission-response", r.id, "requestId", question.RequestID, "allow", allow, "message", "not now"))
}

// recalls wants the coding agent to remember what it was told.
func (r *realTalk) recalls(t *testing.T, want string) {
	t.Helper()
	events := r.run(within(t), t, "please-recall", nil)
	r.succeeded(t, events)
	if !strings.Contains(content(events, protocol.ChatText), want) {
		t.Errorf("it doesn't remember: %s", raw(events))
	}
}

// asks has the coding agent ask for a command that writes a file.
func (r *realTalk) asks(t *testing.T, path, how string) {
	ctx := within(t)
	questions := 0
	events := r.run(ctx, t, "please-call "+fmt.Sprintf(r.shell, "echo sorb >"+path), func(e Told) {
		questions++
		if e.ToolName != "Bash" || !strings.Contains(string(e.Input), path) {
			t.Errorf("it asks %s", e.Raw)
		}
		if how != "timeout" {
			r.answer(ctx, t, e, how == "allow")
		}
	})
	reason := protocol.CancelledDecided
	if how == "timeout" {
		reason = protocol.CancelledTimeout
	}
	gone := slices.IndexFunc(events, func(e Told) bool { return e.Kind == protocol.ChatPermissionCancelled && e.Reason == reason })
	if questions != 1 || gone < 0 || strings.Count(kindsOfAll(events), "permission_cancelled") != 1 {
		t.Errorf("%d questions: %s", questions, raw(events))
	}
	written, err := os.ReadFile(path)
	if ran := err == nil && string(written) == "sorb\n"; ran != (how == "allow") {
		t.Errorf("the file says %q, %v: %s", written, err, raw(events))
	}
	r.succeeded(t, events)
}

// aborts stops the coding agent while a command of its runs.
func (r *realTalk) aborts(t *testing.T) {
	ctx := within(t)
	mark := "FAIRLEAD_TEST=" + string(protocol.NewCommandID())
	var began time.Time
	events := r.run(ctx, t, "please-call "+fmt.Sprintf(r.shell, "export "+mark+"; sleep 300; echo woken"), func(e Told) {
		r.answer(ctx, t, e, true)
		awaitStates(ctx, t, "the command", func(states []string) bool { return len(states) > 0 }, mark)
		began = time.Now()
		must(t, r.alice.Say(ctx, "chat.abort", r.id))
	})
	t.Logf("complete %v after the abort", time.Since(began).Round(time.Millisecond))
	if left := marked(mark); len(left) > 0 {
		t.Errorf("of the command %d processes are left", len(left))
	}
	if last := events[len(events)-1]; !*last.Aborted || *last.Success || *last.ExitCode != 0 {
		t.Errorf("it ended so: %s", raw(events))
	}
	r.succeeded(t, r.run(ctx, t, "please-say after an abort", nil))
}

// speed measures how soon something comes of a message to a process that waits
// for one.
func (r *realTalk) speed(t *testing.T) {
	var all []time.Duration
	r.run(within(t), t, "please-say fig", nil)
	for range 20 {
		began := time.Now()
		all = append(all, r.run(within(t), t, "please-say fig", nil)[0].At.Sub(began))
	}
	slices.Sort(all)
	t.Logf("chat.send to the first event: p50 %v, p99 %v of %d, asked 150 ms", all[len(all)/2], all[len(all)-1], len(all))
}
