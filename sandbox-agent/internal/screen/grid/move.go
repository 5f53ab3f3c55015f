package grid

// Confine moves the cursor into the grid, at most to column last, and in
// origin mode between the margins.
func (g *Grid) Confine(last int) {
	b := g.Buf
	b.X = min(max(b.X, 0), last)
	if g.Modes.Origin {
		b.Y = min(max(b.Y, b.Top), b.Bottom)
	} else {
		b.Y = min(max(b.Y, 0), b.Rows-1)
	}
}

// GoTo puts the cursor at a column and a row, in origin mode below the upper
// margin.
func (g *Grid) GoTo(x, y int) {
	if g.Modes.Origin {
		y += g.Buf.Top
	}
	g.Buf.X, g.Buf.Y = x, y
	g.Confine(g.Buf.Cols - 1)
}

// Move moves the cursor. In origin mode, like xterm.js, it takes the row for
// one below the upper margin.
func (g *Grid) Move(dx, dy int) {
	g.Confine(g.Buf.Cols - 1)
	g.GoTo(g.Buf.X+dx, g.Buf.Y+dy)
}

// Up moves the cursor to the upper margin at most.
func (g *Grid) Up(n int) {
	if above := g.Buf.Y - g.Buf.Top; above >= 0 {
		n = min(n, above)
	}
	g.Move(0, -n)
}

// Down moves the cursor to the lower margin at most.
func (g *Grid) Down(n int) {
	if below := g.Buf.Bottom - g.Buf.Y; below >= 0 {
		n = min(n, below)
	}
	g.Move(0, n)
}

func (g *Grid) lineFeed() {
	b := g.Buf
	if g.Modes.NewLine {
		b.X = 0
	}
	full := b.Line(b.Y).full(b.Cols)
	switch {
	case b.Y == b.Bottom:
		b.scroll(g.Pen.Erased(), false)
		g.fed(full, g.Modes.tangle())
	case b.Y == b.Rows-1:
		g.Tangle()
	default:
		b.Y++
		b.Line(b.Y).Wrapped = false
		g.fed(full || b.Line(b.Y).Length() > 0, g.Modes.tangle())
	}
	if b.X >= b.Cols {
		b.X--
	}
}

func (g *Grid) index() {
	b := g.Buf
	g.Confine(b.Cols - 1)
	full := b.Line(b.Y).full(b.Cols)
	if b.Y == b.Bottom {
		b.scroll(g.Pen.Erased(), false)
		g.fed(full, g.Modes.tangle())
	} else {
		b.Y = min(b.Y+1, b.Rows-1)
		g.fed(full || b.Line(b.Y).Length() > 0, g.Modes.tangle())
	}
	g.Confine(b.Cols - 1)
}

func (g *Grid) reverseIndex() {
	b := g.Buf
	g.Confine(b.Cols - 1)
	if b.Y == b.Top {
		b.InsertLines(b.Y, 1, g.Pen.Erased())
		return
	}
	b.Y--
	g.Confine(b.Cols - 1)
}

// backspace goes one column left and, in reverse wraparound mode, from the
// beginning of a row to the end of the one it continues.
func (g *Grid) backspace() {
	b := g.Buf
	if !g.Modes.ReverseWraparound {
		g.Confine(b.Cols - 1)
		b.X = max(b.X-1, 0)
		return
	}
	g.Confine(b.Cols)
	switch {
	case b.X > 0:
		b.X--
	case b.Y > b.Top && b.Y <= b.Bottom && b.Line(b.Y).Wrapped:
		b.Line(b.Y).Wrapped = false
		b.Y--
		b.X = b.Cols - 1
		if c := &b.Line(b.Y).Cells[b.X]; c.Empty() && c.Width() != 0 {
			b.X-- // a wide character had no room there
		}
	}
	g.Confine(b.Cols - 1)
}

// SetMargins sets the rows that scroll, counted from 1; bottom 0 is the last.
func (g *Grid) SetMargins(top, bottom int) {
	b := g.Buf
	if bottom == 0 || bottom > b.Rows {
		bottom = b.Rows
	}
	if bottom > top {
		b.Top, b.Bottom = top-1, bottom-1
		g.GoTo(0, 0)
	}
}

// SaveCursor obeys DECSC.
func (g *Grid) SaveCursor() {
	b := g.Buf
	b.Saved = SavedCursor{
		X: b.X, Y: b.ViewerBase() + b.Y,
		Fg: g.Pen.Fg, Bg: g.Pen.Bg,
		Charset: g.Charsets.Current,
	}
}

// RestoreCursor obeys DECRC.
func (g *Grid) RestoreCursor() {
	b := g.Buf
	b.X = b.Saved.X
	b.Y = max(b.Saved.Y-b.ViewerBase(), 0)
	g.Pen.Fg, g.Pen.Bg = b.Saved.Fg, b.Saved.Bg
	g.UsePen()
	g.Charsets.Current = b.Saved.Charset
	g.Confine(b.Cols - 1)
}
