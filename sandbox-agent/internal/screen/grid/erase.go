package grid

// EraseLine obeys EL, or with selective DECSEL.
func (g *Grid) EraseLine(which int, selective bool) {
	b := g.Buf
	g.Confine(b.Cols)
	l := b.Line(b.Y)
	switch which {
	case 0:
		l.Erase(b.X, b.Cols, g.Pen.Erased(), selective)
		l.Wrapped = l.Wrapped && b.X > 0
	case 1:
		l.Erase(0, b.X+1, g.Pen.Erased(), selective)
	case 2:
		l.Erase(0, b.Cols, g.Pen.Erased(), selective)
		l.Wrapped = false
	}
}

// EraseDisplay obeys ED, or with selective DECSED.
func (g *Grid) EraseDisplay(which int, selective bool) {
	b := g.Buf
	g.Confine(b.Cols)
	l := b.Line(b.Y)
	switch which {
	case 0:
		l.Erase(b.X, b.Cols, g.Pen.Erased(), selective)
		l.Wrapped = l.Wrapped && b.X > 0
		b.eraseRows(b.Y+1, b.Rows, g.Pen.Erased(), selective)
	case 1:
		l.Erase(0, b.X+1, g.Pen.Erased(), selective)
		l.Wrapped = false
		if b.X+1 >= b.Cols {
			b.unwrapAfter(b.Y + 1)
		}
		b.eraseRows(0, b.Y, g.Pen.Erased(), selective)
	case 2:
		b.eraseRows(0, b.Rows, g.Pen.Erased(), selective)
	case 3:
		b.dropHistory()
	}
}

// alignmentTest fills the screen with E, in the colours of the pen.
func (g *Grid) alignmentTest() {
	b := g.Buf
	g.GoTo(0, 0)
	c := g.PenCell
	c.Content = 'E' | Narrow
	c.Ext = 0
	for n := range b.Rows {
		if l := b.ringLine(b.ViewerBase() + b.Y + n); l != nil {
			l.fill(c)
			l.Wrapped = false
		}
	}
	g.GoTo(0, 0)
}
