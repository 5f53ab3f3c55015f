package screen

import (
	"strings"
	"testing"
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
			hand := func(to Modes) Modes {
				seq, was := s.AppendHandover(nil, to)
				write(string(seq))
				return was
			}
			write(left)
			was := hand(Modes{})
			if s.modes != initialModes && s.modes != (modes{wraparound: true, blink: on}) {
				t.Errorf("modes %+v", s.modes)
			}
			if s.buf != s.normal || s.buf.x != 0 || s.pen != (pen{}) || s.charsets != (charsets{}) || s.buf.top != 0 || s.buf.bottom != 23 {
				t.Errorf("not what a program expects")
			}
			write("agent\x1b[?1003h\x1b[?25l")
			if r := s.buf.line(s.buf.y); r.length() != len("agent") {
				t.Errorf("a line of %d cells", r.length())
			}
			hand(was)
			if now := (Modes{modes: s.modes, alternate: s.buf == s.alt, known: true}); now.alternate != was.alternate || now.modes != was.modes {
				t.Errorf("came back to %+v, left %+v", now, was)
			}
			if string(s.AppendKeyframe(nil, 10)) != string(viewer.AppendKeyframe(nil, 10)) {
				t.Error("a viewer shows something else")
			}
		})
	}
}
