package terminal

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// A typist is the model of TestInputModel: what was typed and what became of
// it.
type typist struct {
	r       *rig
	v       *viewer
	typed   []protocol.Input // in order
	refused map[int]bool     // by index in typed
	last    map[string]uint64
	term    uint64
}

// payload of the nth input: no part of another one looks like it.
func payload(n int) string { return fmt.Sprintf("<%04d>", n) }

// collect takes in the answers that wait.
func (m *typist) collect(t *rapid.T) {
	synctest.Wait()
	for {
		msg, err := m.v.Poll()
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		switch msg := msg.(type) {
		case nil:
			return
		case protocol.Leased:
			m.term = msg.Lease.Term
		case protocol.InputAck:
			m.last[msg.Client] = max(m.last[msg.Client], msg.Seq)
		case protocol.InputRefused:
			i := slices.IndexFunc(m.typed, func(in protocol.Input) bool { return in.Client == msg.Client && in.Seq == msg.Seq })
			m.refused[i] = true
		}
	}
}

// TestInputModel types, repeats, blocks and hands control on at random. Each
// input is acknowledged and written whole, once and in order, or refused and
// never whole.
func TestInputModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden := struct{ testing.TB }{t} // rapid asks a *testing.T for its deadline, which a bubble forbids
		rapid.Check(hidden, func(rt *rapid.T) {
			r := &rig{dev: newFakeDevice(), proc: newFakeProcess()}
			r.Terminal = newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 80, Rows: 24}, newProgram(r.dev, r.proc), site{}, slog.New(slog.DiscardHandler))
			defer r.own.reader.Wait()
			defer r.dev.Close()
			a, opened, err := r.Attach(protocol.TerminalParams{})
			if err != nil {
				rt.Fatal(err)
			}
			m := &typist{r: r, v: &viewer{a, t, opened}, refused: map[int]bool{}, last: map[string]uint64{}}
			rt.Repeat(map[string]func(*rapid.T){
				"type": func(rt *rapid.T) {
					n := len(m.typed)
					term := m.term - rapid.Uint64Range(0, min(m.term, 1)).Draw(rt, "old")
					in := protocol.Input{Term: term, Seq: uint64(n + 1), Client: rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "client"), Bytes: []byte(payload(n))}
					m.typed = append(m.typed, in)
					a.Input(in)
				},
				"repeat": func(rt *rapid.T) {
					if len(m.typed) > 0 {
						a.Input(rapid.SampledFrom(m.typed).Draw(rt, "input"))
					}
				},
				"room": func(rt *rapid.T) { r.dev.setRoom(rapid.IntRange(0, 20).Draw(rt, "room")) },
				"hand on": func(rt *rapid.T) {
					m.v.propose(rapid.SampledFrom([]protocol.UserID{alice, bob, ""}).Draw(rt, "holder"))
				},
				"": m.collect,
			})
			r.dev.setRoom(1 << 20)
			m.collect(rt)
			m.check(rt)
		})
	})
}

func (m *typist) check(t *rapid.T) {
	written := m.r.dev.take()
	at := 0
	for i, in := range m.typed {
		n := strings.Count(written, payload(i))
		switch {
		case m.refused[i] && n == 0:
		case !m.refused[i] && n == 1 && m.last[in.Client] >= in.Seq:
			next := strings.Index(written, payload(i))
			if next < at {
				t.Fatalf("input %d out of order in %q", i, written)
			}
			at = next
		default:
			t.Fatalf("input %d: refused %v, acked to %d, written %d times in %q", i, m.refused[i], m.last[in.Client], n, written)
		}
	}
}
