package chathub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/chatring"
	"github.com/fairlead/fairlead/tunnel"
)

const elsewhere = "https://other.example"

// TestReconnect: after the loss of a stream, or of the tunnel, in mid-run each
// socket's events are the log's.
// It is about weaknesses 22 and 26 in deploy/e2e/README.md.
func TestReconnect(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 4)
	x, y := w.join(alice), w.join(bob)
	x.follow(convA, 4)
	x.acked(convA, 4, false)
	y.follow(convA, 0)
	y.acked(convA, 4, false)
	w.agent.becomes(l, protocol.RunRunning, "cmd_1")
	next := uint64(5)
	for round := range 4 {
		for range 3 {
			w.agent.prints(l)
		}
		if round%2 == 0 {
			w.agent.cuts(l)
			w.agent.prints(l)
		} else {
			w.session.Close()
			w.agent.prints(l)
			w.agent.prints(l)
			w.connect()
		}
		w.agent.mu.Lock()
		last := l.last
		w.agent.mu.Unlock()
		x.reads(convA, next, last)
		y.reads(convA, next, last)
		next = last + 1
	}
	w.agent.becomes(l, protocol.RunIdle, "")
	w.agent.prints(l)
	x.reads(convA, next, next)
	z := w.join(carol)
	z.follow(convA, 1)
	z.acked(convA, next, false)
	z.reads(convA, 2, next)
	w.agent.mu.Lock()
	defer w.agent.mu.Unlock()
	for i, p := range w.agent.seen {
		if (i == 0) != (p.After == nil) {
			t.Errorf("stream %d is opened after %v", i, p.After)
		}
	}
}

// TestResumedElsewhere: an agent that can't go on where the stream ended makes a
// gap, and the rest comes by a mark.
func TestResumedElsewhere(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 4)
	x := w.join(alice)
	x.follow(convA, 4)
	x.acked(convA, 4, false)
	w.agent.mu.Lock()
	l.epoch++ // it was started again
	w.agent.mu.Unlock()
	w.agent.cuts(l)
	if m := x.acked(convA, 4, true); m.Epoch != "0000000000000008" {
		t.Errorf("%s", m)
	}
	w.agent.prints(l)
	x.reads(convA, 5, 5)
	if n := testutil.ToFloat64(w.set.metrics.Gaps.WithLabelValues(chatring.GapResumed)); n != 1 {
		t.Errorf("%v", n)
	}
}

// TestChatReset: what the relay has of a rewritten log is dropped.
func TestChatReset(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 0)
	x := w.join(alice)
	x.follow(convA, 0)
	x.acked(convA, 0, false)
	for range 5 {
		w.agent.prints(l)
	}
	x.reads(convA, 1, 5)
	w.agent.resets(l)
	if m := x.acked(convA, 5, true); m.Epoch != "0000000000000008" {
		t.Errorf("%s", m)
	}
	if held := w.set.Held(); held != 0 {
		t.Errorf("the ring has %d bytes", held)
	}
	w.agent.prints(l)
	x.reads(convA, 6, 6)
	x.follow(convA, 2)
	x.acked(convA, 6, false)
	x.reads(convA, 3, 6) // of the rewritten log
}

// TestNoSandbox: without a tunnel following waits, asking for the state doesn't,
// for long.
func TestNoSandbox(t *testing.T) {
	defer func(a, b any) { ackPatience, openTimeout = patience, patience }(nil, nil)
	ackPatience, openTimeout = 1, 1
	w := newWorld(t)
	w.agent.has(convA, 4)
	w.tunnels.Connect(nil)
	x := w.join(alice)
	x.follow(convA, 2)
	if _, err := x.s.State(t.Context(), convA); protocol.KindOf(err) != protocol.KindUnavailable {
		t.Errorf("%v", err)
	}
	openTimeout = patience
	w.connect()
	x.acked(convA, 4, false)
	x.reads(convA, 3, 4)
}

// TestMarkThatTheLogLacks: a gap, then what there is.
// It is about weakness 2 in deploy/e2e/README.md.
func TestMarkThatTheLogLacks(t *testing.T) {
	w := newWorld(t)
	l := w.agent.has(convA, 10)
	w.agent.mu.Lock()
	l.first = 6
	w.agent.mu.Unlock()
	x := w.join(alice)
	x.follow(convA, 2)
	if m := x.acked(convA, 10, true); m.FirstSeq != 6 {
		t.Errorf("%s", m)
	}
	x.reads(convA, 6, 10)
	w.agent.mu.Lock()
	l.first = 9 // since the stream was opened
	w.agent.mu.Unlock()
	x.follow(convA, 6)
	x.acked(convA, 10, false)
	x.acked(convA, 10, true)
	x.reads(convA, 9, 10)
	w.agent.mu.Lock()
	w.agent.reads = func(protocol.ChatReadParams) error { return protocol.Fault(protocol.KindEnded, nil) }
	w.agent.mu.Unlock()
	x.follow(convA, 9)
	x.acked(convA, 10, false)
	x.acked(convA, 10, true)
	w.agent.prints(l)
	x.reads(convA, 11, 11)
}

// TestLongReplay: a mark far below the ring is served by the log within bounded
// memory, while another conversation of the socket goes on.
func TestLongReplay(t *testing.T) {
	w := newWorld(t)
	a, b := w.agent.has(convA, 0), w.agent.has(convB, 0)
	w.agent.mu.Lock()
	for range 300 {
		a.put("", long(convA, a.last+1, 20<<10))
	}
	w.agent.mu.Unlock()
	x := w.join(alice)
	x.follow(convB, 0)
	x.acked(convB, 0, false)
	stuck := x.conn.block(true)
	x.follow(convA, 1)
	<-stuck // with the ack
	x.s.queue.mu.Lock()
	ahead := x.s.queue.ahead
	x.s.queue.mu.Unlock()
	if ahead > maxReplay {
		t.Errorf("%d bytes are read ahead", ahead)
	}
	w.agent.prints(b)
	x.conn.block(false)
	x.acked(convA, 300, false)
	beside := false
	for next := uint64(2); next <= 300 || !beside; {
		m := x.next()
		if beside = beside || m.SessionID == convB; m.SessionID == convB {
			if next > 100 {
				t.Errorf("the other conversation waits until event %d", next)
			}
			continue
		}
		if m.Seq != next {
			t.Fatalf("%s, want %d", m, next)
		}
		next++
	}
	w.agent.prints(a)
	x.reads(convA, 301, 301)
}

// standby is a fleet whose sandbox is at home elsewhere.
type standby struct{}

func (standby) Wait(context.Context, protocol.SandboxID) (*tunnel.Session, error) {
	return nil, &tunnel.StandbyError{Origin: elsewhere}
}

func TestMoved(t *testing.T) {
	for name, move := range map[string]func(w *world){
		"the primary moves": func(w *world) {
			for _, role := range []protocol.Role{{Primary: true, Generation: 1}, {Generation: 2, Origin: elsewhere}} {
				if err := w.session.SendRole(role); err != nil {
					w.t.Fatal(err)
				}
			}
		},
		"drain": func(w *world) {
			ctx, cancel := context.WithTimeout(w.t.Context(), patience)
			defer cancel()
			w.set.Drain(ctx, elsewhere)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.agent.has(convA, 1)
			x, y := w.join(alice), w.join(bob)
			x.s.Hello()
			x.follow(convA, 0)
			x.until("run_state")
			move(w)
			if m := x.until("moved"); m.Origin != elsewhere {
				t.Errorf("%s", m)
			}
			if m := x.until(closed); m.Close != 1012 {
				t.Errorf("%s", m)
			}
			if m := y.gets(closed); m.Close != 1012 { // it never said hello
				t.Errorf("%s", m)
			}
		})
	}
	t.Run("a standby", func(t *testing.T) {
		w := newWorld(t)
		w.set.tunnels = standby{}
		x := w.join(alice)
		_, err := x.s.State(t.Context(), convA)
		if _, ok := errors.AsType[*tunnel.StandbyError](err); !ok && protocol.KindOf(err) != protocol.KindRestarting {
			t.Errorf("%v", err)
		}
		if m := x.gets(closed); m.Close != 1012 {
			t.Errorf("%s", m)
		}
	})
}

// TestHostileAgent: what no agent says ends its stream, what no client may see is
// dropped, and both are counted.
func TestHostileAgent(t *testing.T) {
	piece := func(seq uint64, left int, text string) protocol.Chat {
		return protocol.Chat{Seq: seq, Left: left, Bytes: []byte(text)}
	}
	good := text(convA, 2)
	for name, tt := range map[string]struct {
		says []protocol.Message
		what string
	}{
		"falling number":   {[]protocol.Message{piece(1, 0, good)}, droppedStream},
		"piece of another": {[]protocol.Message{piece(2, 5, good), piece(3, 0, "12345")}, droppedStream},
		"too long":         {[]protocol.Message{piece(2, 5, good), piece(2, 0, "123456")}, droppedStream},
		"frame inside":     {[]protocol.Message{piece(2, 5, good), protocol.Leased{Lease: protocol.Lease{State: protocol.LeaseFree}}}, droppedStream},
		"unasked":          {[]protocol.Message{protocol.Exited{}}, droppedStream},
		"reset backwards":  {[]protocol.Message{protocol.ChatReset{Epoch: 9, FirstSeq: 1, LastSeq: 0}}, droppedStream},
		"no JSON":          {[]protocol.Message{piece(2, 0, `{"kind":"text"`), piece(3, 0, text(convA, 3))}, droppedEvent},
		"no UTF-8":         {[]protocol.Message{piece(2, 0, "{\"kind\":\"text\",\"content\":\"\xff\"}"), piece(3, 0, text(convA, 3))}, droppedEvent},
		"the relay's own":  {[]protocol.Message{piece(2, 0, `{"kind":"moved","origin":"https://evil.example"}`), piece(3, 0, text(convA, 3))}, droppedEvent},
		"hidden kind":      {[]protocol.Message{piece(2, 0, `{"kind":"moved","Kind":"text"}`), piece(3, 0, text(convA, 3))}, droppedEvent},
		"no object":        {[]protocol.Message{piece(2, 0, `["kind"]`), piece(3, 0, text(convA, 3))}, droppedEvent},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.agent.has(convA, 1)
			x := w.join(alice)
			x.follow(convA, 0)
			x.acked(convA, 1, false)
			w.agent.mu.Lock()
			w.agent.raw = func(_ *tunnel.Incoming, s *tunnel.Stream) {
				for _, m := range tt.says {
					if protocol.Write(s, m) != nil {
						return
					}
				}
			}
			w.agent.mu.Unlock()
			w.agent.cuts(w.agent.logs[convA])
			if tt.what == droppedEvent {
				x.reads(convA, 3, 3)
			} else {
				w.becomesTrue(func() bool { return testutil.ToFloat64(w.set.metrics.Dropped.WithLabelValues(tt.what)) > 0 })
			}
			if n := testutil.ToFloat64(w.set.metrics.Dropped.WithLabelValues(tt.what)); n == 0 {
				t.Error("not counted")
			}
		})
	}
}

// FuzzAgent feeds what a hostile agent may send, on its stream and as a part of its
// log: whatever sockets get is JSON of an event's kind, with rising numbers.
func FuzzAgent(f *testing.F) {
	var seed []byte
	for _, m := range []protocol.Message{
		protocol.Chat{Seq: 1, Bytes: []byte(text(convA, 1))}, protocol.Chat{Seq: 2, Left: 3, Bytes: []byte(`{"a`)}, protocol.Chat{Seq: 2, Bytes: []byte(`":1`)},
		protocol.ChatState{Run: protocol.RunRunning, CommandID: "cmd_1"}, protocol.ChatReset{Epoch: 3, FirstSeq: 1, LastSeq: 9},
	} {
		var err error
		if seed, err = protocol.Append(seed, m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(seed)
	f.Add(seed[:len(seed)/2])
	f.Add(seed[len(seed)/4:])
	part, err := protocol.Append(nil, protocol.Chat{Seq: 5, Bytes: []byte(text(convA, 5))})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(part, seed[len(part):]...))
	f.Fuzz(func(t *testing.T, data []byte) {
		h, socket := still(t)
		whole := data
		fo := newFollower(socket, h, 1, socket.grant.Load(), "token")
		h.ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, From: 1, State: protocol.ChatState{Run: protocol.RunIdle}})
		fo.spot.cursor.Begin(0, true)
		r, head := reader{hub: h, link: &link{}}, uint64(0)
		for len(data) > 5 {
			n := min(int(data[4])|int(data[3])<<8, len(data)-5)
			m, err := protocol.Decode(protocol.Frame{Type: protocol.FrameType(data[0]), Payload: data[5 : 5+n]})
			data = data[5+n:]
			switch m.(type) {
			case protocol.Chat, protocol.ChatReset, protocol.ChatState:
				if err != nil {
					continue
				}
				if r.take(m) != nil {
					r.pieces = chatring.Assembly{}
				}
			}
			if v := h.ring.View(); v.Head < head {
				t.Fatalf("%d after %d", v.Head, head)
			} else {
				head = v.Head
			}
		}
		h.ring.Deliver()
		for more := true; more; {
			var b chatring.Batch
			var batch net.Buffers
			batch, b = fo.spot.cursor.Collect(nil)
			more = b.More
			for _, frame := range batch {
				shows(t, frame)
			}
		}
		if len(whole) <= maxReplay { // nobody takes what waits
			_, _ = fillsWith(t, whole) // what it says is of no use
		}
	})
}

// fillsWith has a cursor read bytes of an agent as the part of the log that it lacks.
func fillsWith(t *testing.T, data []byte) (read uint64, err error) {
	t.Helper()
	h, socket := still(t)
	fo := newFollower(socket, h, 1, socket.grant.Load(), "token")
	h.ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, LastSeq: 9, From: 10, State: protocol.ChatState{Run: protocol.RunIdle}})
	fo.spot.cursor.Begin(1, true)
	fo.spot.cursor.Collect(nil)
	p, ok := fo.spot.cursor.Lacks()
	if !ok || p.After != 1 || p.Until != 9 {
		t.Fatalf("%+v, %t", p, ok)
	}
	err = socket.filler.events(&fo.spot, p, protocol.NewFrameReader(bytes.NewReader(data)))
	for {
		it, more := socket.queue.pop()
		if !more {
			break
		}
		if it.frame != nil {
			shows(t, it.frame)
			read++
		}
	}
	if read > p.Until-p.After {
		t.Errorf("%d events of %+v: %v", read, p, err)
	}
	return read, err
}

// TestHostileLog: a part of a log whose numbers fall, or that aren't asked for, is
// read up to there.
func TestHostileLog(t *testing.T) {
	for name, tt := range map[string]struct {
		seqs []uint64
		read uint64
		bad  bool
	}{
		"as asked": {[]uint64{2, 3, 9}, 3, false}, "falling": {[]uint64{4, 3}, 1, true}, "twice": {[]uint64{4, 4}, 1, true},
		"not asked for": {[]uint64{9, 10}, 1, true}, "before": {[]uint64{1}, 0, true},
	} {
		var data []byte
		for _, seq := range tt.seqs {
			var err error
			if data, err = protocol.Append(data, protocol.Chat{Seq: seq, Bytes: []byte(text(convA, seq))}); err != nil {
				t.Fatal(err)
			}
		}
		if read, err := fillsWith(t, data); read != tt.read || (err != nil) != tt.bad {
			t.Errorf("%s: %d read, %v", name, read, err)
		}
	}
}

// shows checks a frame with an event.
func shows(t *testing.T, frame []byte) {
	t.Helper()
	payload, _, err := parse(frame)
	var m struct{ Kind protocol.ChatKind }
	if err != nil || json.Unmarshal(payload, &m) != nil || !chatring.EventKinds[m.Kind] {
		t.Fatalf("%q, %v", frame, err)
	}
}
