package chatring

import (
	"encoding/json"
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

// begin has the reader begin after a mark.
func (r *reader) begin(mark uint64) {
	r.cursor.Begin(mark)
	r.cursor.ring.mu.Lock()
	defer r.cursor.ring.mu.Unlock()
	r.next, r.fill, r.jumps = r.cursor.next, false, false
	if want := mark + 1; mark > 0 && mark <= uint64(len(r.model.log)) && want >= r.model.first && r.next != want {
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
				r.begin(uint64(rapid.IntRange(0, len(m.log)+2).Draw(t, "mark")))
			},
			"again": func(t *rapid.T) { one().begin(uint64(rapid.IntRange(0, len(m.log)+2).Draw(t, "mark"))) },
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
