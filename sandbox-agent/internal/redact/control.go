package redact

import "unicode/utf8"

// A state is what the parser is in the middle of.
type state uint8

const (
	ground  state = iota
	escape        // after ESC and its intermediate characters
	control       // in a control sequence
	text          // in the string of an OSC, DCS, APC, PM or SOS
)

const (
	backspace = 0x08
	bel       = 0x07
	can       = 0x18
	sub       = 0x1a
	esc       = 0x1b
	del       = 0x7f

	dcs = 0x90
	sos = 0x98
	csi = 0x9b
	osc = 0x9d
	pm  = 0x9e
	apc = 0x9f
)

// printable reports whether c is an ASCII character that takes a cell.
func printable(c byte) bool { return c-' ' < del-' ' }

// decode returns the character at the beginning of p, which begins with a byte
// from 0x80 on. n is 0 if p ends within the character. A byte that is not UTF-8
// is a C1 control, as in a terminal with 8-bit controls, or -1 from 0xa0 on.
func decode(p []byte) (r rune, n int) {
	r, n = utf8.DecodeRune(p)
	if r != utf8.RuneError || n > 1 {
		return r, n
	}
	switch {
	case p[0] < 0xa0:
		return rune(p[0]), 1
	case utf8.FullRune(p):
		return -1, 1
	}
	return -1, 0
}

// afterControl returns the state after the C0 or C1 control r.
func (s state) afterControl(r rune) state {
	switch r {
	case esc:
		return escape
	case csi:
		return control
	case osc, dcs, sos, pm, apc:
		return text
	case can, sub:
		return ground
	case bel:
		if s == text {
			return ground
		}
	}
	if r >= 0x80 {
		return ground
	}
	return s
}

// afterByte returns the state after the printable c of a sequence other than a
// string.
func (s state) afterByte(c byte) state {
	switch {
	case s == control:
		if c >= '@' {
			return ground
		}
		return control
	case c == '[':
		return control
	case c == ']', c == 'P', c == 'X', c == '^', c == '_':
		return text
	case c < '0':
		return escape
	}
	return ground
}

// visible appends to dst what a terminal shows of p, without controls.
func visible(dst, p []byte) []byte {
	s := ground
	i := 0
	for i < len(p) && printable(p[i]) {
		i++
	}
	dst = append(dst, p[:i]...)
	for i < len(p) {
		c := p[i]
		if printable(c) {
			switch s {
			case ground:
				dst = append(dst, c)
			case escape, control:
				s = s.afterByte(c)
			}
			i++
			continue
		}
		if c < 0x80 {
			s = s.afterControl(rune(c))
			i++
			continue
		}
		r, n := decode(p[i:])
		switch {
		case n == 0 || r < 0:
			n = 1
		case r < 0xa0:
			s = s.afterControl(r)
		case s == ground && !unseen(r):
			dst = append(dst, p[i:i+n]...)
		case s != text:
			s = ground
		}
		i += n
	}
	return dst
}
