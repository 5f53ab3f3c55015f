package terminal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// A fakeGrid passes all output but the query "?", which it holds back and
// answers with "!" once the next byte is there. Its keyframes tell what it has
// seen.
type fakeGrid struct {
	seen       int // bytes let out
	cols, rows int
	held       bool
	screen     int // size of a keyframe without history, if more than it says
	line       int // size of a line above the screen
	lines      int // how many there are
}

func (g *fakeGrid) Write(out, answers, p []byte) (o, a []byte) {
	for _, c := range p {
		if g.held {
			answers = append(answers, '!')
		}
		if g.held = c == '?'; !g.held {
			out = append(out, c)
			g.seen++
		}
	}
	return out, answers
}

func (g *fakeGrid) Fork() *screen.Screen                                { return nil }
func (g *fakeGrid) BracketedPaste() bool                                { return false }
func (g *fakeGrid) TakeTangled() bool                                   { return false }
func (g *fakeGrid) SkipNewText()                                        {}
func (g *fakeGrid) AppendNewText(dst []byte) []byte                     { return dst }
func (g *fakeGrid) AppendPlain(dst []byte, _ int) []byte                { return dst }
func (g *fakeGrid) Mask(func(text []byte, mask func(from, to int))) int { return 0 }

func (g *fakeGrid) MaskAsIn(*screen.Screen, bool, func([]byte, func(from, to, few int))) int {
	return 0
}

func (g *fakeGrid) Flush(out []byte) []byte { return out }
func (g *fakeGrid) Resize(cols, rows int)   { g.cols, g.rows = cols, rows }

func (g *fakeGrid) AppendHandover(dst []byte, _ screen.Modes) ([]byte, screen.Modes) {
	return append(dst, '|'), screen.Modes{}
}

func (g *fakeGrid) AppendKeyframe(dst []byte, history int) []byte {
	n := len(dst)
	dst = fmt.Appendf(dst, "[%d bytes, %dx%d]", g.seen, g.cols, g.rows)
	dst = append(dst, make([]byte, max(0, g.screen-(len(dst)-n)))...)
	return append(dst, make([]byte, min(history, g.lines)*g.line)...)
}

// withGrid puts a fake grid in place of r's.
func (r *rig) withGrid() *fakeGrid {
	g := &fakeGrid{cols: 80, rows: 24}
	r.view.mu.Lock()
	defer r.view.mu.Unlock()
	r.view.display = display.New(r.transcript, g, r.own.out, new(atomic.Uint64), r.log)
	return g
}

// wantKeyframe takes a keyframe of one piece or more and returns all of it.
func (v *viewer) wantKeyframe(offset uint64, history bool, screen string) []byte {
	v.t.Helper()
	var all []byte
	for {
		m := want[protocol.Keyframe](v)
		if m.Offset != offset || m.History != history || len(m.Bytes) > protocol.MaxKeyframePiece {
			v.t.Fatalf("piece of %d bytes at %d, history %v", len(m.Bytes), m.Offset, m.History)
		}
		all = append(all, m.Bytes...)
		if m.Left == 0 {
			break
		}
	}
	if !bytes.HasPrefix(all, []byte(screen)) {
		v.t.Fatalf("keyframe %.40q, want %q", all, screen)
	}
	return all
}

func TestKeyframeBetweenTheOutput(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		v := r.attach(t, nil)
		r.print("one")
		v.WantKeyframe(true) // taken at 3
		r.print("two?")
		v.wantData(0, "one")
		v.wantKeyframe(3, true, "[3 bytes, 80x24]")
		v.wantData(3, "two") // what the grid holds back isn't there yet
		v.nothing()
	})
}

func TestKeyframeWaitsForTheInterval(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		v, w := r.attach(t, nil), r.attach(t, nil)
		start := time.Now()
		v.WantKeyframe(false)
		v.wantKeyframe(0, false, "[0 bytes")
		if time.Since(start) != 0 {
			t.Error("the first one waited")
		}
		v.WantKeyframe(false)
		w.WantKeyframe(false)
		w.WantKeyframe(true) // adds the history
		r.print("x")
		v.wantData(0, "x")
		v.wantKeyframe(1, false, "[1 bytes")
		w.wantData(0, "x")
		w.wantKeyframe(1, true, "[1 bytes")
		if took := time.Since(start); took != protocol.KeyframeInterval {
			t.Errorf("took %v", took)
		}
		v.nothing()
		w.nothing()
	})
}

// TestKeyframesAreShared: who asks at the same place gets the same bytes.
func TestKeyframesAreShared(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		var first [2]*byte
		for i := range 3 {
			for j, history := range []bool{false, true} {
				v := r.attach(t, nil)
				v.WantKeyframe(history)
				m := want[protocol.Keyframe](v)
				if i == 0 {
					first[j] = &m.Bytes[0]
				} else if &m.Bytes[0] != first[j] {
					t.Error("drawn again")
				}
			}
		}
	})
}

// TestKeyframeAndSizes: a keyframe stands behind the size that it has, and
// before one that came later at the same place.
func TestKeyframeAndSizes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		v := r.attach(t, nil)
		v.propose(alice)
		size := func(cols int) {
			v.Resize(protocol.Resize{Term: 1, Cols: cols, Rows: 30})
			time.Sleep(arbiter.ResizeEvery)
			synctest.Wait()
		}
		r.print("one")
		size(100)
		v.WantKeyframe(false)
		v.wantData(0, "one")
		want[protocol.Resized](v)
		v.wantKeyframe(3, false, "[3 bytes, 100x30]")

		v.WantKeyframe(true) // waits for the interval
		size(110)
		r.print("two")
		time.Sleep(protocol.KeyframeInterval)
		size(120) // replaces nothing at 3, but the keyframe at 6 is not of this size
		if m := want[protocol.Resized](v); m.Cols != 110 || m.Offset != 3 {
			t.Fatalf("%+v", m)
		}
		v.wantData(3, "two")
		if m := want[protocol.Resized](v); m.Cols != 120 || m.Offset != 6 {
			t.Fatalf("%+v", m)
		}
		v.wantKeyframe(6, true, "[6 bytes, 120x30]")
	})
}

// TestKeyframePieces: the pieces of a large one follow each other, whatever
// happens meanwhile.
func TestKeyframePieces(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := r.withGrid()
		g.screen = 3*protocol.MaxKeyframePiece + 1
		v := r.attach(t, nil)
		v.propose(alice)
		v.WantKeyframe(false)
		left := g.screen
		for left > 0 {
			m := want[protocol.Keyframe](v)
			left -= len(m.Bytes)
			if m.Left != left {
				t.Fatalf("%d left, want %d", m.Left, left)
			}
			v.Post(protocol.Granted{GrantID: "gr_1"})
			r.print("x")
			v.Resize(protocol.Resize{Term: 1, Cols: 90, Rows: 30})
			if left > 0 {
				v.WantKeyframe(true)
			}
		}
		for range 4 {
			want[protocol.Granted](v)
		}
	})
}

// TestKeyframeTooLarge: it never comes, and nothing waits for it.
func TestKeyframeTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		g := r.withGrid()
		g.screen = protocol.MaxKeyframeBytes + 1
		v := r.attach(t, nil)
		v.WantKeyframe(true)
		r.print("x")
		time.Sleep(time.Minute)
		v.wantData(0, "x")
		v.nothing()
		g.screen = 0
		v.WantKeyframe(true)
		v.wantKeyframe(1, true, "[1 bytes")
		g.screen = protocol.MaxKeyframeBytes + 1
		v.WantKeyframe(true)
		r.print("y")
		close(r.dev.output)
		r.proc.exit(0)
		v.wantData(1, "y")
		want[protocol.Exited](v)
	})
}

// TestKeyframeOfAnEndedTerminal: the end waits for a keyframe that was asked for
// before it was delivered.
func TestKeyframeOfAnEndedTerminal(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		early := r.attach(t, nil)
		early.WantKeyframe(false)
		early.wantKeyframe(0, false, "[0 bytes")
		early.WantKeyframe(false)
		r.print("bye")
		early.wantData(0, "bye")
		early.nothing()
		close(r.dev.output)
		r.proc.exit(0)
		<-r.life.gone
		early.wantKeyframe(3, false, "[3 bytes")
		want[protocol.Exited](early)
		early.WantKeyframe(false) // too late
		if m, err := early.Next(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatal(m, err)
		}
		for range 2 {
			late := r.attach(t, nil)
			late.WantKeyframe(true)
			late.wantData(0, "bye")
			late.wantKeyframe(3, true, "[3 bytes")
			want[protocol.Exited](late)
		}
	})
}

// TestKeyframeAfterAReset: a relay that has lost its place gets one there and
// then, before output that outruns it can carry it away again.
func TestKeyframeAfterAReset(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.withGrid()
		v := r.attach(t, nil)
		r.print("x")
		v.WantKeyframe(true)
		line := strings.Repeat("x", 1022) + "\r\n"
		r.print(strings.Repeat(line, protocol.LogWindowBytes/1024+1))
		head := uint64(protocol.LogWindowBytes + 1025)
		if reset := want[protocol.Reset](v); reset.Offset != head {
			t.Errorf("goes on at %d, want %d", reset.Offset, head)
		}
		v.wantKeyframe(head, true, fmt.Sprintf("[%d bytes", head))
		r.print("more")
		v.wantData(head, "more")
	})
}

// TestKeyframeShowsTheScreen puts a keyframe and what follows it into a terminal
// that has seen nothing else.
func TestKeyframeShowsTheScreen(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 100 {
			r.print(fmt.Sprintf("line %d\r\n", i))
		}
		r.print("\x1b[5;3Hhere \x1b[3") // a sequence is unfinished
		head := r.end()
		v := r.attach(t, &protocol.Position{Epoch: r.transcript.Epoch(), Offset: uint64(head)})
		v.WantKeyframe(true)
		late := screen.New(80, 24)
		late.Write(nil, nil, v.wantKeyframe(uint64(head), true, ""))
		r.print("1mred\r\nmore")
		late.Write(nil, nil, want[protocol.Data](v).Bytes)
		whole := screen.New(80, 24)
		all := r.attach(t, nil)
		for at := 0; at < r.end(); {
			p := want[protocol.Data](all).Bytes
			whole.Write(nil, nil, p)
			at += len(p)
		}
		for row := range 24 {
			if got, want := late.Line(row), whole.Line(row); got != want {
				t.Errorf("row %d: %q, want %q", row, got, want)
			}
		}
		if got := late.Line(4); !strings.HasPrefix(got, "lihere red") {
			t.Errorf("row 4: %q", got)
		}
	})
}

// TestKeyframeModel prints, resizes, asks and reads at random. What a reader
// gets is the log in order, and each keyframe is of the place and size at which
// it stands.
func TestKeyframeModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden := struct{ testing.TB }{t} // rapid asks a *testing.T for its deadline, which a bubble forbids
		rapid.Check(hidden, func(rt *rapid.T) {
			r := &rig{dev: newFakeDevice(), proc: newFakeProcess()}
			r.Terminal = newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 80, Rows: 24}, newProgram(r.dev, r.proc), site{}, slog.New(slog.DiscardHandler))
			defer r.own.reader.Wait()
			defer r.dev.Close()
			r.withGrid()
			v := attach(t, r.Terminal, nil)
			at, cols, asked, got := uint64(0), 80, 0, 0
			read := func(rt *rapid.T) bool {
				m, err := v.Poll()
				if err != nil {
					rt.Fatal(err)
				}
				switch m := m.(type) {
				case protocol.Data:
					if m.Offset != at {
						rt.Fatalf("data at %d, want %d", m.Offset, at)
					}
					at += uint64(len(m.Bytes))
				case protocol.Resized:
					if m.Offset != at {
						rt.Fatalf("size at %d, want %d", m.Offset, at)
					}
					cols = m.Cols
				case protocol.Keyframe:
					if want := fmt.Sprintf("[%d bytes, %dx24]", at, cols); m.Offset != at || string(m.Bytes) != want {
						rt.Fatalf("keyframe %q at %d, want %q at %d", m.Bytes, m.Offset, want, at)
					}
					got++
				}
				return m != nil
			}
			rt.Repeat(map[string]func(*rapid.T){
				"print": func(rt *rapid.T) {
					r.print(strings.Repeat("x", rapid.IntRange(1, 2*protocol.MaxDataBytes).Draw(rt, "bytes")))
				},
				"size": func(rt *rapid.T) {
					r.view.mu.Lock()
					defer r.view.mu.Unlock()
					r.resized(rapid.IntRange(1, 4).Draw(rt, "cols"), 24)
				},
				"ask": func(rt *rapid.T) {
					v.WantKeyframe(rapid.Bool().Draw(rt, "history"))
					asked++
				},
				"wait": func(*rapid.T) {
					time.Sleep(protocol.KeyframeInterval)
					r.tick()
				},
				"read": func(rt *rapid.T) { read(rt) },
			})
			for range 2 {
				time.Sleep(protocol.KeyframeInterval)
				r.tick()
				for read(rt) {
				}
			}
			if r.arbiter.Wanted() != (arbiter.Wishes{}) || asked > 0 && got == 0 || got > asked {
				rt.Fatalf("%d keyframes for %d requests", got, asked)
			}
		})
	})
}
