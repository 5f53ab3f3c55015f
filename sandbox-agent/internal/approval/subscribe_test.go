package approval

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func (r *rig) subscribe(since *protocol.Position) (*Subscription, protocol.ApprovalsOpened) {
	r.t.Helper()
	sub, opened, err := r.Subscribe(session, since)
	must(r.t, err)
	r.t.Cleanup(sub.Close)
	return sub, opened
}

// next returns the next event of sub in a word.
func (r *rig) next(sub *Subscription) string {
	r.t.Helper()
	e, err := sub.Next(context.Background())
	must(r.t, err)
	return fmt.Sprintf("%d %s %s%s %d", e.Offset, e.Approval.Host, e.Approval.State, e.Approval.Decision, e.Approval.LeftMs)
}

// TestSubscribe follows from now on, from a position, and from places that the
// log doesn't have.
func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		early, opened := r.subscribe(nil)
		if opened.Offset != 0 || opened.Gap || opened.Pending == nil {
			t.Errorf("%+v", opened)
		}
		p := r.ask("a.example")
		time.Sleep(1500 * time.Millisecond)
		if e := r.next(early); e != "0 a.example pending 58500" { // of now, not of when it was asked
			t.Errorf("event %s", e)
		}
		r.ask("b.example")
		r.decide(p.ID(), protocol.Deny)
		for _, want := range []string{"1 b.example pending 60000", "2 a.example decideddeny 0"} {
			if e := r.next(early); e != want {
				t.Errorf("event %s, want %s", e, want)
			}
		}
		for offset, want := range []string{"[]", "[a.example 0]", "[a.example 0 b.example 60000]", "[b.example 60000]"} {
			sub, o := r.subscribe(&protocol.Position{Epoch: opened.Epoch, Offset: uint64(offset)})
			if o.Epoch != opened.Epoch || o.Gap || o.Offset != uint64(offset) || told(o.Pending) != want {
				t.Errorf("from %d: %+v", offset, o)
			}
			for range 3 - offset {
				r.next(sub)
			}
			sub.Close()
		}
		for _, since := range []protocol.Position{{Epoch: opened.Epoch, Offset: 4}, {Epoch: opened.Epoch + 1, Offset: 1}, {}} {
			if _, o := r.subscribe(&since); !o.Gap || o.Offset != 3 || told(o.Pending) != "[b.example 60000]" {
				t.Errorf("from %+v: %+v", since, o)
			}
		}
		time.Sleep(protocol.EgressTTL)
		if e := r.next(early); e != "3 b.example expired 0" {
			t.Errorf("event %s", e)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("grant over")
		cancel(cause)
		if _, err := early.Next(ctx); err != cause {
			t.Errorf("ended with %v", err)
		}
	})
}

func told(pending []protocol.Approval) string {
	words := []any{}
	for _, a := range pending {
		words = append(words, a.Host, a.LeftMs)
	}
	return fmt.Sprint(words)
}

// TestLagging: who is slower than the log slides is ended, and told of the gap.
func TestLagging(t *testing.T) {
	r := newRig(t)
	r.Log.disk = nowhere{}
	slow, opened := r.subscribe(nil)
	r.ask("a.example")
	r.next(slow)
	for i := range maxEvents / 2 {
		r.decide(r.ask(fmt.Sprintf("h%d.example", i)).ID(), protocol.Deny)
	}
	if _, err := slow.Next(t.Context()); err != ErrLagging {
		t.Errorf("ended with %v", err)
	}
	if _, err := slow.Next(t.Context()); err != ErrLagging {
		t.Errorf("and then with %v", err)
	}
	_, again := r.subscribe(&protocol.Position{Epoch: opened.Epoch, Offset: 1})
	if !again.Gap || again.Offset != maxEvents+1 || again.Epoch != opened.Epoch || len(again.Pending) != 1 {
		t.Errorf("%+v", again)
	}
	if r.Stats().Lagging != 1 {
		t.Errorf("%+v", r.Stats())
	}
}

// TestNothingKept: sessions that are only looked at leave nothing behind.
func TestNothingKept(t *testing.T) {
	r := newRig(t)
	for i := range 100 {
		id := protocol.SessionID(fmt.Sprintf("ses_%d", i))
		list := r.List(id)
		sub, opened, err := r.Subscribe(id, &protocol.Position{Epoch: list.Epoch, Offset: list.Offset})
		must(t, err)
		if opened.Gap {
			t.Errorf("%+v", opened)
		}
		sub.Close()
	}
	if len(r.sessions) != 0 {
		t.Errorf("%d sessions", len(r.sessions))
	}
}

// TestList: pending ones first, then the newest of the others.
func TestList(t *testing.T) {
	r := newRig(t)
	r.Log.disk = nowhere{}
	r.ask("p.example")
	for i := range maxListed + 5 {
		r.decide(r.ask(fmt.Sprintf("h%d.example", i)).ID(), protocol.AllowOnce)
	}
	r.ask("q.example")
	list := r.List(session).Approvals
	if len(list) != maxListed+2 || list[0].Host != "p.example" || list[1].Host != "q.example" ||
		list[2].Host != fmt.Sprintf("h%d.example", maxListed+4) || list[maxListed+1].Host != "h5.example" {
		t.Errorf("%d: %+v", len(list), list[:3])
	}
	if list[0].LeftMs == 0 || list[2].LeftMs != 0 {
		t.Errorf("%+v", list[:3])
	}
}
