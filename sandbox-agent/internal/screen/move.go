package screen

// confine moves the cursor into the grid, at most to column last, and in
// origin mode between the margins.
func (g *grid) confine(last int) {
	b := g.buf
	b.x = min(max(b.x, 0), last)
	if g.modes.origin {
		b.y = min(max(b.y, b.top), b.bottom)
	} else {
		b.y = min(max(b.y, 0), b.rows-1)
	}
}

// goTo puts the cursor at a column and a row, in origin mode below the upper
// margin.
func (g *grid) goTo(x, y int) {
	if g.modes.origin {
		y += g.buf.top
	}
	g.buf.x, g.buf.y = x, y
	g.confine(g.buf.cols - 1)
}

// move moves the cursor. In origin mode, like xterm.js, it takes the row for
// one below the upper margin.
func (g *grid) move(dx, dy int) {
	g.confine(g.buf.cols - 1)
	g.goTo(g.buf.x+dx, g.buf.y+dy)
}

// up moves the cursor to the upper margin at most.
func (g *grid) up(n int) {
	if above := g.buf.y - g.buf.top; above >= 0 {
		n = min(n, above)
	}
	g.move(0, -n)
}

// down moves the cursor to the lower margin at most.
func (g *grid) down(n int) {
	if below := g.buf.bottom - g.buf.y; below >= 0 {
		n = min(n, below)
	}
	g.move(0, n)
}

// tab goes n tab stops forward, or back.
func (b *buffer) tab(n int, back bool) {
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

func (b *buffer) clearTabs(which int) {
	switch which {
	case 0:
		b.tabs.clear(b.x)
	case 3:
		b.tabs = tabStops{}
	}
}

func (g *grid) lineFeed() {
	b := g.buf
	if g.modes.newLine {
		b.x = 0
	}
	full := b.line(b.y).full(b.cols)
	switch {
	case b.y == b.bottom:
		b.scroll(g.pen.erased(), false)
		g.fed(full, g.modes.tangle())
	case b.y == b.rows-1:
		g.tangle()
	default:
		b.y++
		b.line(b.y).wrapped = false
		g.fed(full || b.line(b.y).length() > 0, g.modes.tangle())
	}
	if b.x >= b.cols {
		b.x--
	}
}

func (g *grid) index() {
	b := g.buf
	g.confine(b.cols - 1)
	full := b.line(b.y).full(b.cols)
	if b.y == b.bottom {
		b.scroll(g.pen.erased(), false)
		g.fed(full, g.modes.tangle())
	} else {
		b.y = min(b.y+1, b.rows-1)
		g.fed(full || b.line(b.y).length() > 0, g.modes.tangle())
	}
	g.confine(b.cols - 1)
}

func (g *grid) reverseIndex() {
	b := g.buf
	g.confine(b.cols - 1)
	if b.y == b.top {
		b.insertLines(b.y, 1, g.pen.erased())
		return
	}
	b.y--
	g.confine(b.cols - 1)
}

// backspace goes one column left and, in reverse wraparound mode, from the
// beginning of a row to the end of the one it continues.
func (g *grid) backspace() {
	b := g.buf
	if !g.modes.reverseWraparound {
		g.confine(b.cols - 1)
		b.x = max(b.x-1, 0)
		return
	}
	g.confine(b.cols)
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
	g.confine(b.cols - 1)
}

// setMargins sets the rows that scroll, counted from 1; bottom 0 is the last.
func (g *grid) setMargins(top, bottom int) {
	b := g.buf
	if bottom == 0 || bottom > b.rows {
		bottom = b.rows
	}
	if bottom > top {
		b.top, b.bottom = top-1, bottom-1
		g.goTo(0, 0)
	}
}

func (g *grid) saveCursor() {
	b := g.buf
	b.saved = savedCursor{
		x: b.x, y: b.viewerBase() + b.y,
		fg: g.pen.fg, bg: g.pen.bg,
		charset: g.charsets.current,
	}
}

func (g *grid) restoreCursor() {
	b := g.buf
	b.x = b.saved.x
	b.y = max(b.saved.y-b.viewerBase(), 0)
	g.pen.fg, g.pen.bg = b.saved.fg, b.saved.bg
	g.usePen()
	g.charsets.current = b.saved.charset
	g.confine(b.cols - 1)
}
