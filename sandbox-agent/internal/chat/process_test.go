package chat

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/program/standin"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat/opened"
	"github.com/fairlead/fairlead/sandbox-agent/internal/codingagent"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// unchanged are variables that nobody changes.
type unchanged struct{}

func (unchanged) Changes(protocol.SessionID) uint64 { return 0 }

// A real rig has stand-ins for coding agents' programs, each a process.
type real struct {
	*rig
	hosting *Hosting
	v       *viewer
	seen    []protocol.ChatEvent // of the present run
}

func newReal(t *testing.T, change ...func(*Options)) *real {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	for _, name := range []string{bin, filepath.Join(dir, "homes"), filepath.Join(dir, "workspace")} {
		check(t, os.MkdirAll(name, 0o755))
	}
	self, err := os.Executable()
	check(t, err)
	check(t, standin.Install(bin, self, standin.Role))
	host := codingagent.New(codingagent.Options{
		Accounts: &account.Pool{Homes: filepath.Join(dir, "homes")},
		Setup: launch.Setup{
			Workspace: filepath.Join(dir, "workspace"), Shell: "/bin/sh", SearchPath: bin + ":" + launch.DefaultSearchPath,
		},
	})
	t.Cleanup(func() { check(t, host.Close()) })
	r := &real{hosting: NewHosting(host, unchanged{})}
	r.rig = newRigIn(t, dir, append([]func(*Options){func(o *Options) {
		o.Programs, o.Providers = r.hosting, provider.All(provider.Options{})
	}}, change...)...)
	result, err := r.create(t.Context(), r.command(alice), &op.ChatCreate{Provider: "claude", ProjectPath: "."})
	check(t, err)
	r.id = result.ConversationID
	r.v = r.view(bob, protocol.ChatParams{})
	return r
}

// until reads events to the first one of a kind.
func (r *real) until(kind protocol.ChatKind) (e protocol.ChatEvent) {
	r.t.Helper()
	for e.Kind != kind {
		m, ok := r.v.message().(protocol.Chat)
		text := m.Bytes
		for ok && m.Left > 0 {
			m, ok = r.v.message().(protocol.Chat)
			text = append(text[:len(text):len(text)], m.Bytes...)
		}
		if !ok {
			r.t.Fatalf("%#v", m)
		}
		e = protocol.ChatEvent{}
		check(r.t, json.Unmarshal(text, &e))
		r.seen = append(r.seen, e)
		if e.Kind == protocol.ChatComplete && kind != e.Kind {
			r.t.Fatalf("complete without %s: %s", kind, text)
		}
	}
	return e
}

// runs sends a message and returns the events of its run.
func (r *real) runs(text string, options ...op.ChatOptions) (events []protocol.ChatEvent, end protocol.ChatEvent) {
	r.t.Helper()
	r.seen = nil
	check(r.t, r.sends(alice, text, options...))
	end = r.until(protocol.ChatComplete)
	return r.seen, end
}

// said returns what events of a kind say.
func said(events []protocol.ChatEvent, kind protocol.ChatKind) string {
	var all strings.Builder
	for _, e := range events {
		if e.Kind == kind && e.Role != "user" && e.Content != nil {
			all.WriteString(*e.Content)
		}
	}
	return all.String()
}

// TestProcess: a real process says what it is told to, remembers it when it is
// resumed, and never sees a message among its arguments.
func TestProcess(t *testing.T) {
	r := newReal(t)
	events, end := r.runs("say:hello there")
	if said(events, protocol.ChatStreamDelta) != "hello there" || said(events, protocol.ChatText) != "hello there" || *end.ExitCode != 0 {
		t.Errorf("%+v", events)
	}
	info, err := r.Get(session, r.id)
	check(t, err)
	if info.Native == "" || info.Native == string(r.id) {
		t.Errorf("%+v", info)
	}
	// another process, which resumes
	events, end = r.runs("recall", op.ChatOptions{Model: "opus"})
	if !strings.Contains(said(events, protocol.ChatText), "hello there") || *end.ExitCode != 0 {
		t.Errorf("%+v", events)
	}
	for _, e := range events {
		text, _ := json.Marshal(e)
		if strings.Contains(string(text), info.Native) {
			t.Errorf("the provider's id has left the sandbox: %s", text)
		}
	}
}

// TestProcessTool: a tool is asked for and used; one that runs is stopped with the
// run.
func TestProcessTool(t *testing.T) {
	r := newReal(t)
	r.seen = nil
	check(t, r.sends(alice, `tool:Bash {"command":"echo from-a-tool"}`))
	asked := r.until(protocol.ChatPermissionRequest)
	r.decides(asked, protocol.AllowOnce, "", approval.Reply{})
	end := r.until(protocol.ChatComplete)
	if *end.ExitCode != 0 || !strings.Contains(said(r.seen, protocol.ChatToolResult), "from-a-tool") {
		t.Errorf("%+v", r.seen)
	}
	began := filepath.Join(r.dir, "workspace", "began")
	check(t, unix.Mkfifo(began, 0o600))
	check(t, r.sends(alice, `tool:Bash {"command":"echo > began; sleep 47113"}`, op.ChatOptions{SkipPermissions: true}))
	working := make(chan error, 1)
	go func() { // ends with the tool's first word
		_, err := os.ReadFile(began)
		working <- err
	}()
	select {
	case err := <-working:
		check(t, err)
	case <-time.After(patience):
		t.Fatal("the tool doesn't begin")
	}
	check(t, r.aborts(alice))
	if end := r.until(protocol.ChatComplete); !*end.Aborted || *end.ExitCode != 0 || *end.Success {
		t.Errorf("%+v", end.ChatEnd)
	}
	process.Each(func(s process.Stat) {
		line, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.PID), "cmdline"))
		if strings.Contains(string(line), "47113") {
			t.Errorf("%q runs on", line)
		}
	})
}

// TestProcessTrouble: whatever a program does, its run has one complete.
func TestProcessTrouble(t *testing.T) {
	for script, want := range map[string]struct {
		exit int
		says string
	}{
		"crash":              {1, "ended"},
		"exit:3":             {3, "status 3"},
		"fork":               {1, "ended"},
		"fork-away":          {1, "ended"},
		"huge\nsay:after":    {0, "dropped"},
		"garbage\nsay:after": {0, ""},
		"halfutf8\nsay:x":    {0, ""},
		"fail:no more":       {1, "no more"},
	} {
		t.Run(strings.Fields(script)[0], func(t *testing.T) {
			t.Parallel()
			r := newReal(t)
			events, end := r.runs(script)
			if *end.ExitCode != want.exit || *end.Aborted || !strings.Contains(said(events, protocol.ChatError), want.says) {
				t.Errorf("exit %d: %q %q", *end.ExitCode, said(events, protocol.ChatError), said(events, protocol.ChatText))
			}
			if events, end := r.runs("say:and on"); *end.ExitCode != 0 || said(events, protocol.ChatText) != "and on" {
				t.Errorf("afterwards: %+v", events)
			}
		})
	}
}

// TestProcessDeaf: a program that obeys nothing is killed.
func TestProcessDeaf(t *testing.T) {
	r := newReal(t, func(o *Options) { o.Silence = time.Second })
	events, end := r.runs("ignore-int\nsilent")
	if *end.ExitCode != 1 || !strings.Contains(said(events, protocol.ChatError), "printed nothing for 1s") {
		t.Errorf("%+v", events)
	}
}

// TestProcessImages: a message's images reach the program, and their files go.
func TestProcessImages(t *testing.T) {
	r := newReal(t)
	body := &op.ChatSend{Conversation: r.id, Message: &protocol.ChatMessage{
		Content: "images", Images: []protocol.ChatImage{{Name: "a.png", Data: "data:image/png;base64,iVBORw0KGgo="}},
	}}
	_, err := r.send(t.Context(), r.command(alice), body)
	check(t, err)
	r.until(protocol.ChatComplete)
	if text := said(r.seen, protocol.ChatText); !strings.Contains(text, "1") {
		t.Error(text)
	}
	if r.seen[0].Images[0].Name != "a.png" || r.seen[0].Images[0].Size != 8 {
		t.Errorf("%+v", r.seen[0].Images)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "workspace", ".tmp")); !os.IsNotExist(err) {
		t.Error("files of images stay")
	}
	for _, image := range []protocol.ChatImage{
		{Name: "../a.png", Data: "data:image/png;base64,iVBORw0KGgo="}, {Name: "a", Data: "data:text/html;base64,iVBORw0KGgo="},
		{Data: "data:image/png;base64,!"}, {Data: "file:///etc/passwd"}, {Data: "data:image/png;base64,"},
	} {
		body.Message.Images = []protocol.ChatImage{image}
		if _, err := r.send(t.Context(), r.command(alice), body); code(err) != "INTERNAL_ERROR" {
			t.Error(image, err)
		}
	}
}

// TestResumes: whose arguments resume a provider's session.
func TestResumes(t *testing.T) {
	for line, want := range map[string]bool{
		"claude\x00--resume\x00n-1\x00": true, "cursor-agent\x00--resume=n-1\x00": true, "codex\x00resume\x00n-1\x00": true,
		"opencode\x00--session\x00n-1": true, "grep\x00n-1\x00": false, "claude\x00--resume\x00n-12\x00": false, "": false, "claude\x00--resume": false,
	} {
		if got := opened.Has(-1, []byte(line), "n-1", nil); got != want {
			t.Errorf("%q: %t", line, got)
		}
	}
}

// A typed program is one that somebody has started in a terminal.
type typed struct {
	in   io.WriteCloser
	wait func() error
}

// types starts a script by the name of a coding agent's program in a terminal.
func types(t *testing.T, program string, pty protocol.PTYID, script string) typed {
	t.Helper()
	file := filepath.Join(t.TempDir(), program)
	check(t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\necho ready\nread -r end\n"), 0o755))
	cmd := exec.Command(file)
	cmd.Env = []string{account.IDVariable + "=" + string(pty), "PATH=" + launch.DefaultSearchPath}
	in, err := cmd.StdinPipe()
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	p := typed{in, sync.OnceValue(cmd.Wait)}
	t.Cleanup(p.ends)
	return p
}

func (p typed) ends() {
	p.in.Close()
	_ = p.wait() // its end is no success: nothing was typed
}

// TestOpenInTerminal: a message is refused while a terminal has the provider's
// session open: codex, which holds the transcript open, and claude, whose hook has
// said so.
func TestOpenInTerminal(t *testing.T) {
	r := newReal(t)
	r.runs("say:hello")
	info, err := r.Get(session, r.id)
	check(t, err)
	refused := func(why string) {
		t.Helper()
		if err := r.sends(alice, "say:no"); code(err) != string(protocol.ChatRunInProgress) {
			t.Errorf("%s: %v", why, err)
		}
	}
	taken := func() {
		t.Helper()
		if _, end := r.runs("say:yes"); *end.ExitCode != 0 {
			t.Errorf("%+v", end)
		}
	}
	taken() // its own process has it open

	transcript := filepath.Join(t.TempDir(), "rollout-2026-06-11T10-00-00-"+info.Native+".jsonl")
	codex := types(t, "codex", "pty_1", "exec 3>>"+transcript)
	refused("the transcript is open")
	codex.ends()
	taken()

	reader := types(t, "reader", "pty_1", "exec 3>>"+transcript)
	taken() // no coding agent
	reader.ends()

	claude := types(t, "claude", "pty_1", "")
	taken() // with another session, for all that is known
	r.hosting.AgentSession(session, "pty_1", "claude-code", info.Native)
	refused("a hook has said so")
	r.hosting.AgentSession(session, "pty_1", "claude-code", "another")
	taken() // it has gone on with another one
	r.hosting.AgentSession("ses_2", "pty_1", "claude-code", info.Native)
	taken() // of another session
	r.hosting.AgentSession(session, "pty_2", "claude-code", info.Native)
	taken() // it isn't in that terminal
	r.hosting.AgentSession(session, "pty_1", "claude-code", info.Native)
	r.hosting.AgentSession(session, "pty_1", "nobody", "another") // isn't known
	refused("again")
	claude.ends()
	taken() // the program has ended

	claude = types(t, "claude", "pty_1", "")
	refused("a program that has said nothing yet may have the session that the last one had")
	r.hosting.TerminalEnded(feature.Terminal{Session: session, PTY: "pty_1"})
	taken()
	claude.ends()
}
