package approval

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestDiskFails: what can't be stored is neither asked nor decided, but expires
// all the same, and the log has another epoch then.
func TestDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.ask("a.example")
		sub, opened, err := r.Subscribe(session, nil)
		must(t, err)
		defer sub.Close()
		r.disk.err = &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
		_, err = r.Ask(egress("b.example"))
		wantKind(t, err, protocol.KindNoSpace)
		_, err = r.Ask(Request{Session: "ses_2", Kind: protocol.ApprovalEgress, Host: "b.example", Port: 1})
		wantKind(t, err, protocol.KindNoSpace)
		if _, _, err := r.Decide(answer(p.ID(), protocol.AllowAlways)); protocol.KindOf(err) != protocol.KindNoSpace {
			t.Errorf("decided with %v", err)
		}
		r.disk.err = errors.New("input/output error")
		_, _, err = r.Decide(answer(p.ID(), protocol.AllowAlways))
		wantKind(t, err, protocol.KindUnavailable)
		if _, err := sub.Next(t.Context()); err != ErrReset {
			t.Errorf("the subscription ended with %v", err)
		}
		time.Sleep(protocol.EgressTTL)
		synctest.Wait()
		if d, err := p.Wait(t.Context()); d != protocol.Deny || protocol.KindOf(err) != protocol.KindExpired {
			t.Errorf("waited for %s, %v", d, err)
		}
		if tale := r.tale(); tale != "a.example=pending/1 a.example=expired/2" {
			t.Errorf("told %s", tale)
		}
		if s := r.Stats(); s.Unstored != 4 {
			t.Errorf("%+v", s)
		}
		list := r.List(session)
		if list.Epoch == opened.Epoch || list.Offset != 2 {
			t.Errorf("%+v after epoch %s", list, opened.Epoch)
		}
		r.disk.err = nil
		r.ask("c.example")
		r.restart()
		after := r.List(session)
		if len(after.Approvals) != 2 || after.Epoch != list.Epoch || after.Offset != 4 || len(r.List("ses_2").Approvals) != 0 {
			t.Errorf("%+v", after)
		}
	})
}

// TestRestart: a log goes on in the next process, where all that was pending has
// expired.
func TestRestart(t *testing.T) {
	r := newRig(t)
	decided, _ := r.decide(r.ask("a.example").ID(), protocol.AllowAlways)
	pending := r.ask("b.example")
	tool := r.askTool(ToolRequest{Forever: true})
	before := r.List(session)
	r.told = nil
	r.restart()
	if o, err := tool.Outcome(t.Context()); o.Approval.State != protocol.ApprovalPending || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("the tool that waited got %+v, %v", o, err)
	}
	if d, err := pending.Wait(t.Context()); d != protocol.Deny || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("the one that waited got %s, %v", d, err)
	}
	after := r.List(session)
	if after.Epoch != before.Epoch || before.Offset != 4 || after.Offset != 6 || r.tale() != "b.example=expired/2 Bash=cancelled/2" {
		t.Errorf("%+v, told %s", after, r.tale())
	}
	if a, applied := r.decide(decided.ID, protocol.Deny); applied || !reflect.DeepEqual(a, decided) {
		t.Errorf("the decided one is %+v", a)
	}
	if a, applied := r.decide(pending.ID(), protocol.AllowOnce); applied || a.State != protocol.ApprovalExpired {
		t.Errorf("the pending one is %+v", a)
	}
	sub, opened, err := r.Subscribe(session, &protocol.Position{Epoch: before.Epoch, Offset: 4})
	must(t, err)
	defer sub.Close()
	if opened.Gap || opened.Offset != 4 || len(opened.Pending) != 2 || opened.Pending[0].LeftMs != 0 || opened.Pending[1].LeftMs != 0 {
		t.Errorf("%+v", opened)
	}
	if e, err := sub.Next(t.Context()); err != nil || e.Offset != 4 || e.Approval.State != protocol.ApprovalExpired {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := sub.Next(t.Context()); err != nil || e.Offset != 5 || e.Approval.State != protocol.ApprovalCancelled {
		t.Errorf("%+v, %v", e, err)
	}
	if a, applied, err := r.DecideTool(toolAnswer(tool.ID(), protocol.AllowOnce), Reply{}); err != nil || applied || a.State != protocol.ApprovalCancelled {
		t.Errorf("the tool is %+v, %v", a, err)
	}
	if info, err := os.Stat(filepath.Join(r.dir, "ses_1.jsonl")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestForget: an ended session leaves nothing, and one of its name is another.
func TestForget(t *testing.T) {
	r := newRig(t)
	tool := r.askTool(ToolRequest{})
	p, other := r.ask("a.example"), Request{Session: "ses_2", Kind: protocol.ApprovalEgress, Host: "a.example", Port: 1}
	_, err := r.Ask(other)
	must(t, err)
	before := r.List(session)
	sub, _, err := r.Subscribe(session, nil)
	must(t, err)
	defer sub.Close()
	r.SessionEnded(session)
	r.SessionEnded("ses_none")
	if d, err := p.Wait(t.Context()); d != protocol.Deny || protocol.KindOf(err) != protocol.KindExpired {
		t.Errorf("waited for %s, %v", d, err)
	}
	if o, err := tool.Outcome(t.Context()); o.Approval.State != protocol.ApprovalCancelled || protocol.KindOf(err) != protocol.KindEnded {
		t.Errorf("the tool that waited got %+v, %v", o, err)
	}
	if e, err := sub.Next(t.Context()); err != ErrEnded {
		t.Errorf("%+v, %v", e, err)
	}
	_, _, err = r.Decide(answer(p.ID(), protocol.AllowOnce))
	wantKind(t, err, protocol.KindNotFound)
	_, _, err = r.DecideTool(toolAnswer(tool.ID(), protocol.AllowOnce), Reply{})
	wantKind(t, err, protocol.KindNotFound)
	r.ask("a.example")
	if after := r.List(session); after.Epoch == before.Epoch || after.Offset != 1 {
		t.Errorf("%+v after %+v", after, before)
	}
	if list := r.List("ses_2"); len(list.Approvals) != 1 || list.Approvals[0].State != protocol.ApprovalPending {
		t.Errorf("the other session has %+v", list)
	}
}

func TestClosed(t *testing.T) {
	r := newRig(t)
	p := r.ask("a.example")
	sub, _, err := r.Subscribe(session, nil)
	must(t, err)
	r.Close()
	r.Close()
	if d, err := p.Wait(t.Context()); d != protocol.Deny || protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("waited for %s, %v", d, err)
	}
	if _, err := sub.Next(t.Context()); err != ErrEnded {
		t.Errorf("ended with %v", err)
	}
	sub.Close()
	_, err = r.Ask(egress("b.example"))
	wantKind(t, err, protocol.KindUnavailable)
	_, _, err = r.Decide(answer(p.ID(), protocol.AllowOnce))
	wantKind(t, err, protocol.KindUnavailable)
	_, _, err = r.Subscribe(session, nil)
	wantKind(t, err, protocol.KindUnavailable)
	r.SessionEnded(session)
}

// TestUnreadable: a sandbox starts whatever has become of its files.
func TestUnreadable(t *testing.T) {
	r := newRig(t)
	p := r.ask("a.example")
	r.decide(p.ID(), protocol.Deny)
	r.Close()
	path := filepath.Join(r.dir, "ses_1.jsonl")
	must(t, os.Remove(path))
	must(t, os.MkdirAll(filepath.Join(path+".damaged", "x"), 0o700)) // so that it can't be put aside
	must(t, os.WriteFile(path, []byte("garbage"), 0o600))
	r.open()
	r.ask("b.example")
	r.restart()
	if list := r.List(session); len(list.Approvals) != 1 || list.Offset != 2 {
		t.Errorf("%+v", list)
	}
}

// BenchmarkDecide asks and decides on a real disk.
func BenchmarkDecide(b *testing.B) {
	r := newRig(b)
	for i := range b.N {
		r.decide(r.ask(fmt.Sprintf("h%d.example", i)).ID(), protocol.AllowOnce)
	}
}

// BenchmarkCoalesce joins an open question.
func BenchmarkCoalesce(b *testing.B) {
	r := newRig(b)
	for range protocol.MaxApprovals {
		r.ask(fmt.Sprintf("h%d.example", r.Stats().Pending))
	}
	for b.Loop() {
		r.ask("h0.example")
	}
}
