package provider

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// others are the providers but claude.
var others = All(Options{})[1:]

// mode is the one in which a provider's stand-in uses tools without a question,
// if there is no other way.
func mode(p Provider) Start {
	if p.Capabilities().SupportsPermissionRequests {
		return Start{}
	}
	return Start{Mode: "bypassPermissions"}
}

// find returns the only event of a kind.
func find(t *testing.T, effects []Effect, kind protocol.ChatKind) protocol.ChatEvent {
	t.Helper()
	list := slices.DeleteFunc(events(effects), func(e protocol.ChatEvent) bool { return e.Kind != kind })
	if len(list) != 1 {
		t.Fatalf("%d of %s: %+v", len(list), kind, list)
	}
	return list[0]
}

// TestTurns has each stand-in think, say something and use a tool, ends it, and
// asks another process what was said before.
// It is about weakness 6 in deploy/e2e/README.md.
func TestTurns(t *testing.T) {
	for _, p := range others {
		t.Run(p.Name(), func(t *testing.T) {
			m := newMachine(t)
			s := mode(p)
			r := m.start(t, p, s)
			script := "think:let me see\nsay:one two\ntool:Bash {\"command\":\"echo $((6*7))\"}"
			all := r.turn(say(1, script), r.always(Answer{Allow: true}))
			if done := lastDone(t, all); done.ExitCode != 0 {
				t.Fatalf("done %+v: %+v", done, events(all))
			}
			if e := find(t, all, protocol.ChatText); text(e) != "one two" || e.Role != "assistant" {
				t.Errorf("the text is %+v", e)
			}
			if e := find(t, all, protocol.ChatThinking); !strings.Contains(text(e), "let me see") {
				t.Errorf("the thought is %+v", e)
			}
			use, result := find(t, all, protocol.ChatToolUse), find(t, all, protocol.ChatToolResult)
			if !strings.HasPrefix(text(result), "42") || *result.IsError || use.ToolID == "" || result.ToolID != use.ToolID || use.ToolName != "Bash" {
				t.Errorf("the tool: %+v, %+v", use, result)
			}
			if p.Capabilities().SupportsTokenUsage && find(t, all, protocol.ChatStatus).TokenBudget == nil {
				t.Error("no use of tokens")
			}
			s.Native, s.Dir = r.native, m.dir
			if fits := r.talk.Fits(s); r.native == "" || fits != (p.Name() != "cursor") {
				t.Errorf("session %q fits: %v", r.native, fits)
			}
			again := m.start(t, p, s)
			all = again.turn(say(2, "recall"), nil)
			if got := text(find(t, all, protocol.ChatText)); got != script {
				t.Errorf("it remembers %q", got)
			}
			if again.native != r.native {
				t.Errorf("session %s was resumed as %s", r.native, again.native)
			}
		})
	}
}

// TestQuestions has a tool allowed and another one denied, one kept waiting until
// somebody aborts, and one used without a question.
func TestQuestions(t *testing.T) {
	for _, p := range others {
		if !p.Capabilities().SupportsPermissionRequests {
			continue
		}
		t.Run(p.Name(), func(t *testing.T) {
			m := newMachine(t)
			r := m.start(t, p, Start{})
			all := r.turn(say(1, "tool:Bash {\"command\":\"touch made\"}"), r.always(Answer{Allow: false, Message: "no"}))
			if e := find(t, all, protocol.ChatToolResult); !*e.IsError {
				t.Errorf("denied: %+v", e)
			}
			if _, err := os.Stat(filepath.Join(m.dir, "made")); err == nil {
				t.Error("a denied tool was used")
			}
			all = r.turn(say(2, "tool:Bash {\"command\":\"touch made\"}"), r.always(Answer{Allow: true, UpdatedInput: json.RawMessage(`{"command":"touch other"}`)}))
			if _, err := os.Stat(filepath.Join(m.dir, "made")); err == nil || lastDone(t, all).ExitCode != 0 {
				t.Error("a changed tool was used as it was")
			}
			all = r.turn(say(3, "tool:Bash {\"command\":\"touch made\"}"), r.always(Answer{Allow: true, UpdatedInput: json.RawMessage(`{ "command": "touch made" }`)}))
			if _, err := os.Stat(filepath.Join(m.dir, "made")); err != nil || *find(t, all, protocol.ChatToolResult).IsError {
				t.Errorf("an allowed tool wasn't used: %v", err)
			}
			all = r.turn(say(4, "tool:Bash {\"command\":\"true\"}\nsay:more"), func(e Effect) []Effect {
				if _, ok := e.(Ask); ok {
					return r.talk.Abort()
				}
				return nil
			})
			withdrawn := slices.ContainsFunc(all, func(e Effect) bool { _, ok := e.(Withdraw); return ok })
			if done := lastDone(t, all); done.ExitCode != 0 || done.Last || !withdrawn {
				t.Errorf("aborted: %+v, withdrawn %v", done, withdrawn)
			}
			all = r.turn(say(5, "say:still here"), nil)
			if got := text(find(t, all, protocol.ChatText)); got != "still here" {
				t.Errorf("after an abort: %q", got)
			}
			free := m.start(t, p, Start{SkipPermissions: true})
			for _, e := range free.turn(say(6, "tool:Bash {\"command\":\"true\"}"), nil) {
				if _, ok := e.(Ask); ok {
					t.Error("asked, though questions were to be skipped")
				}
			}
		})
	}
}

// TestAbortTool stops a tool that runs.
func TestAbortTool(t *testing.T) {
	for _, p := range others {
		t.Run(p.Name(), func(t *testing.T) {
			m := newMachine(t)
			stopped := p.Name() == "cursor" // by a signal, which ends it
			r := m.start(t, p, Start{})
			all := r.turn(say(1, "say:begun\nsleep:10m"), func(e Effect) []Effect {
				if e, ok := e.(Emit); ok && e.Event.Kind == protocol.ChatStreamDelta {
					return r.talk.Abort()
				}
				return nil
			})
			if done := lastDone(t, all); !stopped && done.ExitCode != 0 || done.Last != stopped {
				t.Errorf("aborted: %+v", done)
			}
			if slices.Contains(all, Effect(Stop{})) != stopped {
				t.Errorf("%+v", all)
			}
		})
	}
}

// TestBadPrograms has stand-ins fail, print nonsense, end and be killed.
func TestBadPrograms(t *testing.T) {
	for _, p := range others {
		for script, want := range map[string]string{
			"fail:no money left": "no money left",
			"exit:3":             "status 3",
			"crash":              "status -1",
			"garbage\nhuge:3000000\nhalfutf8\nsay:and yet": "",
		} {
			t.Run(p.Name()+"/"+script[:4], func(t *testing.T) {
				m := newMachine(t)
				r := m.start(t, p, mode(p))
				all := r.turn(say(1, script), nil)
				done := lastDone(t, all)
				if want == "" {
					if done.ExitCode != 0 || !strings.Contains(text(last(events(all), protocol.ChatText)), "and yet") {
						t.Errorf("done %+v", done)
					}
					return
				}
				if e := find(t, all, protocol.ChatError); done.ExitCode == 0 || !strings.Contains(text(e), want) {
					t.Errorf("done %+v: %s", done, text(e))
				}
			})
		}
	}
}

// last returns the last event of a kind.
func last(list []protocol.ChatEvent, kind protocol.ChatKind) (e protocol.ChatEvent) {
	for _, e = range slices.Backward(list) {
		if e.Kind == kind {
			return e
		}
	}
	return protocol.ChatEvent{}
}

// TestUnknownSession resumes what isn't there, twice.
func TestUnknownSession(t *testing.T) {
	for _, p := range others {
		if p.Name() == "cursor" {
			continue
		}
		r := newMachine(t).start(t, p, Start{Native: "nobody-knows"})
		for i := range 2 {
			all := r.turn(say(i, "say:hello"), nil)
			if done := lastDone(t, all); done.ExitCode == 0 || !done.Last || !strings.Contains(text(find(t, all, protocol.ChatError)), "nobody-knows") {
				t.Errorf("%s: %+v %+v", p.Name(), done, events(all))
			}
		}
	}
}

// TestCheckOthers: what a provider lacks is refused.
func TestCheckOthers(t *testing.T) {
	ok := Turn{Content: "hello"}
	image := Turn{Images: []Image{{Path: "/x", MimeType: "image/png"}}}
	for _, p := range others {
		modes := p.Capabilities().PermissionModes
		for _, m := range []string{"", "default", "auto", "acceptEdits", "bypassPermissions", "plan", "nonsense"} {
			err := p.Check(Start{Mode: m}, ok)
			if has := m == "" || slices.Contains(modes, m); has != (err == nil) || err != nil && protocol.KindOf(err) != protocol.KindInvalid {
				t.Errorf("%s in mode %q: %v", p.Name(), m, err)
			}
		}
		if err := p.Check(Start{}, image); (err == nil) != p.Capabilities().SupportsImages {
			t.Errorf("%s with an image: %v", p.Name(), err)
		}
		for _, s := range []Start{{DisallowedTools: []string{"Bash"}}, {Model: "-x"}, {Native: "--yolo"}, {AllowedTools: []string{"a b"}}} {
			if p.Check(s, ok) == nil {
				t.Errorf("%s takes %+v", p.Name(), s)
			}
		}
		command := p.Command(Start{Native: "n", Model: "m", Dir: "/w"})
		if command.Install == "" || slices.ContainsFunc(command.Args, func(s string) bool { return strings.Contains(s, "hello") }) {
			t.Errorf("%s: %+v", p.Name(), command)
		}
		if probe := p.(Prober).Probe(); len(probe.Args) == 0 {
			t.Errorf("%s: no probe", p.Name())
		}
	}
}

// TestGeminiIDs: ids follow from what was said before, and differ.
func TestGeminiIDs(t *testing.T) {
	tell := func() (ids []string) {
		var g GeminiIDs
		g.Prompt("<session_context>x")
		g.Prompt("go on")
		ids = append(ids, g.Text("Done."), g.Thought("Done."), g.Text("Done."))
		g.Prompt(" ")
		g.Prompt("[Function Response: x]")
		ids = append(ids, g.Text("Done."))
		g.Prompt("go on")
		return append(ids, g.Text("Done."), g.Text("Done. "))
	}
	ids := tell()
	if !slices.Equal(ids, tell()) {
		t.Error("not the same ids")
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 6 {
		t.Errorf("the same id twice: %v", ids)
	}
}

// TestUnwrapped: a shell's script is shown without the shell.
func TestUnwrapped(t *testing.T) {
	for command, want := range map[string]string{
		`/bin/bash -lc 'echo one; echo two'`: "echo one; echo two",
		`/bin/zsh -lc "a \"b\" \\ c"`:        `a "b" \ c`,
		`bash -c ls`:                         "ls",
		`sh -c 'it'"'"'s'`:                   "it's",
		`/bin/bash -lc 'a' 'b'`:              `/bin/bash -lc 'a' 'b'`,
		`/bin/bash -lc "$x"`:                 `/bin/bash -lc "$x"`,
		`/bin/bash -lc 'a`:                   `/bin/bash -lc 'a`,
		`rm -rf /`:                           "rm -rf /",
		`/bin/bash`:                          "/bin/bash",
		`/bin/bash -i x`:                     "/bin/bash -i x",
	} {
		if got := unwrapped(command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}
