package display

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/transcript"
)

// compile returns the set of secrets.
func compile(t *testing.T, secrets ...string) *redact.Set {
	t.Helper()
	set, err := redact.Compile(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// coloured returns s with a colour before each byte.
func coloured(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "\x1b[3%dm%c", i%8, s[i])
	}
	return b.String() + "\x1b[m"
}

// TestMaskModel: whatever a program prints in whatever pieces, and whenever
// secrets come, sizes change and epochs end, the screen is that of who has the
// log alone, and no secret can be read there.
func TestMaskModel(t *testing.T) {
	const secretA = "sk-live/4242+abcDEF?xyz&q"
	const short = "hunter22"
	const long = short + "/pass-Word" // of which the rest must not be seen either
	first, both := compile(t, short), compile(t, short, secretA, long)
	pieces := []string{
		short, short[4:], long[8:], long[8:12], long[12:], long[:12], secretA, short[:4], short[4:], secretA[:9], secretA[9:], "\r\n", "\r", " ", "x", "漢", "\x1b[31m", "\x1b[H", "\x1b[2;3H", "\x1b[2;7H",
		"\x1b[2;12H", "\b", "\b\b\b\b", "\x1b[K", "\x1b[2J", "\x1b[?1049h", "\x1b[?1049l", "\x1b[4P", "\x1b[4@", "\x1b[6n", "\x1b]2;", "\a", "\x1b[",
		"\x1b", "\xe6", "\x1b[3;5r", "\n\n\n", "\x1bM", "\x1bc", strings.Repeat("-", 15), coloured(short), "\x1b7", "\x1b8", "\x1b[?7l", "\x1b[4h", "\x1b[4l",
	}
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rapid.SampledFrom([]int{0, 30, 300, maxBehind}).Draw(rt, "behind"))
		var sized uint64
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			look := true
			switch rapid.IntRange(0, 20).Draw(rt, "step") {
			case 0:
				m.use(rapid.SampledFrom([]*redact.Set{first, both}).Draw(rt, "set"))
			case 1:
				look = false // what a size brings together is found with the next output
				cols, rows := rapid.IntRange(10, 30).Draw(rt, "cols"), rapid.IntRange(3, 8).Draw(rt, "rows")
				if head := m.transcript.Head(); head != sized { // of sizes at one place the log knows the last
					m.Resize(cols, rows)
					m.transcript.Resize(cols, rows)
					sized = head
				}
			default:
				p := ""
				for range rapid.IntRange(1, 4).Draw(rt, "pieces") {
					p += rapid.SampledFrom(pieces).Draw(rt, "piece")
				}
				look = m.print(p)
			}
			// Comparing the screens has that of the log catch up.
			m.check(rt, look, rapid.Bool().Draw(rt, "compare"))
		}
	})
}

// A model is a display with its log, whose epochs begin as soon as they are due.
type model struct {
	*Display
	set *redact.Set
}

func newModel(mostBehind int) *model {
	const cols, rows = 20, 6
	logs := slog.New(slog.DiscardHandler)
	m := &model{Display: New(transcript.New("pty_1", cols, rows, nil, logs), screen.New(cols, rows), new(Feed), new(atomic.Uint64), logs)}
	m.mostBehind = mostBehind
	return m
}

func (m *model) print(p string) (shown bool) {
	_, shown = m.Write(nil, []byte(p), false)
	if m.Due() {
		m.beginAnew()
	}
	return shown
}

// use has the secrets of set masked, as a terminal does.
func (m *model) use(set *redact.Set) {
	m.set = set
	if m.Use(set) || m.Due() {
		m.beginAnew()
	}
	if epoch, to := m.transcript.Place(); m.transcript.Holds(set, epoch, to) {
		m.Mask(set)
		m.beginAnew()
	}
}

func (m *model) beginAnew() { m.transcript.Replace(m.Replace()) }

// check checks the screen of who has read the log: with look, that no secret can
// be read there; with compare, that it is the display's.
func (m *model) check(t *rapid.T, look, compare bool) {
	t.Helper()
	s := m.screenOfLog(t)
	if compare {
		if got, want := string(m.screen().AppendKeyframe(nil, 1000)), string(s.AppendKeyframe(nil, 1000)); got != want {
			t.Fatalf("the screen is not that of the log: keyframe\n%q, want\n%q", got, want)
		}
	}
	s.AppendNewText(nil) // what is above was looked at when it was on the screen
	if text := s.AppendNewText(nil); look && len(m.set.Find(nil, text)) > 0 {
		t.Fatalf("the screen shows a secret: %q", text)
	}
	if m.raw == nil || m.HoldsBack() || !look {
		return
	}
	raw := m.raw.Clone()
	raw.AppendNewText(nil)
	raw.AppendNewText(nil)
	if s.MaskAsIn(raw, false, leaving(m.set)) > 0 {
		t.Fatalf("of a secret more is seen than its part that is one: %q, of %q", s.AppendNewText(nil), raw.AppendNewText(nil))
	}
}

// screenOfLog returns the screen of who has read the log from its beginning.
func (m *model) screenOfLog(t *rapid.T) *screen.Screen {
	t.Helper()
	cursor, opened := m.transcript.Open(&protocol.Position{Epoch: m.transcript.Epoch()})
	if opened.Gap {
		t.Fatal("the log has dropped its beginning")
	}
	var buf []byte
	s := screen.New(opened.Cols, opened.Rows)
	for {
		item, ok, err := m.transcript.Next(&cursor, &buf, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return s
		}
		if item.Resized != nil {
			s.Resize(item.Resized.Cols, item.Resized.Rows)
		}
		s.Write(nil, nil, item.Bytes)
	}
}
