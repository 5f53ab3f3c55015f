package screen

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/keyframe"
)

// TestHandover takes a terminal from a program in the middle of anything to
// another one and back.
func TestHandover(t *testing.T) {
	for name, left := range map[string]string{
		"nothing":    "",
		"a prompt":   "$ ",
		"readline":   "\x1b[?2004h$ ls",
		"full":       "\x1b[?1049h\x1b[?1002h\x1b[?1006h\x1b[?25l\x1b[?1h\x1b=\x1b[5;10r\x1b[?6h\x1b[4h\x1b[20h\x1b[31;1mtext",
		"sequence":   "a\x1b[3",
		"string":     "a\x1b]2;title",
		"query":      "a\x1b[6",
		"character":  "a\xe2\x82",
		"drawing":    "\x1b(0\x0eqqq\x1b[3 q\x1b[?1004h\x1b[?2026h\x1b[?12h",
		"no wrap":    "\x1b[?7l" + strings.Repeat("x", 100),
		"wrap":       strings.Repeat("x", 80),
		"older alt":  "$ \x1b[?47h\x1b[?9h\x1b[?1016h",
		"below home": "one\r\ntwo\r\n\x1b[?1049h\x1b[3;3H",
	} {
		t.Run(name, func(t *testing.T) {
			s := New(80, 24)
			viewer := New(80, 24) // gets what s lets out
			write := func(p string) {
				out, _ := s.Write(nil, nil, []byte(p))
				viewer.Write(nil, nil, out)
			}
			hand := func(to keyframe.Modes) keyframe.Modes {
				seq, was := s.AppendHandover(nil, to)
				write(string(seq))
				return was
			}
			write(left)
			was := hand(keyframe.Modes{})
			if s.grid.Modes != grid.InitialModes && s.grid.Modes != (grid.Modes{Wraparound: true, Blink: grid.On}) {
				t.Errorf("modes %+v", s.grid.Modes)
			}
			if s.grid.Buf != s.grid.Normal || s.grid.Buf.X != 0 || s.grid.Pen != (grid.Pen{}) || s.grid.Charsets != (grid.Charsets{}) || s.grid.Buf.Top != 0 || s.grid.Buf.Bottom != 23 {
				t.Errorf("not what a program expects")
			}
			write("agent\x1b[?1003h\x1b[?25l")
			if r := s.grid.Buf.Line(s.grid.Buf.Y); r.Length() != len("agent") {
				t.Errorf("a line of %d cells", r.Length())
			}
			hand(was)
			if now := (keyframe.Modes{Modes: s.grid.Modes, Alternate: s.grid.Buf == s.grid.Alt, Known: true}); now.Alternate != was.Alternate || now.Modes != was.Modes {
				t.Errorf("came back to %+v, left %+v", now, was)
			}
			if string(s.AppendKeyframe(nil, 10)) != string(viewer.AppendKeyframe(nil, 10)) {
				t.Error("a viewer shows something else")
			}
		})
	}
}
