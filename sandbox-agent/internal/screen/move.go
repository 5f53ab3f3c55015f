package screen

// confine moves the cursor into the grid, at most to column last, and in
// origin mode between the margins.
func (s *Screen) confine(last int) {
	b := s.buf
	b.x = min(max(b.x, 0), last)
	if s.modes.origin {
		b.y = min(max(b.y, b.top), b.bottom)
	} else {
		b.y = min(max(b.y, 0), b.rows-1)
	}
}

// goTo puts the cursor at a column and a row, in origin mode below the upper
// margin.
func (s *Screen) goTo(x, y int) {
	if s.modes.origin {
		y += s.buf.top
	}
	s.buf.x, s.buf.y = x, y
	s.confine(s.buf.cols - 1)
}

// move moves the cursor. In origin mode, like xterm.js, it takes the row for
// one below the upper margin.
func (s *Screen) move(dx, dy int) {
	s.confine(s.buf.cols - 1)
	s.goTo(s.buf.x+dx, s.buf.y+dy)
}

// up moves the cursor to the upper margin at most.
func (s *Screen) up(n int) {
	if above := s.buf.y - s.buf.top; above >= 0 {
		n = min(n, above)
	}
	s.move(0, -n)
}

// down moves the cursor to the lower margin at most.
func (s *Screen) down(n int) {
	if below := s.buf.bottom - s.buf.y; below >= 0 {
		n = min(n, below)
	}
	s.move(0, n)
}

// tab goes n tab stops forward, or back.
func (s *Screen) tab(n int, back bool) {
	b := s.buf
	if b.x >= b.cols {
		return
	}
	for range min(n, b.cols) {
		if back {
			b.x = b.tabs.previous(b.x, b.cols)
		} else {
			b.x = b.tabs.next(b.x, b.cols)
		}
	}
}

func (s *Screen) clearTabs(which int) {
	switch which {
	case 0:
		s.buf.tabs.clear(s.buf.x)
	case 3:
		s.buf.tabs = tabStops{}
	}
}

func (s *Screen) lineFeed() {
	b := s.buf
	if s.modes.newLine {
		b.x = 0
	}
	full := b.line(b.y).full(b.cols)
	switch {
	case b.y == b.bottom:
		b.scroll(s.eraseCell(), false)
		s.fed(full, true)
	case b.y == b.rows-1:
		s.tangle()
	default:
		b.y++
		b.line(b.y).wrapped = false
		s.fed(full, false)
	}
	if b.x >= b.cols {
		b.x--
	}
}

func (s *Screen) index() {
	b := s.buf
	s.confine(b.cols - 1)
	full := b.line(b.y).full(b.cols)
	if b.y == b.bottom {
		b.scroll(s.eraseCell(), false)
		s.fed(full, true)
	} else {
		b.y = min(b.y+1, b.rows-1)
		s.fed(full, false)
	}
	s.confine(b.cols - 1)
}

func (s *Screen) reverseIndex() {
	b := s.buf
	s.confine(b.cols - 1)
	if b.y == b.top {
		b.insertLines(b.y, 1, s.eraseCell())
		return
	}
	b.y--
	s.confine(b.cols - 1)
}

// backspace goes one column left and, in reverse wraparound mode, from the
// beginning of a row to the end of the one it continues.
func (s *Screen) backspace() {
	b := s.buf
	if !s.modes.reverseWraparound {
		s.confine(b.cols - 1)
		b.x = max(b.x-1, 0)
		return
	}
	s.confine(b.cols)
	switch {
	case b.x > 0:
		b.x--
	case b.y > b.top && b.y <= b.bottom && b.line(b.y).wrapped:
		b.line(b.y).wrapped = false
		b.y--
		b.x = b.cols - 1
		if c := &b.line(b.y).cells[b.x]; c.empty() && c.width() != 0 {
			b.x-- // a wide character had no room there
		}
	}
	s.confine(b.cols - 1)
}

// setMargins sets the rows that scroll.
func (s *Screen) setMargins() {
	b, p := s.buf, &s.params
	top, bottom := p.count(), p.get(1)
	if bottom == 0 || bottom > b.rows {
		bottom = b.rows
	}
	if bottom > top {
		b.top, b.bottom = top-1, bottom-1
		s.goTo(0, 0)
	}
}

func (s *Screen) saveCursor() {
	b := s.buf
	b.saved = savedCursor{
		x: b.x, y: b.viewerBase() + b.y,
		fg: s.pen.fg, bg: s.pen.bg,
		charset: s.charsets.current,
	}
}

func (s *Screen) restoreCursor() {
	b := s.buf
	b.x = b.saved.x
	b.y = max(b.saved.y-b.viewerBase(), 0)
	s.pen.fg, s.pen.bg = b.saved.fg, b.saved.bg
	s.usePen()
	s.charsets.current = b.saved.charset
	s.confine(b.cols - 1)
}
