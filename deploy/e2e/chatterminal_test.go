package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// An elsewhere is a conversation that goes on in terminals.
type elsewhere struct {
	t     *testing.T
	s     *Stack
	ctx   context.Context
	id    protocol.ConversationID
	alice *Talker
	look  *Talker // one that knows our own kinds
	shown bytes.Buffer
}

// continues has a user go on with the conversation in a terminal.
func (e *elsewhere) continues(user string, status int) protocol.PTYID {
	e.t.Helper()
	u := e.s.Ready.User(user)
	grant, err := u.Grant(e.ctx, e.s.Ready.SessionID)
	must(e.t, err)
	got, answer, err := Call(e.ctx, http.MethodPost, u.Base+"/sessions/"+string(e.s.Ready.SessionID)+"/ptys", grant,
		map[string]any{"conversation": e.id, "record": user == "alice"})
	must(e.t, err)
	e.shown.Write(answer)
	if got != status {
		e.t.Fatalf("%s goes on in a terminal: %d %s, want %d", user, got, answer, status)
	}
	var made protocol.PTYInfo
	if status == http.StatusCreated {
		must(e.t, json.Unmarshal(answer, &made))
	}
	return made.ID
}

// is waits until everybody is told that the conversation is in a terminal; "": in
// none.
func (e *elsewhere) is(in protocol.PTYID) {
	e.t.Helper()
	must(e.t, e.look.Await(e.ctx, "run_state", e.id, func(k *Talk) bool {
		var run struct {
			State    protocol.RunState
			Terminal protocol.PTYID
		}
		return json.Unmarshal(k.Run, &run) == nil && run.State == protocol.RunIdle && run.Terminal == in
	}))
}

// recalls has alice ask by chat what was said so far, in run n.
func (e *elsewhere) recalls(n int, want ...string) {
	e.t.Helper()
	must(e.t, e.alice.Send(e.ctx, e.id, "recall"))
	_, err := e.alice.AwaitComplete(e.ctx, e.id, n)
	must(e.t, err)
	var last string
	for _, event := range e.alice.Events(e.id) {
		if event.Kind == protocol.ChatText && event.Role == "assistant" {
			last = *event.Content
		}
	}
	if last != strings.Join(want, "\n") {
		e.t.Errorf("by chat it recalls %q, want %q", last, want)
	}
}

// get asks for something below the session.
func (e *elsewhere) get(path string) []byte {
	e.t.Helper()
	u := e.s.Ready.User("alice")
	grant, err := u.Grant(e.ctx, e.s.Ready.SessionID)
	must(e.t, err)
	status, answer, err := Call(e.ctx, http.MethodGet, u.Base+path, grant, nil)
	must(e.t, err)
	if status != http.StatusOK {
		e.t.Fatalf("%s: %d %s", path, status, answer)
	}
	e.shown.Write(answer)
	return answer
}

// goesOnInTerminal: what was said by chat goes on in a terminal, in which nothing
// can be sent by chat, and what was said there goes on by chat. Nobody sees what
// the provider calls the session.
func goesOnInTerminal(t *testing.T, s *Stack) {
	ctx := within(t)
	id, k := talks(t, s, "claude", "alice", "bob")
	look := s.Ready.User("carol").Talk(t.Context(), Talking{Session: s.Ready.SessionID, Hello: true})
	t.Cleanup(look.Close)
	must(t, look.Follow(ctx, id))
	e := &elsewhere{t: t, s: s, ctx: ctx, id: id, alice: k[0], look: look}
	e.continues("alice", http.StatusConflict) // nothing was said
	must(t, k[0].Send(ctx, id, "say:by chat"))
	_, err := k[0].AwaitComplete(ctx, id, 1)
	must(t, err)
	e.is("")
	e.continues("bob", http.StatusForbidden)   // alice writes
	e.continues("carol", http.StatusForbidden) // who may see

	pty := e.continues("alice", http.StatusCreated)
	e.is(pty)
	term := attach(t, s, "alice", pty)
	must(t, term.Expect(ctx, "> say:by chat"))
	e.continues("alice", http.StatusConflict) // it is there
	must(t, term.Type(ctx, "typed there\r"))
	must(t, term.Expect(ctx, "You said: typed there"))
	must(t, k[0].Send(ctx, id, "say:too early"))
	if refused, err := k[0].AwaitError(ctx, 0); err != nil || refused.Code != protocol.ChatRunInProgress {
		t.Errorf("sent while a terminal has it: %+v, %v", refused, err)
	}
	e.get("/sessions/" + string(s.Ready.SessionID) + "/ptys")
	must(t, term.Type(ctx, "/exit\r"))
	if _, err := term.ExpectMessage(ctx, protocol.ServerPTYClosed, nil); err != nil {
		t.Error(err)
	}
	e.is("")
	if said := e.get("/api/providers/sessions/" + string(id) + "/messages"); !bytes.Contains(said, []byte("You said: typed there")) {
		t.Errorf("its history lacks what was said in the terminal: %s", said)
	}
	e.recalls(2, "say:by chat", "typed there")

	pty = e.continues("alice", http.StatusCreated) // and back by the terminal's end
	e.is(pty)
	again := attach(t, s, "alice", pty)
	must(t, again.Expect(ctx, "> recall"))
	grant, err := s.Ready.User("alice").Grant(ctx, s.Ready.SessionID)
	must(t, err)
	must(t, call(ctx, http.StatusNoContent, nil, http.MethodDelete, s.Ready.User("alice").Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys/"+string(pty), grant, nil))
	e.is("")
	e.recalls(3, "say:by chat", "typed there", "recall")
	e.unseen(append(term.Output(), again.Output()...), append(k, look))
}

// unseen checks that the provider's own id of the session is nowhere outside the
// sandbox: in no frame, list, recording or log.
func (e *elsewhere) unseen(printed []byte, all []*Talker) {
	e.t.Helper()
	var list protocol.RecordingList
	must(e.t, json.Unmarshal(e.get("/sessions/"+string(e.s.Ready.SessionID)+"/recordings"), &list))
	if len(list.Recordings) != 2 {
		e.t.Errorf("%d recordings", len(list.Recordings))
	}
	for _, r := range list.Recordings {
		if r.Command != "claude" {
			e.t.Errorf("a recording is of %q", r.Command)
		}
		e.get("/sessions/" + string(e.s.Ready.SessionID) + "/recordings/" + url.PathEscape(r.ID))
	}
	e.shown.Write(printed)
	for _, k := range all {
		for _, event := range k.Events(e.id) {
			e.shown.Write(event.Raw)
		}
		must(e.t, k.Await(e.ctx, "nothing", e.id, func(t *Talk) bool {
			e.shown.Write(bytes.Join(append([][]byte{t.Control, t.Run, t.Viewers}, asBytes(k.news)...), []byte("\n")))
			return true
		}))
	}
	logs, err := filepath.Glob(filepath.Join(e.s.Dir, "logs", "*.log"))
	must(e.t, err)
	for _, file := range logs {
		text, err := os.ReadFile(file)
		must(e.t, err)
		e.shown.Write(text)
	}
	homes, err := flagOf(e.s.Ready.Sandboxes[0].PID, "--homes")
	must(e.t, err)
	transcripts, err := filepath.Glob(filepath.Join(homes, ".kept", string(e.s.Ready.SessionID), "home/.claude/projects/*/*.jsonl"))
	must(e.t, err)
	if len(transcripts) != 1 || len(logs) == 0 || !bytes.Contains(e.shown.Bytes(), []byte("session *****")) {
		e.t.Fatalf("nothing is compared: %q %q", transcripts, logs)
	}
	native := strings.TrimSuffix(filepath.Base(transcripts[0]), ".jsonl")
	if at := bytes.Index(e.shown.Bytes(), []byte(native)); at >= 0 {
		e.t.Errorf("the provider's id is to be seen: …%s", e.shown.Bytes()[max(at-300, 0):at+len(native)])
	}
}

func asBytes(all []json.RawMessage) (texts [][]byte) {
	for _, one := range all {
		texts = append(texts, one)
	}
	return texts
}

// continueInBrowser: bob, who writes, has the conversation go on in a terminal and
// comes back; carol sees where it is, and what is said there.
func continueInBrowser(bob, carol *window) {
	both := []*window{bob, carol}
	bob.until(`!document.querySelector('[data-testid=btn-chat-continue]').disabled`)
	bob.click("btn-chat-continue")
	bob.untilScreen("claude stand-in, session *****")
	for _, w := range both {
		w.untilText("chat-elsewhere", "goes on in the terminal “claude")
	}
	carol.until(`!document.querySelector('[data-testid=btn-chat-end]').checkVisibility()`)
	bob.typeLine("typed-there")
	bob.untilScreen("You said: typed-there")
	for _, w := range both {
		w.until(said("typed-there") + " === 2") // his words, and the agent's
		w.shoot("elsewhere")
	}
	bob.until(`document.querySelector('[data-testid=btn-chat-send]').disabled`)
	bob.click("btn-chat-end")
	bob.run(chromedp.Click(chromedp.CSS("#ask-yes"), chromedp.NodeVisible))
	for _, w := range both {
		w.until(`!document.querySelector('[data-testid=chat-elsewhere]').checkVisibility()`)
	}
	bob.message("recall")
	for _, w := range both {
		w.until(said("typed-there") + " === 3") // the agent knows
		w.shoot("back")
	}
}
