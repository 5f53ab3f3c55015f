package chathub

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFollow: attach, ack, what comes after the mark, live.
// It is about weaknesses 1 and 22 in deploy/e2e/README.md.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 10)
	for name, tt := range map[string]struct {
		mark int
		from uint64
		gap  bool
	}{
		"nothing seen":    {0, 11, false},
		"older than ring": {3, 4, false},
		"everything seen": {10, 11, false},
		"beyond the head": {11, 11, true},
	} {
		t.Run(name, func(t *testing.T) {
			x := w.join(carol)
			x.follow(convA, tt.mark)
			m := x.acked(convA, 10, tt.gap)
			if m.FirstSeq != 1 || m.Epoch != "0000000000000007" || m.Processing || m.Pending == nil {
				t.Errorf("%s", m)
			}
			x.reads(convA, tt.from, 10)
			x.leave()
		})
	}
	x := w.join(carol)
	x.follow(convA, 0)
	x.acked(convA, 10, false)
	w.agent.prints(l)
	x.reads(convA, 11, 11)
	y := w.join(bob)
	y.follow(convA, 5)
	y.acked(convA, 11, false)
	y.reads(convA, 6, 11)
	w.agent.prints(l)
	x.reads(convA, 12, 12)
	y.reads(convA, 12, 12)
	y.follow(convA, 11) // again
	y.acked(convA, 12, false)
	y.reads(convA, 12, 12)
	stuck := y.conn.block(true)
	y.s.Tell([]byte(`{"kind":"presence"}`))
	<-stuck
	y.follow(convA, 1, convA, 5, convA, 11) // each is acknowledged, the last one counts
	y.conn.block(false)
	for range 3 {
		y.acked(convA, 12, false)
	}
	y.reads(convA, 12, 12)
}

// TestFollowARun: mark 0 gets the running run, from its beginning.
func TestFollowARun(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 10)
	w.agent.becomes(l, protocol.RunRunning, "cmd_1")
	for range 5 {
		w.agent.prints(l)
	}
	x := w.join(carol)
	x.follow(convA, 0)
	if m := x.acked(convA, 15, false); !m.Processing {
		t.Errorf("%s", m)
	}
	x.reads(convA, 11, 15)
	w.agent.becomes(l, protocol.RunIdle, "")
	w.agent.prints(l)
	x.reads(convA, 16, 16)
	if s, err := x.s.State(t.Context(), convA); err != nil || s.Run != protocol.RunIdle || s.LastSeq != 16 || !s.Connected || s.Provider != "claude" {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestUnknown: a conversation that there isn't is acknowledged as idle. Its log
// covers no mark.
func TestUnknown(t *testing.T) {
	w := newWorld(t)
	w.agent.has(convA, 2)
	x := w.join(alice)
	x.follow(convB, 3, convA, 2, protocol.ConversationID("../x"), 0, protocol.ConversationID("../y"), 1)
	if m := x.acked(convB, 0, true); m.Processing || m.Pending == nil {
		t.Errorf("%s", m)
	}
	x.acked(convA, 2, false)
	x.acked("../x", 0, false)
	x.acked("../y", 0, true)
	x.follow(convB, 0)
	x.acked(convB, 0, false)
	if _, err := x.s.State(t.Context(), convB); !errors.Is(err, ErrNoSuch) {
		t.Errorf("%v", err)
	}
	if err := x.s.Attach(t.Context(), convB); !errors.Is(err, ErrNoSuch) {
		t.Errorf("%v", err)
	}
	w.agent.has(convB, 1)
	if _, err := x.s.State(t.Context(), convB); err != nil {
		t.Errorf("after it was made: %v", err)
	}
}

// TestPending: a question can be answered by every socket of its session, and no
// other knows of it.
func TestPending(t *testing.T) {
	w := newWorld(t)
	w.agent.has(convA, 0).state.Pending = []protocol.Pending{{RequestID: "apr_1", SessionID: convA, Revision: 3}}
	x, y := w.join(alice), w.join(carol)
	x.follow(convA, 0)
	x.acked(convA, 0, false)
	for _, c := range []*client{x, y} {
		if p, ok := c.s.Pending("apr_1"); !ok || p.SessionID != convA || p.Revision != 3 {
			t.Errorf("%+v", p)
		}
		if _, ok := c.s.Pending("apr_2"); ok {
			t.Error("a question that nobody has asked")
		}
	}
	grant, token := w.authority.Grant(alice)
	foreign, err := w.set.Socket(&conn{}, Guest{Grant: grant, Token: token, Session: "ses_other"})
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.leave()
	if p, ok := foreign.Pending("apr_1"); ok {
		t.Errorf("another session's socket: %+v", p)
	}
}

// TestExpected: the sender's socket isn't sent its own text.
func TestExpected(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 0)
	x, y := w.join(alice), w.join(bob)
	for _, c := range []*client{x, y} {
		if err := c.s.Attach(t.Context(), convA); err != nil {
			t.Fatal(err)
		}
	}
	x.s.Expect("cmd_1")
	w.agent.printsOf(l, "cmd_1", "")
	w.agent.prints(l)
	x.reads(convA, 2, 2)
	y.reads(convA, 1, 2)
}

// TestManyAtOnce: a socket's methods may be called at once, also for the same
// conversation: it follows each once.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	a, b := w.agent.has(convA, 1), w.agent.has(convB, 1)
	x := w.join(alice)
	newer, token := w.authority.Grant(alice)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			switch i % 4 {
			case 0:
				x.s.State(t.Context(), convA)
			case 1:
				x.s.Attach(t.Context(), convB)
			case 2:
				x.s.Expect(protocol.CommandID(fmt.Sprint("cmd_", i)))
			case 3:
				x.s.Renew(newer, token)
			}
		})
	}
	all.Wait()
	for _, c := range []protocol.ConversationID{convA, convB} {
		if err := x.s.Attach(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	w.agent.printsOf(a, "cmd_2", "")
	w.agent.printsOf(a, "cmd_38", "")
	w.agent.prints(a)
	x.reads(convA, 4, 4)
	w.agent.prints(b)
	x.reads(convB, 2, 2)
	if n := len(x.s.followers()); n != 2 {
		t.Errorf("%d followers", n)
	}
	x.leave()
	w.set.mu.Lock()
	defer w.set.mu.Unlock()
	for _, h := range w.set.hubs {
		if h.refs != 0 {
			t.Errorf("%d have joined %s", h.refs, h.key.Conversation)
		}
	}
	if len(w.set.people) != 0 {
		t.Errorf("%d people", len(w.set.people))
	}
}

// TestAgain: a client that subscribes again, behind what is still on its way to it,
// gets nothing twice; nor behind a run's end until it has answered that it has got
// that. Then it gets what it asks for. Seed 002's client subscribes whenever a
// session changes, and shows a word that comes twice twice. One that has said
// chat.hello always gets what it asks for.
func TestAgain(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 0)
	c := w.join(alice)
	c.conn.answers(false)
	c.follow(convA, 0)
	c.acked(convA, 0, false)
	w.agent.becomes(l, protocol.RunRunning, "cmd_1")
	for range 3 {
		w.agent.prints(l)
	}
	c.reads(convA, 1, 3)
	c.follow(convA, 1)
	c.acked(convA, 3, false)
	c.follow(convA, 0)
	c.acked(convA, 3, false)
	ours := w.join(carol)
	ours.follow(convA, 0)
	ours.acked(convA, 3, false)
	ours.reads(convA, 1, 3)
	ours.s.Hello()
	ours.gets("control_state", "presence", "run_state")
	ours.follow(convA, 0)
	ours.acked(convA, 3, false)
	ours.reads(convA, 1, 3)
	w.agent.prints(l)
	c.reads(convA, 4, 4)
	w.agent.becomes(l, protocol.RunIdle, "")
	w.agent.printsOf(l, "", `{"kind":"complete","id":"end","sessionId":"`+string(convA)+`","seq":5}`)
	c.reads(convA, 5, 5)
	c.follow(convA, 2)
	c.acked(convA, 5, false)
	w.agent.printsOf(l, "", `{"kind":"error","id":"late","sessionId":"`+string(convA)+`","seq":6}`)
	c.reads(convA, 6, 6)
	c.conn.answers(true)
	c.follow(convA, 2)
	c.acked(convA, 6, false)
	c.reads(convA, 3, 6)
	other := w.join(bob)
	other.follow(convA, 2)
	other.acked(convA, 6, false)
	other.reads(convA, 3, 6)
}
