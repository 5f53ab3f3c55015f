package executor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// TestOrderModel: of any two commands that exclude each other the one that
// arrived first runs first, and they never run at the same time; all others do.
func TestOrderModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			kind    string
			session protocol.SessionID
			pty     protocol.PTYID
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			s := step{op.KindPTYSignal, protocol.SessionID(rapid.SampledFrom([]string{"ses_1", "ses_2"}).Draw(rt, "session")), ""}
			switch rapid.IntRange(0, 9).Draw(rt, "what") {
			case 0:
				s.kind = op.KindSessionDelete
			case 1:
				s.kind = op.KindPTYCreate
			case 2:
				s.kind, s.session = op.KindGrantRevoke, ""
			case 3:
				s.kind = rapid.SampledFrom([]string{op.KindEgressDecide, op.KindEgressRevoke, op.KindBrokerDecide}).Draw(rt, "decision")
			case 4:
				s.kind = rapid.SampledFrom([]string{op.KindSessionCreate, op.KindEnvApply}).Draw(rt, "whole")
			default:
				s.pty = protocol.PTYID(rapid.SampledFrom([]string{"pty_1", "pty_2", "pty_3"}).Draw(rt, "pty"))
			}
			return s
		}), 1, 40).Draw(rt, "steps")
		decides := func(kind string) bool {
			return slices.Contains([]string{op.KindEgressDecide, op.KindEgressRevoke, op.KindBrokerDecide}, kind)
		}
		excludes := func(a, b step) bool {
			deletes := a.kind == op.KindSessionDelete || b.kind == op.KindSessionDelete
			if decides(a.kind) || decides(b.kind) {
				return a.session != "" && a.session == b.session && (deletes || decides(a.kind) && decides(b.kind))
			}
			whole := deletes
			for _, s := range []step{a, b} {
				whole = whole || s.kind == op.KindSessionCreate || s.kind == op.KindEnvApply && s.pty == ""
			}
			return a.session != "" && a.session == b.session && (whole || a.pty != "" && a.pty == b.pty)
		}
		abandoned := rapid.SliceOfN(rapid.Bool(), len(steps), len(steps)).Draw(rt, "abandoned")
		synctest.Test(t, func(t *testing.T) {
			var o order
			turns := make([]*turn, len(steps))
			for i, s := range steps {
				p := o.arrive()
				if abandoned[i] {
					p.pass()
					continue
				}
				spec, _ := op.Lookup(s.kind)
				turn, err := p.enter(spec.Lane, protocol.CommandTarget{SessionID: s.session, PTYID: s.pty})
				must(t, err)
				turns[i] = turn
			}
			running, over := make([]bool, len(steps)), make([]bool, len(steps))
			var mu sync.Mutex
			var all sync.WaitGroup
			for i, turn := range turns {
				if turn == nil {
					continue
				}
				all.Go(func() {
					turn.wait()
					mu.Lock()
					running[i] = true
					for j := range i {
						if turns[j] != nil && excludes(steps[j], steps[i]) && !over[j] {
							t.Errorf("%v ran before %v was over", steps[i], steps[j])
						}
					}
					mu.Unlock()
					time.Sleep(time.Second)
					mu.Lock()
					running[i], over[i] = false, true
					mu.Unlock()
					turn.end()
				})
			}
			for time.Sleep(500 * time.Millisecond); ; time.Sleep(time.Second) {
				mu.Lock()
				left := 0
				for i := range steps {
					blocked := turns[i] == nil || over[i]
					if !blocked {
						left++
					}
					for j := range i {
						blocked = blocked || turns[j] != nil && !over[j] && excludes(steps[j], steps[i])
					}
					if !blocked && !running[i] {
						t.Errorf("%v waits for nothing", steps[i])
					}
				}
				mu.Unlock()
				if left == 0 {
					break
				}
			}
			all.Wait()
			if len(o.sessions) != 0 || o.waiting != 0 || len(o.open) != 0 {
				t.Errorf("%d sessions, %d turns, %d slots are left", len(o.sessions), o.waiting, len(o.open))
			}
		})
	})
}

// TestArrivalOrder: commands for one terminal run as they arrived, whichever
// is verified first, and others don't wait for them.
func TestArrivalOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where no slot is given up because the machine is slow
		b := newBench(t)
		arrivals := make([]Arrival, 50)
		tokens := make([]string, len(arrivals))
		for i := range arrivals {
			c := b.command(fmt.Sprintf(`{"kind":"pty.resize","cols":%d,"rows":24}`, i+1))
			c.Target.PTYID = "pty_1"
			arrivals[i], tokens[i] = b.Arrive(), b.sign(c)
		}
		var all sync.WaitGroup
		for i := range arrivals {
			i = len(arrivals) - 1 - i
			all.Go(func() { arrivals[i].Execute(t.Context(), tokens[i]) })
		}
		all.Wait()
		for i, call := range b.terminals.called() {
			if call != fmt.Sprintf("resize ses_1 pty_1 %d 24", i+1) {
				t.Fatalf("call %d: %s", i, call)
			}
		}
	})
}

// TestParallelTerminals: one terminal's command doesn't hold up another's, but
// the end of the session waits for both.
func TestParallelTerminals(t *testing.T) {
	b := newBench(t)
	held, release := make(chan struct{}), make(chan struct{})
	b.terminals.create = func(context.Context) error {
		close(held)
		<-release
		return nil
	}
	create := b.command(`{"kind":"pty.create"}`)
	create.Target.PTYID = "pty_1"
	var slow, whole sync.WaitGroup
	slow.Go(func() { b.Execute(t.Context(), b.sign(create)) })
	<-held
	other := b.command(`{"kind":"pty.close"}`)
	other.Target.PTYID = "pty_2"
	b.execute(b.sign(other))
	last := b.Arrive()
	whole.Go(func() { last.Execute(t.Context(), b.sign(b.command(`{"kind":"session.delete"}`))) })
	after := b.command(`{"kind":"pty.close"}`)
	after.Target.PTYID, after.Target.SessionID = "pty_1", "ses_2"
	b.execute(b.sign(after))
	revoke := b.command(`{"kind":"grant.revoke","grants":["gr_1"]}`)
	revoke.Target.SessionID = ""
	b.execute(b.sign(revoke))
	close(release)
	slow.Wait()
	whole.Wait()
	if calls := strings.Join(b.terminals.called(), ", "); calls != "create ses_1 pty_1 , close ses_1 pty_2, close ses_2 pty_1, revoke [gr_1], end session ses_1" {
		t.Errorf("ran %q", calls)
	}
}

// TestTooManyWait: what waits for its turn is bounded, and refused by name
// before anything of it is stored.
func TestTooManyWait(t *testing.T) {
	b := newBench(t)
	held, release := make(chan struct{}), make(chan struct{})
	b.terminals.create = func(context.Context) error {
		close(held)
		<-release
		return nil
	}
	create := b.command(`{"kind":"pty.create"}`)
	create.Target.PTYID = "pty_1"
	var all sync.WaitGroup
	all.Go(func() { b.Execute(t.Context(), b.sign(create)) })
	<-held
	refused := make(chan string, 2*maxWaiting)
	for range cap(refused) {
		c := b.command(`{"kind":"pty.signal","signal":"INT"}`)
		c.Target.PTYID = "pty_1"
		token := b.sign(c)
		all.Go(func() {
			var callback protocol.ExecutionCallback
			must(t, json.Unmarshal(b.Execute(t.Context(), token).Callback, &callback))
			refused <- errorName(callback)
		})
	}
	// No more than maxWaiting-1 can wait, so these must be refused now.
	for range cap(refused) - (maxWaiting - 1) {
		if name := <-refused; name != "LimitError" {
			t.Errorf("refused as %q", name)
		}
	}
	close(release)
	all.Wait()
	if n := b.Rejects()[protocol.KindTooMany]; n != uint64(cap(refused)-(maxWaiting-1)) {
		t.Errorf("%d rejects counted", n)
	}
	if calls := len(b.terminals.called()); calls != maxWaiting {
		t.Errorf("%d ran", calls)
	}
}

// TestSlowKeyHoldsNobodyUp: a command whose key must be fetched first, or that
// nobody executes after all, lets those behind it pass after a while.
func TestSlowKeyHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x Executor
		x.Arrive()
		next := x.Arrive()
		start := time.Now()
		turn, err := next.slot.enter(op.LaneTerminal, protocol.CommandTarget{SessionID: "ses_1", PTYID: "pty_1"})
		must(t, err)
		turn.wait()
		turn.end()
		if waited := time.Since(start); waited != maxOvertaking {
			t.Errorf("waited %v", waited)
		}
	})
}
