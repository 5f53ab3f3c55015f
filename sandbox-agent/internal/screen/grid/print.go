package grid

import "unicode/utf8"

// PrintASCII prints the run of printable ASCII at the beginning of p, where
// nothing special is on, and returns its length.
func (g *Grid) PrintASCII(p []byte) int {
	g.BeginRun()
	b := g.Buf
	blank, n := g.PenCell, 0
	for {
		if b.X >= b.Cols {
			if g.Modes.Wraparound {
				g.wrap(0)
			} else {
				b.X = b.Cols - 1
			}
		}
		cells := b.Line(b.Y).Cells[b.X:b.Cols]
		src := p[n:]
		if len(src) > len(cells) {
			src = src[:len(cells)]
		}
		k := 0
		for ; k < len(src); k++ {
			c := src[k]
			if c-' ' >= asciiEnd-' ' {
				break
			}
			cells[k] = Cell{Content: uint32(c) | Narrow, Fg: blank.Fg, Bg: blank.Bg, Ext: blank.Ext}
		}
		b.X += k
		n += k
		if n == len(p) || p[n]-' ' >= asciiEnd-' ' {
			break
		}
	}
	g.Join = plainJoint
	g.EndRun()
	return n
}

// BeginRun is for what comes before the first of a run of characters: a wide
// character goes when its right half is about to be overwritten.
func (g *Grid) BeginRun() {
	if g.InRun {
		return
	}
	g.InRun = true
	if g.Returned {
		g.Returned = false
		g.Tangle()
	}
	if b := g.Buf; b.X > 0 {
		b.Line(b.Y).halve(b.X-1, g.PenCell)
	}
}

// EndRun is for what comes after: what is left of a wide character goes when
// its left half was overwritten.
func (g *Grid) EndRun() {
	b := g.Buf
	if b.X >= b.Cols {
		return
	}
	if c := &b.Line(b.Y).Cells[b.X]; c.IsSecond() {
		*c = g.PenCell
	}
}

// Print puts one character where the cursor is. It does nothing and returns
// false if the character were to join a cell that has no room for it.
func (g *Grid) Print(r rune) bool {
	b := g.Buf
	next, joins := g.Join.Follow(r)
	if joins && b.X > 0 {
		return g.printJoined(r, next)
	}
	width, old := next.Width(), 0
	if joins {
		old = g.Join.Width()
	}
	g.Join = next
	if !g.makeRoom(width, old) {
		return true
	}
	l := b.Line(b.Y)
	if g.Modes.Insert {
		l.Insert(b.X, width-old, g.PenCell)
		l.halve(b.Cols-1, g.PenCell)
	}
	c := g.PenCell
	c.Content = uint32(r) | uint32(width^1)<<WidthShift
	l.Cells[b.X] = c
	b.X++
	if width == 2 {
		c.Content = second
		l.Cells[b.X] = c
		b.X++
	}
	return true
}

// makeRoom goes to the next row if a character is too wide for this one, of
// which old columns are there already. It returns false if the character is to
// be dropped.
func (g *Grid) makeRoom(width, old int) bool {
	b := g.Buf
	if b.X+width-old <= b.Cols {
		return true
	}
	if g.Modes.Wraparound {
		g.wrap(old)
		return true
	}
	b.X = b.Cols - 1
	return width != 2
}

// printJoined is print for a character that joins the one before the cursor.
func (g *Grid) printJoined(r rune, next Joint) bool {
	b := g.Buf
	content := uint32(r)
	if i := b.Line(b.Y).before(b.X); i >= 0 && !b.Line(b.Y).Cells[i].Empty() {
		var ok bool
		if content, ok = g.Clusters.join(b.Line(b.Y).Cells[i].Content, r, &g.buffers); !ok {
			return false
		}
	}
	width, old := next.Width(), g.Join.Width()
	g.Join = next
	if !g.makeRoom(width, old) {
		return true
	}
	l := b.Line(b.Y)
	if i := l.before(b.X); i >= 0 {
		if l.Cells[i].Empty() {
			content = uint32(r) // a screen of one row has scrolled it away
		}
		l.Cells[i].Content = content | uint32(width^1)<<WidthShift
		if content&ClusterBit != 0 {
			l.noteCluster(i, content&codeMask)
		}
	}
	for range width - old {
		l.Cells[b.X] = g.PenCell
		l.Cells[b.X].Content = second
		b.X++
	}
	return true
}

// wrap goes to the beginning of the next row, which continues this one. The
// last old cells go with it: a character that has become too wide.
func (g *Grid) wrap(old int) {
	b := g.Buf
	from := *b.Line(b.Y)
	x := b.X - old
	b.X = old
	if b.Y == b.Bottom {
		b.scroll(g.Pen.Erased(), true)
	} else {
		b.Y = min(b.Y+1, b.Rows-1)
		b.Line(b.Y).Wrapped = true
	}
	if x < 0 {
		return
	}
	if old > 0 {
		copyCells(b.Line(b.Y), 0, &from, x, old)
	}
	for ; x < b.Cols; x++ {
		from.Cells[x] = g.PenCell
	}
}

// Repeat prints the last character n more times.
func (g *Grid) Repeat(n int) {
	g.InRun = false
	text := g.repeated()
	if len(text) == 0 {
		return
	}
	g.BeginRun()
	for range n {
		for _, r := range text {
			g.Print(r)
		}
	}
	g.EndRun()
	g.InRun = false
}

// repeated returns the characters that REP prints.
func (g *Grid) repeated() []rune {
	b := g.Buf
	x := b.X - g.Join.Width()
	if g.Join == 0 || x < 0 || x >= b.Cols {
		return nil
	}
	text := g.Clusters.AppendRunes(nil, b.Line(b.Y).Cells[x].Content)
	for i, r := range text {
		if r < asciiEnd {
			text[i] = g.Charsets.Current.Translate(byte(r))
		}
	}
	return text
}

// RepeatLimit returns how often, of n times, REP can print again before a cell
// has no room.
func (g *Grid) RepeatLimit(n int) int {
	text := g.repeated()
	l := g.Buf.Line(g.Buf.Y)
	i := l.before(g.Buf.X)
	if len(text) == 0 || i < 0 {
		return n
	}
	j, size := g.Join, len(g.Clusters.AppendText(nil, l.Cells[i].Content))
	for times := range n {
		before := j
		for _, r := range text {
			next, joins := j.Follow(r)
			if !joins {
				size = 0
			}
			if size += utf8.RuneLen(r); size > MaxClusterBytes {
				return times
			}
			j = next
		}
		if _, joins := before.Follow(text[0]); !joins && j == before {
			break
		}
	}
	return n
}
