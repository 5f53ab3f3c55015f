package approval

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const conversation = protocol.ConversationID("5b0d8d43-6c1a-4dd5-9a2e-7f3b1c2d4e5f")

// askTool asks for a tool, with what r leaves out.
func (r *rig) askTool(req ToolRequest) *Pending {
	r.t.Helper()
	p, err := r.AskTool(whole(req))
	must(r.t, err)
	return p
}

func whole(req ToolRequest) ToolRequest {
	req.Session, req.Conversation = cmp.Or(req.Session, session), cmp.Or(req.Conversation, conversation)
	req.Run, req.Tool = cmp.Or(req.Run, "cmd_run"), cmp.Or(req.Tool, "Bash")
	return req
}

func toolAnswer(id string, d protocol.Decision) protocol.Approval {
	a := answer(id, d)
	a.Kind = protocol.ApprovalTool
	return a
}

// decideTool answers a tool's question, in time.
func (r *rig) decideTool(id string, d protocol.Decision, remember string, with Reply) protocol.Approval {
	r.t.Helper()
	answer := toolAnswer(id, d)
	answer.Remember = remember
	a, applied, err := r.DecideTool(answer, with)
	if err != nil || !applied {
		r.t.Fatalf("%+v, applied %v, %v", a, applied, err)
	}
	return a
}

// TestTool: who asks gets the whole answer; the log and the listeners have
// neither what the tool was to do nor what it is to do instead.
func TestTool(t *testing.T) {
	r := newRig(t)
	input := json.RawMessage(`{"command": "ls <canary-input>"}`)
	p := r.askTool(ToolRequest{Input: input})
	sum := sha256.Sum256(input)
	list := r.List(session).Approvals
	if len(list) != 1 || string(list[0].Input) != `{"command":"ls \u003ccanary-input\u003e"}` || list[0].InputSHA256 != hex.EncodeToString(sum[:]) ||
		list[0].Tool != "Bash" || list[0].ConversationID != conversation || list[0].RunID != "cmd_run" || list[0].Kind != protocol.ApprovalTool ||
		list[0].LeftMs <= 0 || list[0].EndsAt != list[0].AskedAt+protocol.ToolTTL.Milliseconds() {
		t.Errorf("%+v", list)
	}
	with := Reply{UpdatedInput: json.RawMessage(`{"command":"canary-updated"}`), Message: "canary-message"}
	a := r.decideTool(p.ID(), protocol.AllowAlways, "Bash(ls:*)", with)
	if a.State != protocol.ApprovalDecided || a.Remember != "Bash(ls:*)" || a.UserID != alice || a.GrantID != "gr_1" || a.CommandID != "cmd_1" ||
		a.Input != nil || a.InputSHA256 == "" || a.Revision != 2 || a.EndsAt == 0 {
		t.Errorf("%+v", a)
	}
	if o, err := p.Outcome(t.Context()); err != nil || !reflect.DeepEqual(o, Outcome{a, with}) {
		t.Errorf("%+v, %v", o, err)
	}
	if d, err := p.Wait(t.Context()); d != protocol.AllowAlways || err != nil {
		t.Errorf("%s, %v", d, err)
	}
	later := toolAnswer(p.ID(), protocol.Deny)
	later.UserID = bob
	if again, applied, err := r.DecideTool(later, Reply{Message: "too late"}); err != nil || applied || !reflect.DeepEqual(again, a) {
		t.Errorf("later: %+v, %v, %v", again, applied, err)
	}
	if tale := r.tale(); tale != "Bash=pending/1 Bash=decidedallow_always/2" {
		t.Errorf("told %s", tale)
	}
	file, err := os.ReadFile(filepath.Join(r.dir, "ses_1.jsonl"))
	must(t, err)
	told, err := json.Marshal(r.told)
	must(t, err)
	if everything := string(file) + string(told); strings.Contains(everything, "canary") || !strings.Contains(everything, "Bash(ls:*)") {
		t.Errorf("stored and told:\n%s", everything)
	}
	r.restart()
	if after := r.List(session).Approvals; len(after) != 1 || !reflect.DeepEqual(after[0], a) {
		t.Errorf("after a restart %+v", after)
	}
}

// TestToolInput: what is too large, or grows too large by escaping, is not shown,
// but known by its hash.
func TestToolInput(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		input json.RawMessage
		shown bool
	}{
		{nil, false},
		{json.RawMessage(`null`), true},
		{json.RawMessage(`"` + strings.Repeat("x", protocol.MaxToolInput-2) + `"`), true},
		{json.RawMessage(`"` + strings.Repeat("x", protocol.MaxToolInput-1) + `"`), false},
		{json.RawMessage(`"` + strings.Repeat("<", protocol.MaxToolInput/6+1) + `"`), false},
		{json.RawMessage(strings.Repeat(" ", protocol.MaxToolInput) + `{}`), true},
		{json.RawMessage(`{"a":1,"a":2,"A":3}`), true},
		{json.RawMessage(strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000)), true},
	} {
		p := r.askTool(ToolRequest{Input: tt.input})
		list := r.List(session)
		a := list.Approvals[len(list.Approvals)-1]
		if a.ID != p.ID() || (a.Input != nil) != tt.shown || (a.InputSHA256 != "") != (tt.input != nil) {
			t.Errorf("%.40s: %.40s, hash %q", tt.input, a.Input, a.InputSHA256)
		}
		if _, err := protocol.Append(nil, protocol.ApprovalEvent{Approval: a}); err != nil {
			t.Errorf("%.40s: %v", tt.input, err)
		}
	}
	r.restart()
	if n := len(r.List(session).Approvals); n != 8 {
		t.Errorf("%d after a restart", n)
	}
}

func TestAskToolRefused(t *testing.T) {
	r := newRig(t)
	for i, change := range []func(*ToolRequest){
		func(q *ToolRequest) { q.Session = "../x" },
		func(q *ToolRequest) { q.Conversation = "a/b" },
		func(q *ToolRequest) { q.Run = "a b" },
		func(q *ToolRequest) { q.Tool = "\xff" },
		func(q *ToolRequest) { q.Tool = strings.Repeat("a", maxToolName+1) },
		func(q *ToolRequest) { q.Input = json.RawMessage(`{`) },
		func(q *ToolRequest) { q.Input = json.RawMessage{} },
		func(q *ToolRequest) { q.Input = json.RawMessage("\"\xff\"") },
		func(q *ToolRequest) { q.TTL = -1 },
	} {
		q := whole(ToolRequest{})
		change(&q)
		if _, err := r.AskTool(q); err == nil || protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%d: %v", i, err)
		}
	}
	_, err := r.Ask(Request{Session: session, Kind: protocol.ApprovalTool, Host: "a.example"})
	wantKind(t, err, protocol.KindInvalid)
	r.disk.err = syscall.ENOSPC
	_, err = r.AskTool(whole(ToolRequest{}))
	wantKind(t, err, protocol.KindNoSpace)
	if r.tale() != "" || len(r.sessions) != 0 || r.Stats().Pending != 0 {
		t.Errorf("told %s", r.tale())
	}
	r.disk.err = nil
	r.Close()
	_, err = r.AskTool(whole(ToolRequest{}))
	wantKind(t, err, protocol.KindUnavailable)
	if r.Cancel("apr_1") {
		t.Error("cancelled in a closed log")
	}
}

// TestToolExpiry: a question has its own time, the usual one, or none.
func TestToolExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		forever := r.askTool(ToolRequest{Forever: true, TTL: -1, Tool: "AskUserQuestion"})
		usual, own := r.askTool(ToolRequest{}), r.askTool(ToolRequest{TTL: 30 * time.Second})
		var all sync.WaitGroup
		for p, want := range map[*Pending]time.Duration{usual: protocol.ToolTTL, own: 30 * time.Second} {
			asked := time.Now()
			all.Go(func() {
				o, err := p.Outcome(t.Context())
				if protocol.KindOf(err) != protocol.KindExpired || o.Approval.State != protocol.ApprovalExpired || time.Since(asked) != want {
					t.Errorf("after %v: %+v, %v", time.Since(asked), o, err)
				}
			})
		}
		all.Wait()
		time.Sleep(1000 * time.Hour)
		if a, applied, err := r.Decide(toolAnswer(own.ID(), protocol.AllowOnce)); err != nil || applied || a.State != protocol.ApprovalExpired {
			t.Errorf("%+v, %v, %v", a, applied, err)
		}
		a := r.List(session).Approvals[0]
		if a.ID != forever.ID() || a.State != protocol.ApprovalPending || a.EndsAt != 0 || a.LeftMs != 0 || forever.Approval().EndsAt != 0 {
			t.Errorf("%+v", a)
		}
		gone, leave := context.WithCancelCause(t.Context())
		leave(errors.New("gone"))
		if o, err := forever.Outcome(gone); err == nil || err.Error() != "gone" || o.Approval.State != protocol.ApprovalPending {
			t.Errorf("%+v, %v", o, err)
		}
		r.decideTool(forever.ID(), protocol.Deny, "", Reply{Message: "no"})
		if o, err := forever.Outcome(t.Context()); err != nil || o.Message != "no" || o.Approval.Decision != protocol.Deny {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// TestForeverNextToOthers: the deadlines of others are kept, also when a question
// without one was asked first or comes later.
func TestForeverNextToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.askTool(ToolRequest{Forever: true})
		r.ask("a.example")
		r.askTool(ToolRequest{Forever: true})
		time.Sleep(protocol.EgressTTL)
		synctest.Wait()
		if s := r.Stats(); s.Expired != 1 || s.Pending != 2 {
			t.Errorf("%+v", s)
		}
	})
}

func TestCancel(t *testing.T) {
	r := newRig(t)
	p, other := r.askTool(ToolRequest{}), r.askTool(ToolRequest{})
	connection := r.ask("a.example")
	sub, _, err := r.Subscribe(session, nil)
	must(t, err)
	defer sub.Close()
	if !r.Cancel(p.ID()) || r.Cancel(p.ID()) || r.Cancel("apr_none") || r.Cancel(connection.ID()) {
		t.Error("what was cancelled is not what could be")
	}
	if o, err := p.Outcome(t.Context()); protocol.KindOf(err) != protocol.KindEnded || o.Approval.State != protocol.ApprovalCancelled || o.Approval.UserID != "" {
		t.Errorf("%+v, %v", o, err)
	}
	if d, err := p.Wait(t.Context()); d != protocol.Deny || err == nil {
		t.Errorf("%s, %v", d, err)
	}
	if e, err := sub.Next(t.Context()); err != nil || e.Approval.ID != p.ID() || e.Approval.State != protocol.ApprovalCancelled || e.Approval.Revision != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if a, applied, err := r.Decide(toolAnswer(p.ID(), protocol.AllowOnce)); err != nil || applied || a.State != protocol.ApprovalCancelled {
		t.Errorf("decided later: %+v, %v, %v", a, applied, err)
	}
	r.decideTool(other.ID(), protocol.AllowOnce, "", Reply{})
	if r.Cancel(other.ID()) {
		t.Error("a decided one was cancelled")
	}
	if s := r.Stats(); s != (Stats{Asked: 3, Cancelled: 1, Decided: 1, Late: 1, Pending: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestDecideToolRefused: a decision about something else than this tool finds
// nothing, and one of another revision is told so.
// It is about weakness 7 in deploy/e2e/README.md.
func TestDecideToolRefused(t *testing.T) {
	r := newRig(t)
	p, connection := r.askTool(ToolRequest{}), r.ask("a.example")
	for what, tt := range map[string]struct {
		change func(*protocol.Approval)
		kind   protocol.Kind
	}{
		"another session":      {func(a *protocol.Approval) { a.SessionID = "ses_2" }, protocol.KindNotFound},
		"another kind":         {func(a *protocol.Approval) { a.Kind = protocol.ApprovalEgress }, protocol.KindNotFound},
		"a connection":         {func(a *protocol.Approval) { a.ID = connection.ID() }, protocol.KindNotFound},
		"an unknown one":       {func(a *protocol.Approval) { a.ID = "apr_none" }, protocol.KindNotFound},
		"another revision":     {func(a *protocol.Approval) { a.Revision = 2 }, protocol.KindConflict},
		"an unknown decision":  {func(a *protocol.Approval) { a.Decision = "maybe" }, protocol.KindInvalid},
		"the disk is full now": {func(*protocol.Approval) { r.disk.err = syscall.ENOSPC }, protocol.KindNoSpace},
	} {
		a := toolAnswer(p.ID(), protocol.AllowOnce)
		tt.change(&a)
		if _, applied, err := r.DecideTool(a, Reply{}); err == nil || protocol.KindOf(err) != tt.kind || applied {
			t.Errorf("%s: %v, %v", what, applied, err)
		}
		r.disk.err = nil
	}
	if s := r.Stats(); s.Pending != 2 {
		t.Errorf("%+v", s)
	}
}

// TestTooManyTools: questions about tools have their own places, and a
// conversation has some of them. Each is a question of its own.
func TestTooManyTools(t *testing.T) {
	r := newRig(t)
	r.Log.disk = nowhere{}
	seen := map[string]bool{}
	for c := range maxTools / maxToolsEach {
		of := protocol.ConversationID(fmt.Sprintf("c%d", c))
		for range maxToolsEach {
			seen[r.askTool(ToolRequest{Conversation: of, Input: json.RawMessage(`{}`)}).ID()] = true
		}
		_, err := r.AskTool(whole(ToolRequest{Conversation: of}))
		wantKind(t, err, protocol.KindTooMany)
	}
	_, err := r.AskTool(whole(ToolRequest{Conversation: "more", Session: "ses_2"}))
	wantKind(t, err, protocol.KindTooMany)
	for i := range protocol.MaxApprovals {
		r.ask(fmt.Sprintf("h%d.example", i))
	}
	if s := r.Stats(); len(seen) != maxTools || s.Pending != maxTools+protocol.MaxApprovals || s.Coalesced != 0 {
		t.Errorf("%d questions, %+v", len(seen), s)
	}
}

// TestOpenedFits: whatever is pending, OPENED is one frame, and says that it
// isn't whole; each event is one, too.
func TestOpenedFits(t *testing.T) {
	r := newRig(t)
	r.Log.disk = nowhere{}
	large := json.RawMessage(`"` + strings.Repeat("x", protocol.MaxToolInput-2) + `"`)
	for c := range 4 {
		_, opened, err := r.Subscribe(session, nil)
		must(t, err)
		if c == 0 && opened.More {
			t.Error("nothing, and more")
		}
		for range maxToolsEach {
			r.askTool(ToolRequest{
				Conversation: protocol.ConversationID(fmt.Sprint(strings.Repeat("c", 119), c)), Run: protocol.CommandID(strings.Repeat("r", 128)),
				Tool: strings.Repeat("\x01", maxToolName), Input: large,
			})
		}
	}
	sub, opened, err := r.Subscribe(session, nil)
	must(t, err)
	defer sub.Close()
	result, err := json.Marshal(opened)
	must(t, err)
	if _, err := protocol.Append(nil, protocol.Opened{Result: result}); err != nil || !opened.More || len(opened.Pending) == 0 || len(opened.Pending) == maxTools {
		t.Errorf("%v, more %v, %d pending", err, opened.More, len(opened.Pending))
	}
	if opened.Pending[0].Input == nil || opened.Pending[1].Input != nil {
		t.Error("the first input fits, the second doesn't")
	}
}

// TestToolRace: of many who decide and one who cancels at the same time one is
// first, and everybody is told the same.
func TestToolRace(t *testing.T) {
	for range 200 {
		r := newRig(t)
		r.Log.disk = nowhere{}
		p := r.askTool(ToolRequest{Forever: true})
		const deciders = 4
		var stands [deciders]protocol.Approval
		var was [deciders]bool
		var all sync.WaitGroup
		for i := range deciders {
			all.Go(func() {
				stands[i], was[i], _ = r.DecideTool(toolAnswer(p.ID(), protocol.AllowOnce), Reply{Message: fmt.Sprint(i)})
			})
		}
		cancelled := false
		all.Go(func() { cancelled = r.Cancel(p.ID()) })
		o, err := p.Outcome(t.Context())
		all.Wait()
		winners := 0
		for i := range deciders {
			if !reflect.DeepEqual(stands[i], o.Approval) || was[i] && o.Message != fmt.Sprint(i) {
				t.Fatalf("%+v, and %+v", stands[i], o)
			}
			if was[i] {
				winners++
			}
		}
		if cancelled != (winners == 0) || winners > 1 || cancelled != (err != nil) || len(r.told) != 2 {
			t.Fatalf("%d winners, cancelled %v, %v", winners, cancelled, err)
		}
		r.Close()
	}
}
