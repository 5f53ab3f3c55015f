package terminal

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// TestMaskModel: whatever a program prints in whatever pieces, and whenever
// secrets come, sizes change and epochs end, the screen is that of who has the
// log alone, and no secret can be read there.
func TestMaskModel(t *testing.T) {
	const short = "hunter22"
	const long = short + "/pass-Word" // of which the rest must not be seen either
	first, both := compile(t, short), compile(t, short, secretA, long)
	pieces := []string{
		short, short[4:], long[8:], long[8:12], long[12:], long[:12], secretA, short[:4], short[4:], secretA[:9], secretA[9:], "\r\n", "\r", " ", "x", "漢", "\x1b[31m", "\x1b[H", "\x1b[2;3H", "\x1b[2;7H",
		"\x1b[2;12H", "\b", "\b\b\b\b", "\x1b[K", "\x1b[2J", "\x1b[?1049h", "\x1b[?1049l", "\x1b[4P", "\x1b[4@", "\x1b[6n", "\x1b]2;", "\a", "\x1b[",
		"\x1b", "\xe6", "\x1b[3;5r", "\n\n\n", "\x1bM", "\x1bc", strings.Repeat("-", 15), coloured(short), "\x1b7", "\x1b8", "\x1b[?7l", "\x1b[4h", "\x1b[4l",
	}
	rapid.Check(t, func(rt *rapid.T) {
		dev := newFakeDevice()
		term := newTerminal(session, protocol.PTYInfo{ID: "pty_1", Cols: 20, Rows: 6}, newProgram(dev, newFakeProcess()), site{}, slog.New(slog.DiscardHandler))
		term.display.mostBehind = rapid.SampledFrom([]int{0, 30, 300, maxBehind}).Draw(rt, "behind")
		defer term.own.reader.Wait()
		defer dev.Close()
		var set *redact.Set
		var sized uint64
		secrets := func(next *redact.Set) {
			set = next
			term.setSecrets(set)
			term.search(set)
		}
		print := func(p string) (shown bool) {
			term.display.mu.Lock()
			defer term.display.mu.Unlock()
			_, shown = term.display.write(nil, []byte(p), false)
			term.beginAnewIfDue(time.Now().Add(time.Hour))
			term.display.last = time.Time{}
			return shown
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			look := true
			switch rapid.IntRange(0, 20).Draw(rt, "step") {
			case 0:
				secrets(rapid.SampledFrom([]*redact.Set{first, both}).Draw(rt, "set"))
			case 1:
				look = false // what a size brings together is found with the next output
				cols, rows := rapid.IntRange(10, 30).Draw(rt, "cols"), rapid.IntRange(3, 8).Draw(rt, "rows")
				term.display.mu.Lock()
				if head := term.transcript.Head(); head != sized { // of sizes at one place the log knows the last
					term.resized(cols, rows)
					sized = head
				}
				term.display.mu.Unlock()
			default:
				p := ""
				for range rapid.IntRange(1, 4).Draw(rt, "pieces") {
					p += rapid.SampledFrom(pieces).Draw(rt, "piece")
				}
				look = print(p)
			}
			if rapid.Bool().Draw(rt, "check") { // which has the screen of the log catch up
				checkMasked(rt, term, set, look)
			}
		}
	})
}

// checkMasked checks the screen of term, and with look what can be read there.
func checkMasked(t *rapid.T, term *Terminal, set *redact.Set, look bool) {
	t.Helper()
	term.display.mu.Lock()
	defer term.display.mu.Unlock()
	cursor, opened := term.transcript.Open(&protocol.Position{Epoch: term.transcript.Epoch()})
	if opened.Gap {
		t.Fatal("the log has dropped its beginning")
	}
	var buf []byte
	s := screen.New(opened.Cols, opened.Rows)
	for {
		item, ok, err := term.transcript.Next(&cursor, &buf, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if item.Resized != nil {
			s.Resize(item.Resized.Cols, item.Resized.Rows)
		}
		s.Write(nil, nil, item.Bytes)
	}
	if got, want := string(term.display.screen().AppendKeyframe(nil, 1000)), string(s.AppendKeyframe(nil, 1000)); got != want {
		t.Fatalf("the screen is not that of the log: keyframe\n%q, want\n%q", got, want)
	}
	s.AppendNewText(nil) // what is above was looked at when it was on the screen
	if text := s.AppendNewText(nil); look && len(set.Find(nil, text)) > 0 {
		t.Fatalf("the screen shows a secret: %q", text)
	}
	if term.display.raw == nil || term.display.front.holdsBack() || !look {
		return
	}
	raw := term.display.raw.Clone()
	raw.AppendNewText(nil)
	raw.AppendNewText(nil)
	if s.MaskAsIn(raw, false, leaving(set)) > 0 {
		t.Fatalf("of a secret more is seen than its part that is one: %q, of %q", s.AppendNewText(nil), raw.AppendNewText(nil))
	}
}
