package screen

import (
	"encoding/hex"
	"strings"
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
		wasQuery = s.sayMode("", first, s.modes.state(first))
	case query<<8 | dollar | 'p':
		wasQuery = s.sayMode("?", first, s.privateModeState(first))
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
	s.answers = appendInt(s.answers, s.buf.y+1, ';')
	s.answers = appendInt(s.answers, min(s.buf.x, s.buf.cols-1)+1, 'R')
	return true
}

// sayWindow answers reports on the window; only sizes in cells are known.
func (s *Screen) sayWindow(what int) bool {
	switch what {
	case 18, 19:
		s.say(true, "\x1b[")
		s.answers = appendInt(s.answers, what-10, ';')
		s.answers = appendInt(s.answers, s.buf.rows, ';')
		s.answers = appendInt(s.answers, s.buf.cols, 't')
		return true
	case 11, 13, 14, 15, 16, 20, 21:
		return true
	}
	return false
}

// States of a mode in DECRPM.
const (
	modeUnknown = iota
	modeSet
	modeReset
	modeAlwaysSet
	modeAlwaysReset
)

func (o *outlet) sayMode(marker string, mode, state int) bool {
	o.say(true, "\x1b["+marker)
	o.answers = appendInt(o.answers, mode, ';')
	o.answers = appendInt(o.answers, state, '$', 'y')
	return true
}

func setOrReset(set bool) int {
	if set {
		return modeSet
	}
	return modeReset
}

func (m *modes) state(mode int) int {
	switch mode {
	case 2:
		return modeAlwaysReset
	case 4:
		return setOrReset(m.insert)
	case 12:
		return modeAlwaysSet
	case 20:
		return setOrReset(m.newLine)
	}
	return modeUnknown
}

func (g *grid) privateModeState(mode int) int {
	m := &g.modes
	if flag := m.private(mode); flag != nil {
		return setOrReset(*flag)
	}
	switch mode {
	case 6:
		return setOrReset(m.origin)
	case 8:
		return modeAlwaysSet
	case 9, 1000, 1002, 1003:
		return setOrReset(m.mouse == mode)
	case 12:
		return setOrReset(m.blink == on)
	case 25:
		return setOrReset(!m.hidden)
	case 67, 1005, 1015:
		return modeAlwaysReset
	case 1006, 1016:
		return setOrReset(m.mouseEncoding == mode)
	case 1048:
		return modeSet
	case 47, 1047, 1049:
		return setOrReset(g.buf == g.alt)
	}
	return modeUnknown
}

// dcsMayQuery reports whether the DCS that has begun is one that asks.
func (q *sequence) dcsMayQuery() bool {
	id := q.identity(q.final)
	return id == dollar|'q' || id == '+'<<8|'q'
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
		s.join = 0
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
		value = s.pen.appendSGR([]byte("0"))
	case "r":
		value = appendInt(appendInt(nil, s.buf.top+1, ';'), s.buf.bottom+1)
	case " q":
		style := s.modes.cursorStyle()
		if style == 0 || style > 6 {
			style = 2
			if s.modes.blink == on {
				style = 1
			}
		}
		value = appendInt(nil, style)
	case "\"q":
		value = []byte("0")
		if s.pen.bg&flagProtected != 0 {
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
