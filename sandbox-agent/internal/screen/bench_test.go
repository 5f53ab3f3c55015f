package screen

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// BenchmarkWrite writes what programs write much of.
func BenchmarkWrite(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var logs, tui, text, region bytes.Buffer
	for i := range 500 {
		fmt.Fprintf(&logs, "2025-11-21T12:00:%02d.%03dZ INFO request served path=/v1/items/%d status=200 took=%dms\r\n", i%60, i, i, i%97)
	}
	for range 40 {
		for row := range 24 {
			fmt.Fprintf(&tui, "\x1b[%d;1H\x1b[38;5;%dm%-6d\x1b[0;1;48;2;%d;20;30m %s \x1b[m\x1b[K", row+1, r.IntN(256), r.IntN(99999), r.IntN(256), strings.Repeat("|", r.IntN(40)))
		}
	}
	for range 500 {
		text.WriteString("漢字かな交じり文 — naïve café ✓ │ 👩‍💻 🇩🇪 e\u0301\r\n")
	}
	region.WriteString("\x1b[2;23r")
	for i := range 500 {
		fmt.Fprintf(&region, "\x1b[23;1Hprogress of step %d: some more text\n\x1b[1;1H\x1b[7m%d%%\x1b[m", i, i%100)
	}
	for _, size := range [][2]int{{80, 24}, {200, 50}} {
		for _, c := range []struct {
			name   string
			output []byte
		}{{"log", logs.Bytes()}, {"tui", tui.Bytes()}, {"unicode", text.Bytes()}, {"region", region.Bytes()}} {
			b.Run(fmt.Sprintf("%s/%dx%d", c.name, size[0], size[1]), func(b *testing.B) {
				s := New(size[0], size[1])
				var out, answers []byte
				for range 3 {
					out, answers = s.Write(out[:0], answers[:0], c.output)
				}
				b.SetBytes(int64(len(c.output)))
				b.ReportAllocs()
				for b.Loop() {
					out, answers = s.Write(out[:0], answers[:0], c.output)
				}
			})
		}
	}
}

// BenchmarkAppendKeyframe makes a keyframe with all of the history.
func BenchmarkAppendKeyframe(b *testing.B) {
	s := New(80, 24)
	for i := range 2000 {
		s.Write(nil, nil, fmt.Appendf(nil, "\x1b[3%dmline %d\x1b[m of what a program had to say\r\n", i%8, i))
	}
	var keyframe []byte
	b.ReportAllocs()
	for b.Loop() {
		keyframe = s.AppendKeyframe(keyframe[:0], 1000)
	}
	b.SetBytes(int64(len(keyframe)))
}
