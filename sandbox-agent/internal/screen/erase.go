package screen

// eraseLine obeys EL, or with selective DECSEL.
func (s *Screen) eraseLine(which int, selective bool) {
	b := s.buf
	s.confine(b.cols)
	l := b.line(b.y)
	switch which {
	case 0:
		l.erase(b.x, b.cols, s.eraseCell(), selective)
		l.wrapped = l.wrapped && b.x > 0
	case 1:
		l.erase(0, b.x+1, s.eraseCell(), selective)
	case 2:
		l.erase(0, b.cols, s.eraseCell(), selective)
		l.wrapped = false
	}
}

// eraseDisplay obeys ED, or with selective DECSED.
func (s *Screen) eraseDisplay(which int, selective bool) {
	b := s.buf
	s.confine(b.cols)
	l := b.line(b.y)
	switch which {
	case 0:
		l.erase(b.x, b.cols, s.eraseCell(), selective)
		l.wrapped = l.wrapped && b.x > 0
		s.eraseRows(b.y+1, b.rows, selective)
	case 1:
		l.erase(0, b.x+1, s.eraseCell(), selective)
		l.wrapped = false
		if b.x+1 >= b.cols {
			s.unwrapAfter(b.y + 1)
		}
		s.eraseRows(0, b.y, selective)
	case 2:
		s.eraseRows(0, b.rows, selective)
	case 3:
		b.dropHistory()
	}
}

// unwrapAfter does what xterm.js does to the row below an erased one: it takes
// y for a row counted from the oldest.
func (s *Screen) unwrapAfter(y int) {
	if l := s.buf.ringLine(y); l != nil {
		l.wrapped = false
	}
}

// eraseRows empties the rows [from, to).
func (s *Screen) eraseRows(from, to int, selective bool) {
	for y := from; y < to; y++ {
		l := s.buf.line(y)
		if selective {
			l.fillUnprotected(s.eraseCell())
		} else {
			l.fill(s.eraseCell())
		}
		l.wrapped = false
	}
}

// alignmentTest fills the screen with E, in the colours of the pen.
func (s *Screen) alignmentTest() {
	b := s.buf
	s.goTo(0, 0)
	c := s.penCell
	c.content = 'E' | narrow
	c.ext = 0
	for n := range b.rows {
		if l := b.ringLine(b.viewerBase() + b.y + n); l != nil {
			l.fill(c)
			l.wrapped = false
		}
	}
	s.goTo(0, 0)
}
