package chatapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

const send, abort = `{"type":"chat.send","sessionId":"` + conv + `","content":"hi"}`, `{"type":"chat.abort","sessionId":"` + conv + `"}`

// sync expects that nothing has come before the ack of a further subscription.
func (u *user) sync() {
	u.t.Helper()
	u.say(subscribe(conv))
	u.acked(conv)
}

// TestCodes: codes and texts, byte for byte (chat-and-shell-2.md 2.1).
func TestCodes(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice", protocol.CapChat))
	for _, tt := range []struct {
		frame string
		code  protocol.ChatCode
		of    string
		text  string
	}{
		{`{"type":"chat.send","content":"x"}`, "SESSION_ID_REQUIRED", "null", "chat.send requires a sessionId."},
		{`{"type":"chat.send","sessionId":"  "}`, "SESSION_ID_REQUIRED", "null", "chat.send requires a sessionId."},
		{`{"type":"chat.abort","sessionId":7}`, "SESSION_ID_REQUIRED", "null", "chat.abort requires a sessionId."},
		{`{"type":"chat.send","sessionId":"` + none + `"}`, "SESSION_NOT_FOUND", none, `Session "` + none + `" was not found. Create it via POST /api/providers/sessions first.`},
		{`{"type":"chat.send","sessionId":"../x"}`, "SESSION_NOT_FOUND", "../x", `Session "../x" was not found. Create it via POST /api/providers/sessions first.`},
		{`{"type":"chat.abort","sessionId":"` + none + `"}`, "NO_ACTIVE_RUN", none, `Session "` + none + `" has no active run.`},
		{abort, "NO_ACTIVE_RUN", conv, `Session "` + conv + `" has no active run.`},
		{`{"type":"chat.edit"}`, "UNKNOWN_MESSAGE_TYPE", "null", `Unknown message type "chat.edit".`},
		{`{}`, "UNKNOWN_MESSAGE_TYPE", "null", `Unknown message type "".`},
		{`{"type":[]}`, "UNKNOWN_MESSAGE_TYPE", "null", `Unknown message type "".`},
		{" ", "INTERNAL_ERROR", "null", "Invalid websocket payload"},
		{"hello", "INTERNAL_ERROR", "null", "Invalid websocket payload"},
		{"[1]", "INTERNAL_ERROR", "null", "Invalid websocket payload"},
		{"7", "INTERNAL_ERROR", "null", "Invalid websocket payload"},
		{"{\"type\":\"\xff\"}", "INTERNAL_ERROR", "null", "Invalid websocket payload"},
		{`{"type":"chat.send","sessionId":"` + conv + `","clientMessageId":"` + strings.Repeat("x", 129) + `"}`, "INTERNAL_ERROR", conv, ""},
		{`{"type":"chat.request_control"}`, "SESSION_ID_REQUIRED", "null", "chat.request_control requires a sessionId."},
		{`{"type":"chat.reauth","grant":"x"}`, "FORBIDDEN", "null", ""},
	} {
		u.say(tt.frame)
		u.refused(tt.code, tt.of, tt.text)
	}
	if err := u.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"type":"binary"}`)); err != nil {
		t.Fatal(err)
	}
	u.refused("UNKNOWN_MESSAGE_TYPE", "null", `Unknown message type "binary".`)
	u.say(`{"type":"chat.permission-response"}`) // silence
	u.say(`{"type":"chat.permission-response","requestId":"unknown","allow":true}`)
	u.sync()
	if n := len(w.ops()); n != 0 {
		t.Errorf("%d operations were signed", n)
	}
}

// TestOrder: of several reasons for a refusal the first one in the order is
// told.
// It is about weaknesses 7 and 8 in deploy/e2e/README.md.
func TestOrder(t *testing.T) {
	busy := protocol.ChatState{Run: protocol.RunRunning, CommandID: "cmd_1", Provider: "claude", BeganAt: 1}
	free, held := protocol.Lease{Revision: 2, State: protocol.LeaseFree}, protocol.Lease{Revision: 3, Term: 1, Holder: "usr_bob", GrantID: "gr_bob", State: protocol.LeaseHeld}
	unsupported := busy
	unsupported.Unsupported = true
	lifting := `{"type":"chat.send","sessionId":"` + conv + `","options":{"permissionMode":"bypassPermissions"}}`
	for _, tt := range []struct {
		name  string
		who   func(*jws.Grant)
		state protocol.ChatState
		lease protocol.Lease
		frame string
		want  protocol.ChatCode
	}{
		{"no capability", caps("carol"), unsupported, held, send, "FORBIDDEN"},
		{"lifts questions", caps("alice", protocol.CapChat), unsupported, held, lifting, "FORBIDDEN"},
		{"unsupported", caps("alice", protocol.CapChat), unsupported, held, send, "UNSUPPORTED_PROVIDER"},
		{"not the controller", caps("alice", protocol.CapChat), busy, held, send, "NOT_CONTROLLER"},
		{"busy", caps("alice", protocol.CapChat), busy, free, send, "RUN_IN_PROGRESS"},
		{"the controller's own", caps("bob", protocol.CapChat), busy, held, send, "RUN_IN_PROGRESS"},
		{"no control plane", caps("alice", protocol.CapChat), protocol.ChatState{Run: protocol.RunIdle, Provider: "claude"}, free, send, "UNAVAILABLE"},
		{"lifts with the right to", caps("alice", protocol.CapChat, protocol.CapApprove), protocol.ChatState{Run: protocol.RunIdle, Provider: "claude"}, free, lifting, "UNAVAILABLE"},
		{"abort without the capability", caps("carol"), busy, held, abort, "FORBIDDEN"},
		{"abort of somebody else's", caps("alice", protocol.CapChat), busy, held, abort, "NOT_CONTROLLER"},
		{"abort by the owner", caps("alice", protocol.CapChat, protocol.CapAdmin), busy, held, abort, "UNAVAILABLE"},
		{"abort of a free one", caps("alice", protocol.CapChat), busy, free, abort, "UNAVAILABLE"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.sign = func(dispatch.SignRequest) (int, string) { return http.StatusServiceUnavailable, "" }
			w.state, w.lease = tt.state, tt.lease
			u := w.join(tt.who)
			u.settle(tt.state, tt.lease)
			u.say(tt.frame)
			u.refused(tt.want, conv, "")
		})
	}
}

// settle waits until the relay knows a state and a lease.
func (u *user) settle(state protocol.ChatState, lease protocol.Lease) {
	u.t.Helper()
	u.say(`{"type":"chat.hello"}`)
	u.say(subscribe(conv))
	u.acked(conv)
	run, controller := false, false
	for !run || !controller {
		_, data, err := u.conn.Read(u.t.Context())
		if err != nil {
			u.t.Fatal(err)
		}
		var m struct {
			Kind       string
			State      string
			Controller string
		}
		json.Unmarshal(data, &m)
		switch m.Kind {
		case "run_state":
			run = m.State == string(state.Run)
		case "control_state":
			controller = m.Controller == string(lease.Holder)
		}
	}
	u.say(`{"type":"flush"}`)
	for u.next().Kind != "protocol_error" { // presence
	}
}

// TestSend: a message becomes a signed command in the sender's name.
func TestSend(t *testing.T) {
	w := newWorld(t)
	executed := make(chan *jws.Command, 8)
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("alice", protocol.CapChat))
	u.say(`{"type":"chat.send","sessionId":" ` + conv + ` ","content":"hi","options":{"model":"m","permissionMode":"plan","toolsSettings":{"allowedTools":[],"disallowedTools":["Bash"]},"images":[{"name":"a","data":"data:image/png;base64,AA==","mimeType":"image/png"}]}}`)
	u.say(send)
	first, second := <-executed, <-executed
	want := `{"kind":"chat.send","conversation":"` + conv + `","message":{"content":"hi","images":[{"name":"a","data":"data:image/png;base64,AA==","mimeType":"image/png"}]},` +
		`"options":{"model":"m","permissionMode":"plan","disallowedTools":["Bash"]}}`
	if string(first.Op) != want || first.Target != (protocol.CommandTarget{SandboxID: relaytest.Sandbox, SessionID: relaytest.Session}) {
		t.Errorf("%s\nfor %+v, want\n%s", first.Op, first.Target, want)
	}
	if _, _, err := op.Decode(first.Op); err != nil {
		t.Error(err)
	}
	if first.CommandID == second.CommandID {
		t.Error("two frames are one command")
	}
	u.sync() // no ack of success
}

// TestOwnText: whoever sends follows from then on, and isn't sent the text that its
// client has shown, unless that wants it; everybody else is.
func TestOwnText(t *testing.T) {
	w := newWorld(t)
	seq := uint64(0)
	w.execute = func(c *jws.Command) protocol.Result {
		for _, e := range []protocol.Chat{{Origin: c.CommandID, Bytes: []byte(`{"kind":"text","content":"question"}`)}, {Bytes: []byte(`{"kind":"text","content":"answer"}`)}} {
			seq++
			e.Seq = seq
			w.says(e)
		}
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	told := func(u *user, want ...string) {
		t.Helper()
		for _, content := range want {
			f := u.next()
			for f.Kind != "text" {
				f = u.next()
			}
			if f.Content != content {
				t.Errorf("%q, want %q", f.Content, content)
			}
		}
	}
	sender, other, echo := w.join(caps("alice", protocol.CapChat)), w.join(caps("bob")), w.join(caps("alice", protocol.CapChat))
	other.sync()
	echo.say(`{"type":"chat.hello","features":["echo"]}`)
	sender.say(send)
	told(sender, "answer")
	told(other, "question", "answer")
	echo.say(send)
	told(echo, "question", "answer")
	told(sender, "question", "answer")
	sender.sync()
}

// TestKeys: the same name is another message in another conversation or session.
func TestKeys(t *testing.T) {
	keys := map[string]bool{}
	for _, session := range []protocol.SessionID{"ses_1", "ses_2"} {
		for _, id := range []protocol.ConversationID{conv, none} {
			for _, name := range []string{"a", "b", "", ""} { // without a name each is another one
				s := sending{c: &client{session: session}}
				s.q.SessionID, s.q.ClientMessageID = id, name
				keys[s.firstKey()] = true
				if name != "" && !keys[s.firstKey()] {
					t.Errorf("%s has several keys", name)
				}
			}
		}
	}
	if len(keys) != 16 {
		t.Errorf("%d keys", len(keys))
	}
}

// TestUnknownOutcome: while nobody knows what became of a command, the same one is
// sent again.
func TestUnknownOutcome(t *testing.T) {
	defer func(d time.Duration) { askAgain = d }(askAgain)
	askAgain = time.Millisecond
	w := newWorld(t)
	executed := make(chan protocol.CommandID, 8)
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c.CommandID
		if len(executed) == 1 {
			return protocol.Result{}
		}
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("alice", protocol.CapChat))
	u.say(send)
	u.say(abort) // comes after it
	u.refused("NO_ACTIVE_RUN", conv, "")
	if len(executed) != 2 || <-executed != <-executed {
		t.Error("not the same command twice")
	}
}

// TestLargeMessage: what doesn't fit into a command is put into the sandbox before.
func TestLargeMessage(t *testing.T) {
	w := newWorld(t)
	type put struct{ path, grant, body, other string }
	puts, executed := make(chan put, 1), make(chan *jws.Command, 1)
	status := http.StatusNoContent
	w.serve = func(answer http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		puts <- put{r.Method + " " + r.URL.Path, r.Header.Get("X-Grant"), string(body), r.Header.Get("Authorization") + r.Header.Get("Cookie")}
		answer.WriteHeader(status)
	}
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("alice", protocol.CapChat))
	large := strings.Repeat("é", protocol.MaxChatInline)
	frame := `{"type":"chat.send","sessionId":"` + conv + `","content":"` + large + `"}`
	u.say(frame)
	p, c := <-puts, <-executed
	sum := sha256.Sum256([]byte(p.body))
	digest := hex.EncodeToString(sum[:])
	if p.path != "PUT /sessions/ses_1/chats/"+conv+"/messages/"+digest || p.grant == "" || p.other != "" || p.body != `{"content":"`+large+`"}` {
		t.Errorf("%s by %.10s, %.40s", p.path, p.grant, p.body)
	}
	if want := `{"kind":"chat.send","conversation":"` + conv + `","messageSha256":"` + digest + `","options":{}}`; string(c.Op) != want && string(c.Op) != strings.Replace(want, `,"options":{}`, "", 1) {
		t.Errorf("%s", c.Op)
	}
	html := strings.Repeat("<&>", protocol.MaxChatInline/3) // it would be six times as large
	u.say(`{"type":"chat.send","sessionId":"` + conv + `","content":"` + html + `"}`)
	if p, c := <-puts, <-executed; p.body != `{"content":"`+html+`"}` || !strings.Contains(string(c.Op), p.path[len(p.path)-64:]) {
		t.Errorf("%.40s, %s", p.body, c.Op)
	}
	for code, want := range map[int]protocol.ChatCode{429: "UNAVAILABLE", 507: "UNAVAILABLE", 400: "INTERNAL_ERROR", 413: "INTERNAL_ERROR", 403: "FORBIDDEN"} {
		status = code
		u.say(frame)
		<-puts
		u.refused(want, conv, "")
	}
}

// TestFaults: the sandbox's refusals come to the sender with their codes and texts.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice", protocol.CapChat))
	for _, fault := range []protocol.ChatFault{
		{Code: protocol.ChatRunInProgress, Text: `Session "` + conv + `" already has a run in progress.`},
		{Code: protocol.ChatTooManyRuns, Text: "wait"}, {Code: protocol.ChatForbidden, Text: "not there"},
		{Code: protocol.ChatNotController, Text: "no"}, {Code: protocol.ChatUnsupportedProvider, Text: `Provider "x" is not available.`},
	} {
		w.refuses(fault)
		u.say(send)
		u.refused(fault.Code, conv, fault.Text)
	}
}

// TestRefusedByTheControlPlane: each answer of the control plane has its code.
func TestRefusedByTheControlPlane(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice", protocol.CapChat))
	for status, want := range map[int]protocol.ChatCode{
		409: "INTERNAL_ERROR", 400: "INTERNAL_ERROR", 403: "FORBIDDEN", 401: "FORBIDDEN", 404: "SESSION_NOT_FOUND", 429: "UNAVAILABLE", 500: "UNAVAILABLE", 503: "UNAVAILABLE",
	} {
		w.mu.Lock()
		w.sign = func(dispatch.SignRequest) (int, string) { return status, "because" }
		w.mu.Unlock()
		u.say(`{"type":"chat.send","sessionId":"` + conv + `","clientMessageId":"m1"}`)
		if f := u.refused(want, conv, ""); f.ClientMessageID != "m1" {
			t.Errorf("%d: the message is %q", status, f.ClientMessageID)
		}
	}
}

// TestResend: the same clientMessageId is the same command, also while its run is
// under way; another one is refused meanwhile.
func TestResend(t *testing.T) {
	w := newWorld(t)
	executed := make(chan protocol.CommandID, 8)
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c.CommandID
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("alice", protocol.CapChat))
	message := func(id string) string {
		return `{"type":"chat.send","sessionId":"` + conv + `","content":"hi","clientMessageId":"` + id + `"}`
	}
	u.say(message("a"))
	run := <-executed
	running := protocol.ChatState{Run: protocol.RunRunning, CommandID: run, UserID: "usr_alice", ClientMessageID: "a", Provider: "claude", BeganAt: 1}
	w.says(running)
	other := w.join(caps("alice", protocol.CapChat))
	other.settle(running, protocol.Lease{})
	other.say(message("a")) // silence
	other.say(message("b"))
	other.refused("RUN_IN_PROGRESS", conv, `Session "`+conv+`" already has a run in progress.`)
	other.say(send)
	other.refused("RUN_IN_PROGRESS", conv, "")
	w.api.resends.mu.Lock()
	clear(w.api.resends.of) // as after a restart of the relay
	w.api.resends.mu.Unlock()
	other.say(message("a")) // silence: the sandbox has named what runs
	bob := w.join(caps("bob", protocol.CapChat))
	bob.say(message("a")) // his own
	bob.refused("RUN_IN_PROGRESS", conv, "")
	if len(executed) != 0 {
		t.Errorf("%s was executed, too", <-executed)
	}
	w.mu.Lock()
	w.sign = func(dispatch.SignRequest) (int, string) { return http.StatusConflict, "another body" }
	w.mu.Unlock()
	other.say(message("a"))
	other.refused("INTERNAL_ERROR", conv, "This clientMessageId was used for another message.")
	keys := map[string]bool{}
	for _, s := range w.ops() {
		keys[s.IdempotencyKey] = true
	}
	if len(keys) != 1 {
		t.Errorf("%d keys for one message: what is refused isn't signed", len(keys))
	}
}

// TestRefusedBefore: a message that the sandbox has refused can be sent again under
// its name, and then runs once; another message under that name can't.
func TestRefusedBefore(t *testing.T) {
	w := newWorld(t)
	u := w.join(caps("alice", protocol.CapChat))
	const message = `{"type":"chat.send","sessionId":"` + conv + `","content":"hi","clientMessageId":"a"}`
	refusals := map[protocol.CommandID]bool{}
	for range 3 {
		w.refuses(protocol.ChatFault{Code: protocol.ChatRunInProgress, Text: "in a terminal"}) // the relay doesn't know
		u.say(message)
		u.refused("RUN_IN_PROGRESS", conv, "in a terminal")
	}
	for _, env := range w.keys {
		refusals[env.CommandID] = true
	}
	executed := make(chan protocol.CommandID, 8)
	w.mu.Lock()
	w.execute = func(c *jws.Command) protocol.Result {
		if refusals[c.CommandID] {
			t.Error("a refused command has come again: it stays refused")
		}
		executed <- c.CommandID
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	w.mu.Unlock()
	for range 3 {
		u.say(message) // silence
	}
	u.sync()
	if n := len(executed); n != 1 {
		t.Errorf("it has run %d times", n)
	}
	first := w.ops()[0].IdempotencyKey
	w.mu.Lock()
	w.sign = func(r dispatch.SignRequest) (int, string) {
		if r.IdempotencyKey == first {
			return http.StatusConflict, "another body"
		}
		return 0, ""
	}
	w.mu.Unlock()
	u.say(message)
	u.refused("INTERNAL_ERROR", conv, "This clientMessageId was used for another message.")
}

// TestNothingWaitsForTheControlPlane: while a send waits, other conversations, new
// subscriptions and answers go on; what comes after it for its conversation waits;
// and only so much.
func TestNothingWaitsForTheControlPlane(t *testing.T) {
	w := newWorld(t)
	gate := make(chan struct{})
	w.gate = gate
	executed := make(chan string, 64)
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c.Kind()
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("alice", protocol.CapChat))
	u.say(send)
	u.say(`{"type":"chat.abort","sessionId":"` + none + `"}`)
	u.refused("NO_ACTIVE_RUN", none, "")
	u.say(subscribe(none))
	u.acked(none)
	for range maxWaiting - 1 {
		u.say(send)
	}
	u.say(send)
	u.refused("UNAVAILABLE", conv, errBusy.Text)
	close(gate)
	for range maxWaiting {
		if kind := <-executed; kind != op.KindChatSend {
			t.Error(kind)
		}
	}
	u.sync()
}

// TestControlPlaneHangs: a control plane that doesn't answer is as good as none, and
// those who follow go on.
func TestControlPlaneHangs(t *testing.T) {
	usual := signTimeout
	signTimeout = 20 * time.Millisecond
	t.Cleanup(func() { signTimeout = usual })
	w := newWorld(t)
	gate := make(chan struct{})
	defer close(gate)
	w.gate = gate
	u := w.join(caps("alice", protocol.CapChat))
	u.say(send)
	u.refused("UNAVAILABLE", conv, `Session "`+conv+`" is not available now. Try again later.`)
	u.sync()
}

// TestSendGoesOn: what was sent is executed though its sender has left at once.
func TestSendGoesOn(t *testing.T) {
	w := newWorld(t)
	gate := make(chan struct{})
	w.gate = gate
	executed := make(chan string, 1)
	w.execute = func(c *jws.Command) protocol.Result {
		executed <- c.Kind()
		return relaytest.OK(c.CommandID, protocol.OpResult{Kind: c.Kind()})
	}
	u := w.join(caps("alice", protocol.CapChat))
	u.say(send)
	u.say(`{"type":"x"}`)
	u.refused("UNKNOWN_MESSAGE_TYPE", "null", "") // it has been read
	u.conn.CloseNow()
	close(gate)
	if kind := <-executed; kind != op.KindChatSend {
		t.Error(kind)
	}
}

// TestSandboxAway: what can't be asked is unavailable, unless it isn't allowed.
func TestSandboxAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.tunnels.Connect(nil)
	u, v, x := w.join(caps("alice", protocol.CapChat)), w.join(caps("carol")), w.join(caps("alice", protocol.CapChat))
	u.say(send)
	v.say(send)
	x.say(abort)
	u.refused("UNAVAILABLE", conv, `Session "`+conv+`" is not available now. Try again later.`)
	v.refused("FORBIDDEN", conv, "")
	x.refused("UNAVAILABLE", conv, "")
	if n := len(w.ops()); n != 0 {
		t.Errorf("%d operations were signed", n)
	}
}

// TestRefusedControl: a refusal of what concerns control names its conversation.
func TestRefusedControl(t *testing.T) {
	w := newWorld(t)
	u, v := w.join(caps("alice", protocol.CapChat)), w.join(caps("carol"))
	for _, what := range []string{"request_control", "grant_control", "revoke_control"} {
		frame := func(id string) string {
			return `{"type":"chat.` + what + `","sessionId":"` + id + `","to":"usr_bob"}`
		}
		v.say(frame(conv))
		v.refused("FORBIDDEN", conv, "")
		u.say(frame(none))
		u.refused("SESSION_NOT_FOUND", none, "")
	}
	u.say(`{"type":"chat.grant_control","sessionId":"` + conv + `","to":"usr_bob"}`)
	u.refused("NOT_CONTROLLER", conv, "")
}
