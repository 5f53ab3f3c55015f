package journal_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/journal"
)

// TestSubscribe follows from now on, from a position, and from places that the
// log doesn't hold.
func TestSubscribe(t *testing.T) {
	r := newRig(t, eventlog.Bound{})
	early, at, gap := r.Subscribe(nil)
	if at != start || gap {
		t.Errorf("%s, gap %t", at, gap)
	}
	if !r.Followed() {
		t.Error("nobody follows")
	}
	r.append("a", "b")
	for offset, want := range map[uint64]uint64{100: 100, 101: 101, 102: 102, 99: 102, 103: 102} {
		sub, at, gap := r.Subscribe(&protocol.Position{Epoch: start.Epoch, Offset: offset})
		if at.Offset != want || gap != (offset != want) {
			t.Errorf("from %d: %s, gap %t", offset, at, gap)
		}
		sub.Close()
	}
	for i, want := range []string{"a", "b"} {
		if offset, e, err := early.Next(t.Context()); offset != uint64(100+i) || e != want || err != nil {
			t.Errorf("%d %s, %v; want %s", offset, e, err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("grant over")
	cancel(cause)
	if _, _, err := early.Next(ctx); err != cause {
		t.Errorf("ended with %v", err)
	}
	r.End(journal.ErrEnded)
	early.Close()
	if _, _, err := early.Next(t.Context()); err != journal.ErrEnded || r.Followed() {
		t.Errorf("ended with %v", err)
	}
}

// TestLagging: a subscriber that is slower than the log slides is ended and
// counted, and learns of the gap when it comes back.
func TestLagging(t *testing.T) {
	r := newRig(t, eventlog.Bound{Events: 10})
	slow, at, _ := r.Subscribe(nil)
	for i := range 11 {
		r.append(fmt.Sprint(i))
	}
	for range 2 {
		if _, _, err := slow.Next(t.Context()); err != journal.ErrLagging {
			t.Errorf("ended with %v", err)
		}
	}
	again, now, gap := r.Subscribe(&at)
	defer again.Close()
	if !gap || now != (protocol.Position{Epoch: start.Epoch, Offset: 111}) || r.lagged.Load() != 1 {
		t.Errorf("%s, gap %t; %d lagged", now, gap, r.lagged.Load())
	}
}

// TestFollowers: many follow at once, each gets every event in order, and nobody
// waits for one that doesn't read.
func TestFollowers(t *testing.T) {
	r := newRig(t, eventlog.Bound{Events: 1000})
	synctest.Test(t, func(t *testing.T) {
		idle, _, _ := r.Subscribe(nil)
		defer idle.Close()
		const followers, events = 20, 200
		for range followers {
			sub, at, _ := r.Subscribe(nil)
			go func() {
				defer sub.Close()
				for i := range events {
					offset, e, err := sub.Next(t.Context())
					if err != nil || offset != at.Offset+uint64(i) || e != fmt.Sprint(i) {
						t.Errorf("event %d: %d %s, %v", i, offset, e, err)
						return
					}
				}
			}()
		}
		for i := range events {
			r.append(fmt.Sprint(i))
		}
		synctest.Wait()
		idle.Close()
		if r.Followed() {
			t.Error("somebody is still waiting")
		}
	})
}
