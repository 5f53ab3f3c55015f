package linkfinder

// What stands for more than a character.
const (
	lineBreak = '\r' // what follows is no continuation of what precedes
	afterCR   = 0    // a return was followed by something else than a new line
)

// A stripper takes the escape sequences out of output.
type stripper struct {
	state state
	cr    bool // a return is held back
}

type state uint8

const (
	ground   state = iota
	escape         // after ESC
	charset        // a byte of ESC follows
	control        // in a control sequence
	text           // in a string that BEL or ST ends
	textEnds       // in it, after ESC
)

// plain reports whether the next byte, unless it is a control, is a character.
func (s *stripper) plain() bool { return s.state == ground && !s.cr }

// next returns the character that b is, if it is one. A return is held back until
// it is known whether a new line follows: if not, next returns afterCR, and b is to
// be read again.
func (s *stripper) next(b byte) (c byte, ok bool) {
	if s.cr && s.state == ground && b != '\r' && b != 0x1b {
		s.cr = false
		if b == '\n' {
			return '\n', true
		}
		return afterCR, true
	}
	if c, ok = s.again(b); ok {
		s.cr = false
	}
	return c, ok
}

// again is next for a byte that was returned as afterCR.
func (s *stripper) again(b byte) (c byte, ok bool) {
	switch s.state {
	case escape:
		return s.escaped(b)
	case charset:
		s.state = ground
		return 0, false
	case control:
		return s.controlled(b)
	case text, textEnds:
		s.inText(b)
		return 0, false
	}
	switch {
	case b == 0x1b:
		s.state = escape
	case b == '\r':
		s.cr = true
	case b == '\n' || b == ' ' || b > ' ' && b != 0x7f:
		return b, true
	case b == '\t':
		return ' ', true
	}
	return 0, false
}

// escaped takes the byte after ESC.
func (s *stripper) escaped(b byte) (byte, bool) {
	switch {
	case b == '[':
		s.state = control
	case b == ']' || b == 'P' || b == '^' || b == '_' || b == 'X':
		s.state = text
	case b >= ' ' && b <= '/':
		s.state = charset
	case b == 0x1b:
	case b == 'D' || b == 'E': // index, next line
		s.state = ground
		return '\n', true
	default:
		s.state = ground
	}
	return 0, false
}

// controlled takes a byte of a control sequence. One that moves the cursor stands
// for a space, or for a new line: programs use them so.
func (s *stripper) controlled(b byte) (byte, bool) {
	switch {
	case b == 0x1b:
		s.state = escape
		return 0, false
	case b < '@' || b > '~':
		return 0, false
	}
	s.state = ground
	switch b {
	case 'C', 'a', 'I':
		return ' ', true
	case 'A', 'B', 'E', 'F', 'H', 'd', 'f':
		return '\n', true
	case 'J':
		return lineBreak, true
	}
	return 0, false
}

// inText takes a byte of a string.
func (s *stripper) inText(b byte) {
	switch {
	case b == 0x07 || b == 0x18 || b == 0x1a || s.state == textEnds && b == '\\':
		s.state = ground
	case b == 0x1b:
		s.state = textEnds
	default:
		s.state = text
	}
}
