package screen

// eraseLine obeys EL, or with selective DECSEL.
func (g *grid) eraseLine(which int, selective bool) {
	b := g.buf
	g.confine(b.cols)
	l := b.line(b.y)
	switch which {
	case 0:
		l.erase(b.x, b.cols, g.pen.erased(), selective)
		l.wrapped = l.wrapped && b.x > 0
	case 1:
		l.erase(0, b.x+1, g.pen.erased(), selective)
	case 2:
		l.erase(0, b.cols, g.pen.erased(), selective)
		l.wrapped = false
	}
}

// eraseDisplay obeys ED, or with selective DECSED.
func (g *grid) eraseDisplay(which int, selective bool) {
	b := g.buf
	g.confine(b.cols)
	l := b.line(b.y)
	switch which {
	case 0:
		l.erase(b.x, b.cols, g.pen.erased(), selective)
		l.wrapped = l.wrapped && b.x > 0
		b.eraseRows(b.y+1, b.rows, g.pen.erased(), selective)
	case 1:
		l.erase(0, b.x+1, g.pen.erased(), selective)
		l.wrapped = false
		if b.x+1 >= b.cols {
			b.unwrapAfter(b.y + 1)
		}
		b.eraseRows(0, b.y, g.pen.erased(), selective)
	case 2:
		b.eraseRows(0, b.rows, g.pen.erased(), selective)
	case 3:
		b.dropHistory()
	}
}

// unwrapAfter does what xterm.js does to the row below an erased one: it takes
// y for a row counted from the oldest.
func (b *buffer) unwrapAfter(y int) {
	if l := b.ringLine(y); l != nil {
		l.wrapped = false
	}
}

// eraseRows empties the rows [from, to).
func (b *buffer) eraseRows(from, to int, blank cell, selective bool) {
	for y := from; y < to; y++ {
		l := b.line(y)
		if selective {
			l.fillUnprotected(blank)
		} else {
			l.fill(blank)
		}
		l.wrapped = false
	}
}

// alignmentTest fills the screen with E, in the colours of the pen.
func (g *grid) alignmentTest() {
	b := g.buf
	g.goTo(0, 0)
	c := g.penCell
	c.content = 'E' | narrow
	c.ext = 0
	for n := range b.rows {
		if l := b.ringLine(b.viewerBase() + b.y + n); l != nil {
			l.fill(c)
			l.wrapped = false
		}
	}
	g.goTo(0, 0)
}
