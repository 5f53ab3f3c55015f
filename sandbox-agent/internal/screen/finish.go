package screen

import "unicode/utf8"

// private sets or resets a DEC private mode.
func (p *painter) private(mode int, set bool) {
	p.control("\x1b[?")
	final := byte('l')
	if set {
		final = 'h'
	}
	p.dst = appendInt(p.dst, mode, final)
}

func (p *painter) paintModes() {
	m := &p.modes
	for _, mode := range []int{1, 7, 45, 66, 1004, 2004, 2026} {
		if set := *m.private(mode); set != *initialModes.private(mode) {
			p.private(mode, set)
		}
	}
	for _, mode := range []int{m.mouse, m.mouseEncoding} {
		if mode != 0 {
			p.private(mode, true)
		}
	}
	if m.blink != unset {
		p.private(12, m.blink == on)
	}
	if m.hidden {
		p.private(25, false)
	}
	if style := m.cursorStyle(); style != 0 {
		p.csi(" q", style)
	}
	if m.newLine {
		p.csi("h", 20)
	}
	if m.insert {
		p.csi("h", 4)
	}
}

// finishPen makes the pen what it is. It leaves the saved cursor alone.
func (p *painter) finishPen() {
	want := p.grid.pen
	switch {
	case p.pen == want:
	case want.regular():
		p.useRegular(want)
	default:
		p.adjust(want)
	}
}

// adjust changes what can be changed of an irregular pen one by one.
func (p *painter) adjust(want pen) {
	if (want.bg^p.pen.bg)&flagExtended != 0 {
		p.openLink(want.link) // even of none it says whether there is an extension
	}
	p.control("\x1b[")
	for _, f := range [...]struct {
		on      uint32
		yes, no string
	}{
		{want.fg & flagBold, "22;1", "22"}, {want.bg & flagDim, "2", ""},
		{want.bg & flagItalic, "3", "23"}, {want.fg & flagBlink, "5", "25"},
		{want.fg & flagInverse, "7", "27"}, {want.fg & flagInvisible, "8", "28"},
		{want.fg & flagStrike, "9", "29"}, {want.bg & flagOverline, "53", "55"},
	} {
		set := f.no
		if f.on != 0 {
			set = f.yes
		}
		if set != "" {
			p.dst = append(append(p.dst, set...), ';')
		}
	}
	p.dst = append(p.dst, "39;49"...)
	p.dst = appendColor(p.dst, want.fg, 30)
	p.dst = appendColor(p.dst, want.bg, 40)
	p.dst = append(p.dst, 'm')
	protect := 0
	if want.bg&flagProtected != 0 {
		protect = 1
	}
	p.csi("\"q", protect)
	p.pen = want
}

// lastPrinted returns the cell of the character that was printed just before,
// to which the next may be joined, if printing it again is the same.
func (p *painter) lastPrinted() *cell {
	b, s := p.buf, p.grid
	x := b.x - s.join.width()
	if s.join == 0 || x < 0 || x >= p.cols || s.modes.origin && (b.y < b.top || b.y > b.bottom) {
		return nil
	}
	c := &b.line(b.y).cells[x]
	if c.empty() || c.fg != s.penCell.fg || c.bg != s.penCell.bg || c.ext != s.penCell.ext {
		return nil
	}
	j := joint(0)
	for i, r := range p.clusters.appendRunes(nil, c.content) {
		next, joins := j.follow(r)
		if joins != (i > 0) {
			return nil
		}
		j = next
	}
	if j != s.join || !p.clusters.writable(c, s.charsets.current) {
		return nil
	}
	return c
}

// writable reports whether the text of a cell can be written when a character
// set is in use.
func (t *clusterTable) writable(c *cell, set charset) bool {
	for _, r := range t.appendRunes(nil, c.content) {
		if _, ok := set.invert(r); !ok {
			return false
		}
	}
	return true
}

// invert returns what a program writes to get r.
func (c charset) invert(r rune) (written rune, ok bool) {
	if r >= del || c.translate(byte(r)) == r {
		return r, true
	}
	for b := byte(' '); b < del; b++ {
		if c.translate(b) == r {
			return rune(b), true
		}
	}
	return 0, false
}

// printLast prints the last character again, with all modes on.
func (p *painter) printLast(c *cell) {
	b := p.buf
	y := b.y
	if p.modes.origin {
		y -= b.top
	}
	p.goTo(y, b.x-c.width())
	if p.modes.insert {
		first := p.clusters.appendRunes(nil, c.content)[0]
		joint, _ := joint(0).follow(first)
		p.csi("P", joint.width()) // for which printing makes room again
	}
	p.printAs(c, p.charsets.current)
}

// printAs appends the text of a cell as it is written when a character set is
// in use.
func (p *painter) printAs(c *cell, set charset) {
	for _, r := range p.clusters.appendRunes(nil, c.content) {
		written, _ := set.invert(r)
		p.dst = utf8.AppendRune(p.dst, written)
	}
}
