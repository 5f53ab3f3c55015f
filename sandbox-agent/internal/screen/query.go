package screen

import (
	"encoding/hex"
	"strings"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

// What is said to queries whose answer never changes: a VT220 with colours, as
// xterm.js says.
const (
	answerDA1     = "\x1b[?62;22c"
	answerDA2     = "\x1b[>0;276;0c"
	answerDA3     = "\x1bP!|00000000\x1b\\"
	answerStatus  = "\x1b[0n"
	answerDark    = "\x1b[?997;1n" // the theme
	answerVersion = "\x1bP>|fairlead\x1b\\"
	answerNoState = "\x1bP0$r\x1b\\"
)

// answerCSI answers a control sequence that is a query, or suppresses one that
// has no answer, and takes it out of the output. It ends at in[end].
func (s *Screen) answerCSI(final byte, end int) (wasQuery bool) {
	p := &s.params
	first := p.get(0)
	switch s.identity(final) {
	case 'c':
		wasQuery = s.say(first == 0, answerDA1)
	case more | 'c':
		wasQuery = s.say(first == 0, answerDA2)
	case equals | 'c':
		wasQuery = s.say(first == 0, answerDA3)
	case more | 'q':
		wasQuery = s.say(first == 0, answerVersion)
	case 'n':
		wasQuery = s.say(first == 5, answerStatus) || first == 6 && s.sayPosition("")
	case query | 'n':
		wasQuery = s.say(first == 996, answerDark) || first == 6 && s.sayPosition("?")
	case query | 'u':
		wasQuery = true
	case dollar | 'p':
		wasQuery = s.sayMode("", first, s.grid.Modes.State(first))
	case query<<8 | dollar | 'p':
		wasQuery = s.sayMode("?", first, s.grid.PrivateModeState(first))
	case 't':
		wasQuery = s.sayWindow(first)
	}
	if wasQuery {
		s.remove(end)
	}
	return wasQuery
}

func (s *Screen) sayPosition(marker string) bool {
	s.say(true, "\x1b["+marker)
	s.answers = grid.AppendInt(s.answers, s.grid.Buf.Y+1, ';')
	s.answers = grid.AppendInt(s.answers, min(s.grid.Buf.X, s.grid.Buf.Cols-1)+1, 'R')
	return true
}

// sayWindow answers reports on the window; only sizes in cells are known.
func (s *Screen) sayWindow(what int) bool {
	switch what {
	case 18, 19:
		s.say(true, "\x1b[")
		s.answers = grid.AppendInt(s.answers, what-10, ';')
		s.answers = grid.AppendInt(s.answers, s.grid.Buf.Rows, ';')
		s.answers = grid.AppendInt(s.answers, s.grid.Buf.Cols, 't')
		return true
	case 11, 13, 14, 15, 16, 20, 21:
		return true
	}
	return false
}

func (o *outlet) sayMode(marker string, mode, state int) bool {
	o.say(true, "\x1b["+marker)
	o.answers = grid.AppendInt(o.answers, mode, ';')
	o.answers = grid.AppendInt(o.answers, state, '$', 'y')
	return true
}

// dcsByte takes a byte of a DCS' string.
func (s *Screen) dcsByte(c byte) {
	if s.maybe {
		s.str = append(s.str, c)
	}
}

// endDCS is endOSC for a DCS.
func (s *Screen) endDCS(end int) (wasQuery bool) {
	if !s.maybe {
		s.grid.Join = 0
		return false
	}
	if s.collect[0] == '$' {
		s.saySetting(string(s.str))
	} else {
		for _, name := range strings.Split(string(s.str), ";") {
			s.sayCapability(name)
		}
	}
	s.remove(end)
	return true
}

// saySetting answers DECRQSS.
func (s *Screen) saySetting(what string) {
	var value []byte
	switch what {
	case "m":
		value = s.grid.Pen.AppendSGR([]byte("0"))
	case "r":
		value = grid.AppendInt(grid.AppendInt(nil, s.grid.Buf.Top+1, ';'), s.grid.Buf.Bottom+1)
	case " q":
		style := s.grid.Modes.CursorStyle()
		if style == 0 || style > 6 {
			style = 2
			if s.grid.Modes.Blink == grid.On {
				style = 1
			}
		}
		value = grid.AppendInt(nil, style)
	case "\"q":
		value = []byte("0")
		if s.grid.Pen.Bg&grid.FlagProtected != 0 {
			value = []byte("1")
		}
	case "\"p":
		value = []byte("61;1")
	default:
		s.say(true, answerNoState)
		return
	}
	s.say(true, "\x1bP1$r")
	s.answers = append(append(s.answers, value...), what...)
	s.say(true, "\x1b\\")
}

// sayCapability answers XTGETTCAP for one name, in hexadecimal.
func (o *outlet) sayCapability(name string) {
	value := ""
	if decoded, err := hex.DecodeString(name); err == nil {
		switch string(decoded) {
		case "TN", "name":
			value = "xterm-256color"
		case "Co", "colors":
			value = "256"
		case "RGB":
			value = "8"
		}
	}
	if value == "" {
		o.say(true, "\x1bP0+r"+printable(name)+"\x1b\\")
		return
	}
	o.say(true, "\x1bP1+r"+name+"="+hex.EncodeToString([]byte(value))+"\x1b\\")
}

// printable returns name if nothing in it can end a string: an answer is typed
// into the program.
func printable(name string) string {
	for _, c := range []byte(name) {
		if c < ' ' || c >= del {
			return ""
		}
	}
	return name
}
