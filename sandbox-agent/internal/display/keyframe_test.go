package display

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// A tall screen has keyframes of bare bytes, and line bytes more for each of the
// lines above it.
type tall struct {
	*screen.Screen
	bare, line, lines int
}

func (s tall) AppendKeyframe(dst []byte, history int) []byte {
	return append(dst, make([]byte, s.bare+min(history, s.lines)*s.line)...)
}

func TestKeyframeBounds(t *testing.T) {
	for _, tt := range []struct {
		screen, line, lines int
		history             int // bytes of it, at least
	}{
		{100, 100, 50, 5000},
		{100, 100, 10_000, 100_000},         // at most so many lines
		{100, 1000, 10_000, 128<<10 - 2000}, // at most so many bytes
		{100, 100_000, 10_000, 100_000},
		{100, 200_000, 10_000, 0},
		{protocol.MaxKeyframeBytes, 100, 1000, 0},
		{protocol.MaxKeyframeBytes - 150, 100, 1000, 100},
	} {
		d := Display{grid: tall{bare: tt.screen, line: tt.line, lines: tt.lines}}
		n := len(d.Draw(WishHistory)) - tt.screen
		if n < tt.history || n > maxHistoryBytes || n+tt.screen > protocol.MaxKeyframeBytes {
			t.Errorf("%+v: %d bytes of history", tt, n)
		}
	}
}

// BenchmarkKeyframe draws a full screen, bare and with all the lines above it
// that fit. The display's lock is held for as long.
func BenchmarkKeyframe(b *testing.B) {
	for _, size := range [][2]int{{80, 24}, {200, 50}} {
		s := screen.New(size[0], size[1])
		for i := range 2000 {
			line := fmt.Sprintf("\x1b[3%dm%d\x1b[0m ", i%8, i)
			s.Write(nil, nil, []byte(line+strings.Repeat("x", size[0]-20)+"\r\n"))
		}
		d := Display{grid: s}
		for _, w := range []Wish{WishScreen, WishHistory} {
			b.Run(fmt.Sprintf("%dx%d/history=%v", size[0], size[1], w == WishHistory), func(b *testing.B) {
				n := 0
				for b.Loop() {
					n = len(d.Draw(w))
				}
				b.ReportMetric(float64(n), "bytes")
			})
		}
	}
}
