package redact

import "slices"

// A view is what a terminal makes of the output: which bytes are printed, which
// are in strings.
type view struct {
	state   state
	erase   erase   // of the control sequence it is in
	screen  matcher // what is printed
	strings matcher // the string of an OSC, DCS, APC, PM or SOS
	at      int     // where the output was looked at up to

	// A single byte from 0x80 to 0x9f that is not of UTF-8 is a control for some
	// terminals and nothing for others. Where that makes a difference, there is
	// another view, in which it is nothing: its multibyte is set.
	multibyte bool
	other     *view
}

// An erase is what a control sequence erases of a line if it ends with K.
type erase uint8

const (
	eraseRight erase = iota // to the right: it has no parameter
	eraseZero               // so, too: the parameter is 0
	eraseOther              // something else
)

// after returns the erase behind the next byte of the sequence.
func (e erase) after(c byte) erase {
	if e == eraseRight && c == '0' {
		return eraseZero
	}
	return eraseOther
}

// begins reports whether the C1 control c begins a sequence.
func begins(c rune) bool {
	return c == csi || c == osc || c == dcs || c == sos || c == pm || c == apc
}

// clone returns a multibyte view that goes on at.
func (v *view) clone(at int) *view {
	return &view{state: v.state, erase: v.erase, screen: v.screen.clone(), strings: v.strings.clone(), at: at, multibyte: true}
}

// clone returns a matcher that goes on where m stands.
func (m *matcher) clone() matcher {
	c := *m
	c.run, c.where = slices.Clone(m.run), slices.Clone(m.where)
	c.segments, c.masks = slices.Clone(m.segments), slices.Clone(m.masks)
	return c
}

// agree reports whether nothing makes a difference any more.
func (v *view) agree(w *view) bool {
	return v.state == w.state && v.erase == w.erase && v.screen.agrees(&w.screen) && v.strings.agrees(&w.strings)
}

// agrees reports whether m and n find the same from here on, and nothing but what
// was found is left of either.
func (m *matcher) agrees(n *matcher) bool {
	return m.window == n.window && m.depth == 0 && n.depth == 0 && m.edge == n.edge && m.gap == n.gap &&
		len(m.masks) == 0 && len(n.masks) == 0
}

// all returns the matchers of v and of its other view.
func (v *view) all(into []*matcher) []*matcher {
	into = append(into, &v.screen, &v.strings)
	if v.other != nil {
		into = v.other.all(into)
	}
	return into
}

// matches returns how many secrets were found.
func (v *view) matches() uint64 {
	n := v.screen.matches + v.strings.matches
	if v.other != nil {
		n = max(n, v.other.matches())
	}
	return n
}

// look looks at what of src, which begins at base, wasn't yet.
func (v *view) look(x *index, src []byte, base int) {
	i := v.at - base
	for i < len(src) {
		c := src[i]
		switch {
		case printable(c):
			i += v.printable(x, src[i:], base+i)
		case c < 0x80:
			v.control(x, rune(c))
			i++
		default:
			n := v.character(x, src[i:], base+i)
			if n == 0 {
				v.at = base + i
				return
			}
			i += n
		}
	}
	v.at = base + i
}

// printable takes printable ASCII and returns how much of it.
func (v *view) printable(x *index, p []byte, at int) int {
	m := &v.screen
	switch v.state {
	case escape:
		v.state = v.state.afterByte(p[0])
		v.erase = eraseRight
		return 1
	case control:
		return v.sequence(p)
	case text:
		m = &v.strings
	}
	if m.depth > 0 {
		return m.chase(x, p, at)
	}
	return m.scan(x, p, at)
}

// sequence takes what p has of a control sequence and returns how much that is.
func (v *view) sequence(p []byte) int {
	for i, c := range p {
		switch {
		case !printable(c):
			return i
		case c == 'K' && v.erase != eraseOther:
			v.screen.eraseLine()
			fallthrough
		case c >= '@':
			v.state = ground
			return i + 1
		}
		v.erase = v.erase.after(c)
	}
	return len(p)
}

// control takes a C0 or C1 control.
func (v *view) control(x *index, c rune) {
	m := &v.screen
	if v.state == text {
		m = &v.strings
	}
	switch c {
	case backspace:
		m.back(x)
	case '\r':
		m.carriageReturn()
	case '\n':
		m.lineFeed()
	default:
		before := v.state
		v.state = before.afterControl(c)
		if c == csi {
			v.erase = eraseRight
		}
		if before == text && v.state != text {
			m.end(x)
		}
	}
}

// character takes what p begins with, a character that is not ASCII, and maybe
// more. It returns how much it took, 0 if the character is not complete.
func (v *view) character(x *index, p []byte, at int) int {
	m := &v.screen
	switch v.state {
	case ground, text:
		if v.state == text {
			m = &v.strings
		}
		if m.depth == 0 {
			if n := m.scan(x, p, at); n > 0 {
				return n
			}
		}
	}
	c, n := decode(p)
	switch {
	case n == 0:
		return 0
	case c < 0:
	case unseen(c):
		if v.state == ground || v.state == text {
			m.accompany(at, n)
		}
	case c < 0xa0 && n == 1 && v.multibyte:
	case c < 0xa0:
		if n == 1 && v.other == nil && begins(c) {
			v.other = v.clone(at)
		}
		v.control(x, c)
	case v.state == ground || v.state == text:
		m.character(x, p[:n], at)
	default:
		v.state = ground
	}
	return n
}
