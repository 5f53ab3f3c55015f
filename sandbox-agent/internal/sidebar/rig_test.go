package sidebar

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	session = protocol.SessionID("ses_1")
	alice   = protocol.UserID("usr_alice")
	bob     = protocol.UserID("usr_bob")
)

// talks are conversations that a test plays.
type talks struct {
	mu sync.Mutex
	// Guarded by mu.
	made    []*talk
	refuse  error // of Create
	holder  protocol.UserID
	stopped []protocol.ConversationID
}

// A talk is one of them.
type talk struct {
	id      protocol.ConversationID
	log     []protocol.ChatEvent
	ears    []*ear
	said    []*op.ChatSend
	context string
	running protocol.CommandID // "": nothing
	removed bool
	elsewhere
}

// elsewhere is why nothing can be said.
type elsewhere struct{ refusal error }

func (c *talks) Create(info chat.ConversationInfo) (chat.ConversationInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return info, c.refuse
	}
	info.ID = protocol.ConversationID(fmt.Sprintf("c%d", len(c.made)+1))
	c.made = append(c.made, &talk{id: info.ID})
	return info, nil
}

func (c *talks) find(id protocol.ConversationID) *talk {
	for _, k := range c.made {
		if k.id == id {
			return k
		}
	}
	return nil
}

func (c *talks) Say(command *jws.Command, body *op.ChatSend, context string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.find(body.Conversation)
	switch {
	case k == nil:
		return chatsocket.NewFault(protocol.ChatSessionNotFound, string(body.Conversation)).Error()
	case k.refusal != nil:
		return k.refusal
	case k.running != "":
		return chatsocket.NewFault(protocol.ChatRunInProgress, string(k.id)).Error()
	}
	k.said, k.context = append(k.said, body), context
	k.begin(command.CommandID, body.Message.Content)
	return nil
}

// begin begins a run. The caller holds the talks' mu.
func (k *talk) begin(command protocol.CommandID, text string) {
	k.running = command
	k.emit(protocol.ChatEvent{Kind: protocol.ChatText, Role: "user", Content: &text, CommandID: command})
}

func (c *talks) MayStop(_ protocol.SessionID, id protocol.ConversationID, user protocol.UserID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder != "" && c.holder != user {
		return chatsocket.NewFault(protocol.ChatNotController, string(id)).Error()
	}
	return nil
}

func (c *talks) Stop(_ protocol.SessionID, id protocol.ConversationID, _ protocol.UserID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.find(id)
	if k == nil || k.running == "" {
		return chatsocket.NewFault(protocol.ChatNoActiveRun, string(id)).Error()
	}
	c.stopped = append(c.stopped, id)
	k.complete(1, true)
	return nil
}

// complete ends the run. The caller holds the talks' mu.
func (k *talk) complete(code int, aborted bool) {
	k.emit(protocol.ChatEvent{Kind: protocol.ChatComplete, CommandID: k.running, ChatEnd: protocol.ChatEnd{
		ExitCode: &code, Success: new(code == 0), Aborted: &aborted,
	}})
	k.running = ""
}

func (c *talks) Listen(_ protocol.SessionID, id protocol.ConversationID, after uint64) (Listening, protocol.ChatState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.find(id)
	if k == nil || k.removed {
		return nil, protocol.ChatState{}, chatsocket.NewFault(protocol.ChatSessionNotFound, string(id)).Error()
	}
	state := protocol.ChatState{Run: protocol.RunIdle}
	if k.running != "" {
		state = protocol.ChatState{Run: protocol.RunRunning, CommandID: k.running}
	}
	e := &ear{events: make(chan protocol.ChatEvent, len(k.log)+1000)}
	for _, event := range k.log {
		if event.Seq > after {
			e.events <- event
		}
	}
	k.ears = append(k.ears, e)
	return e, state, nil
}

// firstSeq is the number of a conversation's first event.
const firstSeq = 1_000_000

// emit has an event happen. The caller holds the talks' mu.
func (k *talk) emit(e protocol.ChatEvent) {
	e.Seq = firstSeq + uint64(len(k.log))
	k.log = append(k.log, e)
	for _, ear := range k.ears {
		ear.events <- e
	}
}

// remove removes the conversation. The caller holds the talks' mu.
func (k *talk) remove() {
	k.removed = true
	for _, ear := range k.ears {
		close(ear.events)
	}
	k.ears = nil
}

// An ear hears a conversation.
type ear struct{ events chan protocol.ChatEvent }

func (l *ear) Next(ctx context.Context) (e protocol.ChatEvent, err error) {
	there := true
	select {
	case e, there = <-l.events:
	default:
		select {
		case e, there = <-l.events:
		case <-ctx.Done():
			return e, ctx.Err()
		}
	}
	if !there {
		err = io.EOF
	}
	return e, err
}

func (l *ear) Close() {}

// A rig is a panel with conversations that a test plays.
type rig struct {
	t *testing.T
	*Sidebars
	talks    *talks
	secrets  *mask.Secrets
	revoked  *jws.RevocationSet
	activity *activity.Log
	dir      string
	browser  browserTabs
	commands int
}

// browserTabs are a browser's; −2 stands for a tab 2 that was closed.
type browserTabs []BrowserTab

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, talks: &talks{}, secrets: &mask.Secrets{}, revoked: jws.NewRevocationSet(), activity: &activity.Log{}, dir: t.TempDir()}
	r.open()
	return r
}

// open starts the panels, again after close.
func (r *rig) open() {
	r.t.Helper()
	s, err := Open(Options{
		Dir: r.dir, Workspace: r.dir, Conversations: r.talks, Browser: &r.browser, Activity: r.activity, Tools: []string{"Read"},
		Revoked: r.revoked, Secrets: r.secrets,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Sidebars = s
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
}

// do carries out an operation as a user.
func (r *rig) do(user protocol.UserID, kind string, body op.Body) (op.SidebarResult, error) {
	r.t.Helper()
	r.commands++
	text, err := json.Marshal(op.Op{Kind: kind, Body: body})
	if err != nil {
		r.t.Fatal(err)
	}
	command := &jws.Command{
		CommandID: protocol.CommandID(fmt.Sprintf("cmd_%d", r.commands)), UserID: user, GrantID: protocol.GrantID("gr_" + string(user)),
		IssuedAt: time.Now().UnixMilli(), Target: protocol.CommandTarget{SessionID: session}, Op: text,
	}
	run, err := r.Operations()[kind](command, body)
	if err != nil {
		r.t.Fatal(err)
	}
	result, err := run(context.Background())
	synctest.Wait()
	if err != nil {
		return op.SidebarResult{}, err
	}
	var answer op.SidebarResult
	if err := json.Unmarshal(result.Sidebar, &answer); err != nil {
		r.t.Fatal(err)
	}
	return answer, nil
}

// sends sends a message to a tab, and returns at which position it waits.
func (r *rig) sends(tab int64, text string) int {
	r.t.Helper()
	result, err := r.do(alice, op.KindSidebarSend, &op.SidebarSend{Message: text, TabID: tab})
	if err != nil {
		r.t.Fatalf("%q: %v", text, err)
	}
	return result.Position
}

// stops stops a tab, or all.
func (r *rig) stops(tab int64) int {
	r.t.Helper()
	result, err := r.do(alice, op.KindSidebarStop, &op.SidebarStop{TabID: tab})
	if err != nil {
		r.t.Fatal(err)
	}
	return result.QueuedMessages
}

// plays has a conversation say something, and the panel hear it.
func (r *rig) plays(id protocol.ConversationID, play func(*talk)) {
	r.t.Helper()
	r.talks.mu.Lock()
	k := r.talks.find(id)
	if k == nil {
		r.t.Fatalf("there is no conversation %s", id)
	}
	play(k)
	r.talks.mu.Unlock()
	synctest.Wait()
}

func says(kind protocol.ChatKind, text string) func(*talk) {
	return func(k *talk) { k.emit(protocol.ChatEvent{Kind: kind, Role: "assistant", Content: &text}) }
}

func done(k *talk) { k.complete(0, false) }

// get asks a route.
func (r *rig) get(path string, into any) *httptest.ResponseRecorder {
	r.t.Helper()
	mux := http.NewServeMux()
	r.Routes(mux)
	w := httptest.NewRecorder()
	request := httptest.NewRequest(http.MethodGet, "/sessions/"+string(session)+"/"+path, nil)
	grant := &jws.Grant{Session: session, Caps: []protocol.Capability{protocol.CapView}}
	mux.ServeHTTP(w, request.WithContext(route.WithGrant(request.Context(), grant)))
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			r.t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	return w
}

// polls returns the entries of a tab, 0 for all, as words, and how the panel
// stands.
func (r *rig) polls(after uint64, tab int64) (string, chatAnswer) {
	r.t.Helper()
	var answer chatAnswer
	r.get(fmt.Sprintf("sidebar/chat?after=%d&tabId=%d", after, tab), &answer)
	return words(answer.Entries), answer
}

// words are entries in short.
func words(entries []Entry) string {
	var all []string
	for _, e := range entries {
		word := e.Type
		if e.Role == roleUser {
			word = "user"
		}
		if text := e.Message + e.Text + e.Input + e.Error; text != "" {
			word += ":" + text
		}
		all = append(all, word)
	}
	return strings.Join(all, " | ")
}

// stands requires how a tab stands.
func (r *rig) stands(tab int64, want string) {
	r.t.Helper()
	if _, answer := r.polls(0, tab); answer.AgentStatus != want {
		r.t.Errorf("tab %d is %s, want %s", tab, answer.AgentStatus, want)
	}
}

// shows requires the entries of a tab.
func (r *rig) shows(tab lineup.Tab, want string) {
	r.t.Helper()
	if got, _ := r.polls(0, int64(tab)); got != want {
		r.t.Errorf("tab %d:\n%s\nwant\n%s", tab, got, want)
	}
}
