package chatring

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// A model is a ring beside the whole log, with followers.
type model struct {
	ring   Ring
	window atomic.Int64
	log    []Event // number n is at n - 1; a zero Seq: nobody is to see it
	first  uint64  // of the log
	all    []*reader
}

// A reader is a follower that checks what it gets.
type reader struct {
	model   *model
	cursor  Cursor
	next    uint64 // what it must get next; 0: it doesn't follow yet
	expects protocol.CommandID
	queue   []Event // read of the log
	attempt uint64  // of the last one queued
	fill    bool
	jumps   bool // it was told of a gap: the next event may be any later one
}

func (r *reader) Stir()                              {}
func (r *reader) Ends() []byte                       { return nil }
func (r *reader) Expects(id protocol.CommandID) bool { return id == r.expects }
func (r *reader) Queue(attempt uint64, f []byte) bool {
	r.queue = append(r.queue, Event{Seq: attempt, Frame: f})
	return true
}

// gets checks one event.
func (r *reader) gets(t *rapid.T, frame []byte) {
	if r.jumps {
		var seq uint64
		fmt.Sscan(string(frame), &seq)
		r.next, r.jumps = max(r.next, seq), false
	}
	for r.next <= uint64(len(r.model.log)) {
		e := r.model.log[r.next-1]
		r.next++
		if e.Seq == 0 || e.Origin != "" && e.Origin == r.expects {
			continue
		}
		if string(e.Frame) != string(frame) {
			t.Fatalf("%s, want %s", frame, e.Frame)
		}
		return
	}
	t.Fatalf("%s beyond the head", frame)
}

// take has the reader take what it can.
func (r *reader) take(t *rapid.T) {
	for _, e := range r.queue {
		if r.cursor.Stands(e.Seq) {
			r.gets(t, e.Frame)
		}
	}
	r.queue = nil
	frames, b := r.cursor.Collect(nil)
	if b.Ack != nil {
		if b.Ack.LastSeq != uint64(len(r.model.log)) {
			t.Fatalf("an ack up to %d of %d", b.Ack.LastSeq, len(r.model.log))
		}
		r.jumps = r.jumps || b.Ack.Gap
	}
	for _, frame := range frames {
		r.gets(t, frame)
	}
	r.fill = r.fill || b.Fill
	if !b.More && !r.fill && !r.jumps { // it has all that there is
		for ; r.next <= uint64(len(r.model.log)); r.next++ {
			if e := r.model.log[r.next-1]; e.Seq != 0 && e.Origin != r.expects {
				t.Fatalf("event %d is missing", r.next)
			}
		}
	}
}

// begin has the reader begin after a mark. What it has been sent or is to be sent
// comes again only if it wants the whole.
func (r *reader) begin(mark uint64, whole bool) {
	c, head := &r.cursor, uint64(len(r.model.log))
	known := mark > 0 && mark <= head && mark+1 >= r.model.first
	goesOn := known && c.follows && !whole && c.since <= mark+1 && mark+1 <= c.next
	attempt := c.attempt
	c.Begin(mark, whole)
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	switch {
	case goesOn && c.attempt != attempt:
		panic(fmt.Sprintf("a mark of %d brings again what was sent", mark))
	case c.attempt == attempt: // it goes on where it was
		return
	}
	r.next, r.fill, r.jumps = c.next, false, false
	if want := mark + 1; known && r.next != want {
		panic(fmt.Sprintf("a mark of %d begins at %d", mark, r.next))
	}
}

// read reads a part of the log for the reader.
func (r *reader) read(t *rapid.T) {
	p, ok := r.cursor.Lacks()
	if !ok {
		r.fill = false
		return
	}
	gap := p.After+1 < r.model.first
	if err := r.cursor.Reads(p, 1, gap); err != nil {
		t.Fatal(err)
	}
	for seq := max(p.After+1, r.model.first); seq <= p.Until; seq++ {
		if e := r.model.log[seq-1]; e.Seq != 0 {
			if _, err := r.cursor.Read(p, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.cursor.Done(p)
}

// TestModel: whatever happens, each follower gets every event from its mark on,
// once and in order, or is told of a gap.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{first: 1}
		m.window.Store(1 << 20)
		m.ring.Init(&m.window, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gaps"}, []string{"reason"}))
		m.ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, From: 1, State: protocol.ChatState{Run: protocol.RunIdle}})
		one := func() *reader {
			if len(m.all) == 0 {
				t.Skip("nobody follows")
			}
			return rapid.SampledFrom(m.all).Draw(t, "who")
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					seq := uint64(len(m.log) + 1)
					e := Event{Seq: seq, Frame: []byte(fmt.Sprint(seq, strings.Repeat(" ", rapid.IntRange(0, 3000).Draw(t, "size"))))}
					if rapid.IntRange(0, 9).Draw(t, "origin") == 0 {
						e.Origin = "cmd_1"
					}
					if rapid.IntRange(0, 19).Draw(t, "bad") == 0 {
						e = Event{}
						if err := m.ring.Pass(seq); err != nil {
							t.Fatal(err)
						}
					} else if err := m.ring.Append(e); err != nil {
						t.Fatal(err)
					}
					m.log = append(m.log, e)
				}
			},
			"window": func(t *rapid.T) {
				m.window.Store(int64(rapid.IntRange(1, 100<<10).Draw(t, "bytes")))
				m.ring.Shrink()
			},
			"follow": func(t *rapid.T) {
				r := &reader{model: m}
				if rapid.Bool().Draw(t, "sender") {
					r.expects = "cmd_1"
				}
				r.cursor.Init(&m.ring, r)
				m.all = append(m.all, r)
				r.begin(uint64(rapid.IntRange(0, len(m.log)+2).Draw(t, "mark")), true)
			},
			"again": func(t *rapid.T) {
				one().begin(uint64(rapid.IntRange(0, len(m.log)+2).Draw(t, "mark")), rapid.Bool().Draw(t, "whole"))
			},
			"leave": func(t *rapid.T) {
				r := one()
				r.cursor.End()
				for i, other := range m.all {
					if other == r {
						m.all = append(m.all[:i], m.all[i+1:]...)
						break
					}
				}
			},
			"take": func(t *rapid.T) { one().take(t) },
			"read": func(t *rapid.T) { one().read(t) },
			"": func(t *rapid.T) {
				if held := m.ring.Held(); held > int(m.window.Load()) && len(m.ring.events) > 1 {
					t.Fatalf("%d bytes held, at most %d", held, m.window.Load())
				}
				if e := (Event{Seq: uint64(len(m.log))}); e.Seq > 0 && m.ring.Append(e) == nil {
					t.Fatal("a number came twice")
				}
			},
		})
	})
}

// still is a follower that only counts.
type still struct{ stirred int }

func (s *still) Stir()                           { s.stirred++ }
func (s *still) Ends() []byte                    { return nil }
func (s *still) Expects(protocol.CommandID) bool { return false }
func (s *still) Queue(uint64, []byte) bool       { return true }

// TestOpened: those who follow go on without a word only where a new stream
// continues the last one, in the same log.
func TestOpened(t *testing.T) {
	for name, c := range map[string]struct {
		opened protocol.ChatOpened
		gap    bool
	}{
		"goes on":           {protocol.ChatOpened{Epoch: 1, From: 5, LastSeq: 9}, false},
		"another epoch":     {protocol.ChatOpened{Epoch: 2, From: 5, LastSeq: 9}, true},
		"the agent says so": {protocol.ChatOpened{Epoch: 1, From: 5, LastSeq: 9, Gap: true}, true},
		"further on":        {protocol.ChatOpened{Epoch: 1, From: 6, LastSeq: 9}, true},
		"once more":         {protocol.ChatOpened{Epoch: 1, From: 4, LastSeq: 9}, true},
	} {
		var ring Ring
		var window atomic.Int64
		window.Store(1 << 20)
		ring.Init(&window, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gaps"}, []string{"reason"}))
		c.opened.FirstSeq, c.opened.State.Run = 1, protocol.RunIdle
		ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, From: 1, State: c.opened.State})
		var cursor Cursor
		cursor.Init(&ring, &still{})
		for seq := range uint64(4) {
			if err := ring.Append(Event{Seq: seq + 1, Frame: []byte("event")}); err != nil {
				t.Fatal(err)
			}
		}
		cursor.Begin(4, true)
		cursor.Collect(nil)
		ring.Opened(c.opened)
		if err := ring.Append(Event{Seq: c.opened.From, Frame: []byte("next")}); err != nil {
			t.Fatal(err)
		}
		frames, b := cursor.Collect(nil)
		if gap := b.Ack != nil && b.Ack.Gap && b.Ack.Epoch == c.opened.Epoch; gap != c.gap || len(frames) != 1 || string(frames[0]) != "next" {
			t.Errorf("%s: %+v and %q", name, b.Ack, frames)
		}
	}
}

// TestReads: what is read of another epoch's log isn't the rest of this one's.
func TestReads(t *testing.T) {
	var ring Ring
	var window atomic.Int64
	ring.Init(&window, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gaps"}, []string{"reason"}))
	ring.Opened(protocol.ChatOpened{Epoch: 1, FirstSeq: 1, From: 10, State: protocol.ChatState{Run: protocol.RunIdle}})
	var cursor Cursor
	cursor.Init(&ring, &still{})
	cursor.Begin(1, true)
	if _, b := cursor.Collect(nil); !b.Fill {
		t.Fatalf("%+v", b)
	}
	p, ok := cursor.Lacks()
	if !ok || p.After != 1 || p.Until != 9 {
		t.Fatalf("%+v", p)
	}
	if err := cursor.Reads(p, 2, false); err == nil || errors.Is(err, ErrVoid) {
		t.Errorf("%v", err)
	}
	if err := cursor.Reads(p, 1, false); err != nil {
		t.Error(err)
	}
	cursor.Begin(2, true)
	if err := cursor.Reads(p, 1, false); !errors.Is(err, ErrVoid) {
		t.Errorf("it goes on elsewhere: %v", err)
	}
}

// FuzzCheckMessage: what is let through is an object whose kind every JSON parser
// reads alike.
func FuzzCheckMessage(f *testing.F) {
	for _, s := range []string{
		`{"kind":"text"}`, `{"kind":"moved"}`, `{"kind":"moved","Kind":"text"}`, `{"kind":"text","kind":"moved"}`, `{"\u006bind":"text"}`,
		`[]`, `{"kind":["text"]}`, "{\"kind\":\"text\",\"a\":\"\xff\"}", `{"kind":"text"} {}`, `null`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if CheckMessage(data, EventKinds) != nil {
			return
		}
		var members map[string]json.RawMessage
		var kind protocol.ChatKind
		if err := json.Unmarshal(data, &members); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if err := json.Unmarshal(members["kind"], &kind); err != nil || !EventKinds[kind] || !utf8.Valid(data) {
			t.Fatalf("%q: %s, %v", data, members["kind"], err)
		}
	})
}

// TestCheckMessage: what is an event, and what isn't.
func TestCheckMessage(t *testing.T) {
	for message, want := range map[string]bool{
		`{"kind":"text"}`: true, ` { "a" : [1,{"kind":"moved"}], "kind" : "text" , "b":{"kind":"x","c":"}"}} `: true,
		`{"kind":"moved"}`: false, `{"kind":"text","kind":"moved"}`: false, `{"kind":"moved","kind":"text"}`: true,
		`{"kind":"moved","Kind":"text"}`: false, `{"Kind":"text"}`: false, `{"kind":"text","\u006bind":"moved"}`: false,
		`{"kind":"text","kind":1}`: false, `{"kind":"text","kind":["text"]}`: false, `["kind","text"]`: false, `"text"`: false, `null`: false,
		`{"a\"b":"\\","kind":"text"}`: false, `{"a":"\"kind\":","kind":"text"}`: true, `{"kind":"text"`: false, "{\"kind\":\"text\",\"a\":\"\xff\"}": false,
	} {
		if err := CheckMessage([]byte(message), EventKinds); (err == nil) != want {
			t.Errorf("%s: %v", message, err)
		}
	}
}

// TestAssembly: pieces in order, of one event, as many bytes as announced.
func TestAssembly(t *testing.T) {
	text := `{"kind":"text","content":"` + strings.Repeat("x", 100) + `"}`
	for name, pieces := range map[string][]protocol.Chat{
		"another event":   {{Seq: 1, Left: 5, Bytes: []byte("a")}, {Seq: 2, Left: 4, Bytes: []byte("a")}},
		"another origin":  {{Seq: 1, Left: 5, Bytes: []byte("a")}, {Seq: 1, Origin: "cmd_1", Left: 4, Bytes: []byte("a")}},
		"too much":        {{Seq: 1, Left: 5, Bytes: []byte("a")}, {Seq: 1, Left: 0, Bytes: []byte("aaaaaa")}},
		"too little left": {{Seq: 1, Left: 5, Bytes: []byte("a")}, {Seq: 1, Left: 2, Bytes: []byte("a")}},
	} {
		var a Assembly
		if whole, err := a.Add(pieces[0]); whole || err != nil {
			t.Fatal(whole, err)
		}
		if _, err := a.Add(pieces[1]); err == nil {
			t.Errorf("%s", name)
		}
	}
	var a Assembly
	for i := range text {
		whole, err := a.Add(protocol.Chat{Seq: 9, Left: len(text) - i - 1, Bytes: []byte{text[i]}})
		if err != nil || whole != (i == len(text)-1) {
			t.Fatal(i, whole, err)
		}
	}
	if e, err := a.Take(); err != nil || e.Seq != 9 || !strings.HasSuffix(string(e.Frame), text) || a.Started() {
		t.Errorf("%+v, %v", e, err)
	}
}
