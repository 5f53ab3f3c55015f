package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
)

// decides answers a question as bob, who saw it as e says.
func (r *rig) decides(e protocol.ChatEvent, d protocol.Decision, remember string, with approval.Reply) {
	r.t.Helper()
	_, applied, err := r.approvals.DecideTool(protocol.Approval{
		ID: e.RequestID, Revision: e.Revision, Kind: protocol.ApprovalTool, SessionID: session, Decision: d,
		UserID: bob, GrantID: "gr_bob", CommandID: "cmd_decide", Remember: remember,
	}, with)
	check(r.t, err)
	if !applied {
		r.t.Error("another answer was first")
	}
}

// decidedBy reads the permission_cancelled of a question that bob has answered.
func (v *viewer) decidedBy(d protocol.Decision, of protocol.ChatEvent) {
	v.t.Helper()
	e := v.event(protocol.ChatPermissionCancelled)
	if e.Reason != protocol.CancelledDecided || e.RequestID != of.RequestID || e.Decision != d || e.From == nil ||
		e.From.UserID != bob || e.From.GrantID != "gr_bob" {
		v.t.Errorf("%+v by %+v, want %s by bob", e.ChatQuestion, e.From, d)
	}
}

// cancelledAs reads a permission_cancelled that nobody has decided.
func (v *viewer) cancelledAs(reason string, of protocol.ChatEvent) {
	v.t.Helper()
	if e := v.event(protocol.ChatPermissionCancelled); e.Reason != reason || e.RequestID != of.RequestID || e.From != nil || e.Decision != "" {
		v.t.Errorf("%s of %s, want %s of %s", e.Reason, e.RequestID, reason, of.RequestID)
	}
}

// TestQuestion: a question is shown to everybody, answered once, and remembered
// as far as somebody wants.
func TestQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		p := r.begins("go", op.ChatOptions{AllowedTools: []string{"Read"}})
		v.event(protocol.ChatText)
		p.print(`ask q1 Read {}`)
		p.hear(t, "answer q1 true ")
		p.print(`ask q2 Bash {"command":"ls -l"}`)
		asked := v.event(protocol.ChatPermissionRequest)
		if asked.ToolName != "Bash" || string(asked.Input) != `{"command":"ls -l"}` || asked.ExpiresAt == "" || asked.Revision == 0 {
			t.Errorf("%+v", asked)
		}
		late := r.view(alice, protocol.ChatParams{}) // finds it pending
		if n := len(late.opened.State.Pending); n != 1 || late.opened.State.Pending[0].RequestID != asked.RequestID ||
			late.opened.State.Pending[0].SessionID != r.id || late.opened.State.Pending[0].ToolName != "Bash" {
			t.Errorf("%d pending: %+v", n, late.opened.State)
		}
		r.decides(asked, protocol.AllowOnce, "Bash(ls:*)", approval.Reply{UpdatedInput: json.RawMessage(`{"command":"ls"}`)})
		v.decidedBy(protocol.AllowOnce, asked)
		if len(v.state.Pending) != 0 {
			t.Errorf("%+v", v.state)
		}
		p.hear(t, `answer q2 true {"command":"ls"}`)
		p.print(`ask q3 Bash {"command":"ls /"}`)
		p.hear(t, "answer q3 true ")
		p.print(`ask q4 Bash {"command":"ls; rm -r x"}`)
		asked = v.event(protocol.ChatPermissionRequest)
		r.decides(asked, protocol.Deny, "", approval.Reply{Message: "not that"})
		v.decidedBy(protocol.Deny, asked)
		p.hear(t, "answer q4 false not that")
		p.print(`ask q5 Write {"a":1}`)
		asked = v.event(protocol.ChatPermissionRequest)
		r.decides(asked, protocol.AllowAlways, "", approval.Reply{UpdatedInput: json.RawMessage(`{ "a": 1 }`)})
		v.decidedBy(protocol.AllowAlways, asked)
		p.hear(t, "answer q5 true ")
		p.print("done 0")
		v.completes(0, false)
		check(t, r.sends(alice, "again"))
		v.event(protocol.ChatText)
		p.hear(t, "send again")
		p.print(`ask q6 Write {"a":2}`) // the session's rule
		p.hear(t, "answer q6 true ")
		p.print(`ask q7 Bash {"command":"ls"}`) // was the run's
		v.event(protocol.ChatPermissionRequest)
	})
}

// TestUnanswered: nobody decides: after some time that is a no, unless the
// question waits for ever; then its run's end takes it back.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.Silence = silence })
		v, p := r.follows()
		begun := time.Now()
		p.print(`ask q1 Bash {}`)
		asked := v.event(protocol.ChatPermissionRequest)
		v.cancelledAs(protocol.CancelledTimeout, asked)
		p.hear(t, "answer q1 false Permission request timed out")
		if took := time.Since(begun); took != DefaultPatience {
			t.Errorf("after %v", took)
		}
		p.print(`forever q2 AskUserQuestion {}`)
		asked = v.event(protocol.ChatPermissionRequest)
		if asked.ExpiresAt != "" {
			t.Error(asked.ExpiresAt)
		}
		time.Sleep(10 * silence) // more than a run may be silent
		if v.state.Run != protocol.RunRunning {
			t.Error(v.state.Run)
		}
		p.print("withdraw q2")
		v.cancelledAs(protocol.CancelledWith, asked)
		p.print(`forever q3 AskUserQuestion {}`)
		asked = v.event(protocol.ChatPermissionRequest)
		check(t, r.aborts(alice))
		v.cancelledAs(protocol.CancelledWith, asked) // before the turn is stopped
		p.hear(t, "abort")
		p.print("ask q4 Bash {}")
		p.hear(t, "answer q4 false Permission request cancelled")
		p.print("done 0")
		v.completes(0, true)
		if open := r.approvals.List(session).Approvals; open[0].State == protocol.ApprovalPending {
			t.Errorf("%+v", open[0])
		}
	})
}

// TestSkipped: who wants no questions gets none, but those that only a person can
// answer.
func TestSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		v := r.view(bob, protocol.ChatParams{})
		p := r.begins("go", op.ChatOptions{SkipPermissions: true})
		v.event(protocol.ChatText)
		p.print(`ask q1 Bash {}`)
		p.hear(t, "answer q1 true ")
		p.print(`forever q2 AskUserQuestion {}`)
		v.event(protocol.ChatPermissionRequest)
		p.print("done 0")
		v.event(protocol.ChatPermissionCancelled)
		v.completes(0, false)
	})
}

// TestRestart: an agent that was killed in a run completes it at its next start,
// once, and takes its questions back.
// It is about weakness 4 in deploy/e2e/README.md.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := newRigIn(t, dir)
		v, p := r.follows()
		p.print("native n-1", `ask q1 Bash {}`)
		asked := v.event(protocol.ChatPermissionRequest)
		copied := t.TempDir() // what is on the disk when the agent is killed
		check(t, os.CopyFS(copied, os.DirFS(dir)))
		next := newRigIn(t, copied, func(o *Options) { o.Workspace = filepath.Join(dir, "workspace") })
		next.id = r.id
		next.Run(t.Context())
		w := next.view(bob, protocol.ChatParams{After: new(asked.Seq)})
		if w.opened.Gap || w.opened.State.Run != protocol.RunIdle {
			t.Errorf("%+v", w.opened)
		}
		w.cancelledAs(protocol.CancelledWith, asked)
		w.completes(1, false)
		if info, err := next.Get(session, r.id); err != nil || info.Native != "n-1" {
			t.Errorf("%+v %v", info, err)
		}
		check(t, next.sends(alice, "again"))
		if q := next.started(); q.program.Command.Args[0] != "n-1" {
			t.Errorf("%+v", q.program)
		}
	})
}

// TestMasks: no event shows a secret, also one that is split, and one that comes
// late is gone from the log.
func TestMasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.make()
		_, err := r.secrets.Change([]string{"hunter2-hunter2"})
		check(t, err)
		v := r.view(bob, protocol.ChatParams{})
		p := r.begins("go hunter2-hunter2 and later-secret")
		if e := v.event(protocol.ChatText); strings.Contains(*e.Content, "hunter2") {
			t.Error(*e.Content)
		}
		p.print("delta x hunter2-", "delta hunter2 y", "end", `ask q1 Bash {"command":"echo hunter2-hunter2"}`)
		said := ""
		for !strings.Contains(said, "y") {
			said += *v.event(protocol.ChatStreamDelta).Content
		}
		if said != "x *************** y" {
			t.Error(said)
		}
		v.event(protocol.ChatStreamEnd)
		asked := v.event(protocol.ChatPermissionRequest)
		if strings.Contains(string(asked.Input), "hunter2") {
			t.Errorf("%s", asked.Input)
		}
		r.decides(asked, protocol.AllowOnce, "", approval.Reply{UpdatedInput: asked.Input})
		v.event(protocol.ChatPermissionCancelled)
		p.hear(t, "answer q1 true ") // as asked, rather than masked
		_, err = r.secrets.Change([]string{"hunter2-hunter2", "later-secret"})
		check(t, err)
		reset, ok := v.message().(protocol.ChatReset)
		if !ok || reset.Epoch == v.opened.Epoch || reset.LastSeq != v.last {
			t.Errorf("%+v behind %d", reset, v.last)
		}
		w := r.view(bob, protocol.ChatParams{}) // the whole run
		if e := w.event(protocol.ChatText); *e.Content != "go *************** and ************" {
			t.Error(*e.Content)
		}
		p.print("delta z hunter2-", "done 0") // what was held back comes before complete
		said = *v.event(protocol.ChatStreamDelta).Content + *v.event(protocol.ChatStreamDelta).Content
		if said != "z ********" || v.state.Run != protocol.RunRunning {
			t.Error(said, v.state.Run)
		}
		v.completes(0, false)
	})
}

// TestMasksWhatIsClosed: a secret that comes while a conversation isn't in use is
// gone from its log before anybody follows.
func TestMasksWhatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(o *Options) { o.MaxWarm = -1 })
		r.make()
		p := r.begins("later-secret")
		p.print("done 0")
		time.Sleep(3 * linger)
		synctest.Wait()
		r.mu.Lock()
		open := len(r.owners)
		r.mu.Unlock()
		if open != 0 {
			t.Fatalf("%d are in use", open)
		}
		_, err := r.secrets.Change([]string{"later-secret"})
		check(t, err)
		if e := r.view(bob, protocol.ChatParams{After: new(uint64(0))}).event(protocol.ChatText); *e.Content != "************" {
			t.Error(*e.Content)
		}
	})
}

// TestMasksQuestions: a secret that comes late is gone from the questions that are
// open, and what people see of one can still be sent back.
func TestMasksQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		v, p := r.follows()
		p.print(`ask q1 AskUserQuestion {"question":"is it late-secret?"}`)
		asked := v.event(protocol.ChatPermissionRequest)
		_, err := r.secrets.Change([]string{"late-secret"})
		check(t, err)
		synctest.Wait()
		const masked = `{"question":"is it ***********?"}`
		w := r.view(bob, protocol.ChatParams{})
		if p := w.opened.State.Pending; len(p) != 1 || string(p[0].Input) != masked {
			t.Errorf("%s", p[0].Input)
		}
		if open := r.approvals.List(session).Approvals; len(open) != 1 || string(open[0].Input) != masked {
			t.Errorf("%s", open[0].Input)
		}
		r.decides(asked, protocol.AllowOnce, "", approval.Reply{UpdatedInput: json.RawMessage(masked)})
		p.hear(t, "answer q1 true ") // as asked, rather than masked
		for _, kind := range []protocol.ChatKind{protocol.ChatText, protocol.ChatPermissionRequest, protocol.ChatPermissionCancelled} {
			if e := w.event(kind); strings.Contains(string(e.Input), "late-secret") {
				t.Errorf("%s", e.Input)
			}
		}
		p.print("done 0")
		w.completes(0, false)
	})
}
