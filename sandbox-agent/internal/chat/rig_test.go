package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/standin"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

func TestMain(m *testing.M) {
	standin.Hook()
	goleak.VerifyTestMain(m)
}

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
)

// patience is reached only by what hangs.
const patience = time.Minute

// A scripted provider's process prints what the test says, a word and a text in
// each line, and is told lines of the same form.
type scripted struct{}

func (scripted) Name() string { return "scripted" }
func (scripted) Capabilities() provider.Capabilities {
	return provider.Capabilities{Provider: "scripted"}
}
func (scripted) Check(s provider.Start, _ provider.Turn) error {
	if s.Mode == "lacking" {
		return protocol.Errorf(protocol.KindUnsupported, "scripted has no mode lacking")
	}
	return nil
}
func (scripted) Command(s provider.Start) provider.Command {
	return provider.Command{Program: "scripted", Args: []string{s.Native}}
}
func (scripted) Talk(s provider.Start) provider.Talk { return &scriptedTalk{start: s} }

type scriptedTalk struct {
	start provider.Start
	busy  bool
}

func say(format string, args ...any) provider.Effect {
	return provider.Write{Bytes: fmt.Appendf(nil, format, args...)}
}

func event(kind protocol.ChatKind, text string) provider.Effect {
	return provider.Emit{Event: protocol.ChatEvent{Kind: kind, Content: &text}}
}

func (t *scriptedTalk) Begin() []provider.Effect { return []provider.Effect{say("begin")} }
func (t *scriptedTalk) Send(turn provider.Turn) []provider.Effect {
	t.busy = true
	return []provider.Effect{say("send %s", turn.Content)}
}
func (t *scriptedTalk) Line(line []byte) []provider.Effect {
	word, text, _ := strings.Cut(string(line), " ")
	switch word {
	case "text":
		return []provider.Effect{event(protocol.ChatText, text)}
	case "delta":
		return []provider.Effect{event(protocol.ChatStreamDelta, text)}
	case "error":
		return []provider.Effect{event(protocol.ChatError, text)}
	case "end":
		return []provider.Effect{event(protocol.ChatStreamEnd, "")}
	case "native":
		return []provider.Effect{provider.Native{ID: text}}
	case "ask", "forever":
		id, rest, _ := strings.Cut(text, " ")
		tool, input, _ := strings.Cut(rest, " ")
		return []provider.Effect{provider.Ask{Question: id, Tool: tool, Input: json.RawMessage(input), Forever: word == "forever"}}
	case "withdraw":
		return []provider.Effect{provider.Withdraw{Question: text}}
	case "done", "last":
		t.busy = false
		code, _ := strconv.Atoi(text)
		return []provider.Effect{provider.Done{ExitCode: code, Last: word == "last"}}
	}
	return nil
}
func (t *scriptedTalk) Answer(q string, a provider.Answer) []provider.Effect {
	return []provider.Effect{say("answer %s %t %s%s", q, a.Allow, a.Message, a.UpdatedInput)}
}
func (t *scriptedTalk) Abort() []provider.Effect {
	if t.start.Model == unstoppable {
		return []provider.Effect{provider.Stop{}}
	}
	return []provider.Effect{say("abort")}
}
func (t *scriptedTalk) End(code int, stderr []byte) []provider.Effect {
	if !t.busy {
		return nil
	}
	return []provider.Effect{event(protocol.ChatError, "it ended: "+string(stderr)), provider.Done{ExitCode: max(code, 1), Last: true}}
}
func (t *scriptedTalk) Fits(s provider.Start) bool { return s.Model == t.start.Model }

// unstoppable is the model of a process whose turn only signals stop.
const unstoppable = "unstoppable"

// programs are those that a test plays.
type programs struct {
	dir     string
	started chan *played
	missing error

	mu      sync.Mutex
	resumed string // guarded by mu
}

func (p *programs) Start(ctx context.Context, program Program) (Process, error) {
	if p.missing != nil {
		return nil, p.missing
	}
	running := &played{
		program: program, told: make(chan string, 1024), lines: make(chan string), exit: make(chan struct{}), ends: make(chan struct{}),
	}
	select {
	case p.started <- running:
		return running, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *programs) Resumed(_ protocol.SessionID, native string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return native == p.resumed
}

// A played process is played by a test.
type played struct {
	program Program
	told    chan string
	lines   chan string
	exit    chan struct{} // closed: it has ended, with code and stderr
	ends    chan struct{} // closed: it was told to end

	mu       sync.Mutex
	code     int
	stderr   string
	over     bool
	ending   bool
	stubborn bool      // it can't be ended
	deaf     bool      // it doesn't end by itself
	left     time.Time // when its input ended; zero: it hasn't
	killed   bool      // it was told to end while it ran
	stale    bool
}

func (p *played) Write(b []byte) error {
	select {
	case p.told <- string(b):
		return nil
	default:
		return errors.New("doesn't read")
	}
}
func (p *played) CloseInput() {
	p.mu.Lock()
	deaf := p.deaf
	p.left = time.Now()
	p.mu.Unlock()
	if !deaf {
		p.quit(0, "")
	}
}
func (p *played) Line() ([]byte, error) {
	select {
	case line := <-p.lines:
		return []byte(line), nil
	case <-p.exit:
		return nil, io.EOF
	}
}
func (p *played) Wait() (int, []byte) {
	<-p.exit
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.code, []byte(p.stderr)
}
func (p *played) End(context.Context) error {
	p.mu.Lock()
	if !p.ending {
		p.ending, p.killed = true, !p.over
		close(p.ends)
	}
	stubborn, deaf := p.stubborn, p.deaf
	p.mu.Unlock()
	if stubborn {
		return errors.New("can't be ended")
	}
	if !deaf {
		p.quit(130, "")
	}
	<-p.exit
	return nil
}
func (p *played) Close() {
	p.End(context.Background())
	p.quit(137, "")
}
func (p *played) Stale() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stale
}

// leaving returns when the process's input ended, zero if it hasn't, and whether it
// was told to end while it ran.
func (p *played) leaving() (at time.Time, killed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left, p.killed
}

// deafen has the process not end by itself.
func (p *played) deafen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.deaf = true
}

// quit ends the process by itself.
func (p *played) quit(code int, stderr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over, p.code, p.stderr = true, code, stderr
		close(p.exit)
	}
}

// print prints lines, and returns when they were taken.
func (p *played) print(lines ...string) {
	for _, line := range lines {
		select {
		case p.lines <- line:
		case <-time.After(patience):
			panic("nobody reads: " + line)
		}
	}
}

// hear returns the next thing that the process is told.
func (p *played) hear(t testing.TB, want string) {
	t.Helper()
	select {
	case got := <-p.told:
		if got != want {
			t.Fatalf("told %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("not told %q", want)
	}
}

// A rig is conversations with programs that a test plays.
type rig struct {
	*Chats
	t         testing.TB
	dir       string
	programs  *programs
	approvals *approval.Log
	secrets   *mask.Secrets
	revoked   *jws.RevocationSet
	id        protocol.ConversationID
	commands  int
}

func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	return newRigIn(t, t.TempDir(), change...)
}

func newRigIn(t testing.TB, dir string, change ...func(*Options)) *rig {
	t.Helper()
	workspace := filepath.Join(dir, "workspace")
	check(t, os.MkdirAll(workspace, 0o755))
	approvals, err := approval.Open(approval.Options{Dir: filepath.Join(dir, "approvals")})
	check(t, err)
	r := &rig{
		t: t, dir: dir, programs: &programs{dir: dir, started: make(chan *played)}, approvals: approvals,
		secrets: &mask.Secrets{}, revoked: jws.NewRevocationSet(),
	}
	o := Options{
		Dir: filepath.Join(dir, "chat"), Workspace: workspace, Providers: []provider.Provider{scripted{}}, Programs: r.programs,
		Approvals: approvals, Secrets: r.secrets, Revoked: r.revoked,
	}
	for _, c := range change {
		c(&o)
	}
	r.Chats, err = Open(o)
	check(t, err)
	t.Cleanup(func() { r.close() })
	return r
}

func (r *rig) close() {
	check(r.t, r.Chats.Close())
	check(r.t, r.approvals.Close())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command returns a new command of a user's.
func (r *rig) command(user protocol.UserID) *jws.Command {
	r.commands++
	return &jws.Command{
		CommandID: protocol.CommandID(fmt.Sprintf("cmd_%d", r.commands)), UserID: user, GrantID: protocol.GrantID("gr_" + string(user)),
		Target: protocol.CommandTarget{SessionID: session}, Op: json.RawMessage(`{"kind":"chat.x"}`),
	}
}

// make makes a conversation.
func (r *rig) make() protocol.ConversationID {
	r.t.Helper()
	result, err := r.create(context.Background(), r.command(alice), &op.ChatCreate{Provider: "scripted", ProjectPath: "."})
	check(r.t, err)
	r.id = result.ConversationID
	return r.id
}

// sends sends a message as user.
func (r *rig) sends(user protocol.UserID, text string, options ...op.ChatOptions) error {
	body := &op.ChatSend{Conversation: r.id, Message: &protocol.ChatMessage{Content: text}, SenderName: "Name", ClientMessageID: "own name"}
	for _, o := range options {
		body.Options = o
	}
	_, err := r.send(context.Background(), r.command(user), body)
	return err
}

// begins sends a message as alice, and returns the process that is told it.
func (r *rig) begins(text string, options ...op.ChatOptions) *played {
	r.t.Helper()
	check(r.t, r.sends(alice, text, options...))
	p := r.started()
	p.hear(r.t, "begin")
	p.hear(r.t, "send "+text)
	return p
}

// follows makes a conversation with a run, which bob follows, and returns what he
// sees behind its message, and the process.
func (r *rig) follows() (*viewer, *played) {
	r.t.Helper()
	r.make()
	v := r.view(bob, protocol.ChatParams{})
	p := r.begins("go")
	v.event(protocol.ChatText)
	return v, p
}

func (r *rig) started() *played {
	r.t.Helper()
	select {
	case p := <-r.programs.started:
		return p
	case <-time.After(patience):
		r.t.Fatal("no process was started")
	}
	return nil
}

// aborts aborts as user.
func (r *rig) aborts(user protocol.UserID) error {
	_, err := r.abort(context.Background(), r.command(user), &op.ChatAbort{Conversation: r.id})
	return err
}

// grant returns a user's grant.
func grant(user protocol.UserID, caps ...protocol.Capability) *jws.Grant {
	return &jws.Grant{
		Subject: user, Session: session, ID: protocol.GrantID("gr_" + string(user)), Caps: append(caps, protocol.CapView),
		PTYs: []string{jws.AllPTYs}, ExpiresAt: time.Now().Add(time.Hour).Unix(),
	}
}

// code returns the code of an error.
func code(err error) string {
	if err == nil {
		return ""
	}
	code, _, _ := strings.Cut(protocol.AsError(err).Message, ":")
	return code
}
