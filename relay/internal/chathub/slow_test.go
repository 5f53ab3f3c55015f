package chathub

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/chatring"
)

// TestSlowSocket: a socket that stands still gets a gap and goes on from the head;
// nobody else waits, and the rest comes by its mark.
// It is about weakness 15 in deploy/e2e/README.md.
func TestSlowSocket(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 0)
	slow, quick := w.join(alice), w.join(bob)
	slow.follow(convA, 0)
	quick.follow(convA, 0)
	slow.acked(convA, 0, false)
	quick.acked(convA, 0, false)
	stuck := slow.conn.block(true)
	w.agent.prints(l)
	<-stuck
	const n = 30 // more than a ring
	for seq := uint64(2); seq < 2+n; seq++ {
		w.agent.printsOf(l, "", long(convA, seq, 50<<10))
	}
	quick.reads(convA, 1, n+1)
	f := slow.s.followers()[0]
	if held := f.hub.ring.Held(); held > protocol.ChatRingBytes {
		t.Errorf("the ring has %d bytes", held)
	}
	slow.conn.block(false)
	slow.reads(convA, 1, 1)
	slow.acked(convA, n+1, true)
	w.agent.prints(l)
	slow.reads(convA, n+2, n+2)
	slow.follow(convA, 1)
	slow.acked(convA, n+2, false)
	slow.reads(convA, 2, n+2)
	if got := testutil.ToFloat64(w.set.metrics.Gaps.WithLabelValues(chatring.GapSlow)); got != 1 {
		t.Errorf("%v gaps", got)
	}
}

// TestFloodBesideOthers: a flood in one conversation delays another one of the same
// socket by a few writes at most.
// It is about weakness 24 in deploy/e2e/README.md.
func TestFloodBesideOthers(t *testing.T) {
	w := newWorld(t)
	a, b := w.agent.has(convA, 0), w.agent.has(convB, 0)
	x := w.join(alice)
	x.follow(convA, 0, convB, 0)
	x.acked(convA, 0, false)
	x.acked(convB, 0, false)
	stuck := x.conn.block(true)
	w.agent.prints(a)
	<-stuck
	const n = 15
	for seq := uint64(2); seq < 2+n; seq++ {
		w.agent.printsOf(a, "", long(convA, seq, 40<<10))
	}
	w.agent.prints(b)
	hub := func(c protocol.ConversationID) *hub {
		w.set.mu.Lock()
		defer w.set.mu.Unlock()
		return w.set.hubs[Key{"sb_test", testSession, c}]
	}
	w.becomesTrue(func() bool {
		return hub(convA).stateFor("").LastSeq == n+1 && hub(convB).stateFor("").LastSeq == 1
	})
	x.conn.block(false)
	for before := 0; ; before++ {
		m := x.next()
		if m.SessionID == convB {
			if before > 4 {
				t.Errorf("%d events of the flood come first", before)
			}
			return
		}
	}
}

// TestManyMessages: a socket whose own messages wait beyond the bound is closed.
func TestManyMessages(t *testing.T) {
	w := newWorld(t)
	x := w.join(alice)
	stuck := x.conn.block(true)
	x.s.TellJSON(map[string]string{"kind": "first"})
	<-stuck
	for range 20 {
		x.s.queue.tell(make([]byte, 20<<10), maxNews) // news give way
	}
	if n := testutil.ToFloat64(w.set.metrics.NewsDropped); n == 0 || x.s.queue.own > maxNews {
		t.Errorf("%v news dropped, %d bytes wait", n, x.s.queue.own)
	}
	x.s.queue.items, x.s.queue.own = nil, 0
	for range 60 {
		x.s.TellJSON(map[string]string{"kind": "more", "text": string(make([]byte, 20<<10))})
	}
	x.conn.block(false)
	if m := x.until(closed); m.Close != 4429 {
		t.Errorf("%s", m)
	}
}

// TestFollowedAreBounded: the conversation that was used least lately gives way.
func TestFollowedAreBounded(t *testing.T) {
	w := newWorld(t)
	id := func(i int) protocol.ConversationID {
		return protocol.ConversationID("conv-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
	}
	x := w.join(alice)
	for i := range protocol.MaxChatFollowed + 1 {
		l := w.agent.has(id(i), 1)
		if i == 0 {
			w.agent.becomes(l, protocol.RunRunning, "cmd_1")
		}
		x.follow(id(i), 1)
		x.acked(id(i), 1, false)
	}
	if n := len(x.s.followers()); n != protocol.MaxChatFollowed {
		t.Errorf("%d followed", n)
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	if x.s.follows[id(0)] == nil || x.s.follows[id(1)] != nil {
		t.Error("the wrong one gave way")
	}
}
