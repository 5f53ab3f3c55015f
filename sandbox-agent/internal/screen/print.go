package screen

// printASCII prints the run of printable ASCII at the beginning of p, where
// nothing special is on, and returns its length.
func (g *grid) printASCII(p []byte) int {
	g.beginRun()
	b := g.buf
	blank, n := g.penCell, 0
	for {
		if b.x >= b.cols {
			if g.modes.wraparound {
				g.wrap(0)
			} else {
				b.x = b.cols - 1
			}
		}
		cells := b.line(b.y).cells[b.x:b.cols]
		src := p[n:]
		if len(src) > len(cells) {
			src = src[:len(cells)]
		}
		k := 0
		for ; k < len(src); k++ {
			c := src[k]
			if c-' ' >= del-' ' {
				break
			}
			cells[k] = cell{content: uint32(c) | narrow, fg: blank.fg, bg: blank.bg, ext: blank.ext}
		}
		b.x += k
		n += k
		if n == len(p) || p[n]-' ' >= del-' ' {
			break
		}
	}
	g.join = plainJoint
	g.endRun()
	return n
}

// printSlowly is printASCII where something special is on.
func (s *Screen) printSlowly(i int) int {
	s.tangle()
	s.beginRun()
	n := 0
	for _, c := range s.in[i:] {
		if c-' ' >= del-' ' {
			break
		}
		r := rune(c)
		if s.charsets.current != charsetASCII {
			r = s.charsets.current.translate(c)
		}
		if !s.print(r) {
			s.leaveOut(i+n, 1)
		}
		n++
	}
	s.endRun()
	return n
}

// printText prints the run of characters beyond ASCII at in[i] and returns its
// length in bytes. A C1 control or a mistake ends it.
func (s *Screen) printText(i int) int {
	p, n := s.in[i:], 0
	for n < len(p) && p[n] >= 0x80 {
		r, size := decode(p[n:])
		if r < 0xa0 {
			if n > 0 {
				break
			}
			if r > 0 {
				s.control(r, i, size)
			}
			return size
		}
		if n == 0 {
			s.beginRun()
		}
		if !s.print(r) {
			s.leaveOut(i+n, size)
		}
		n += size
	}
	s.endRun()
	return n
}

// beginRun is for what comes before the first of a run of characters: a wide
// character goes when its right half is about to be overwritten.
func (g *grid) beginRun() {
	if g.inRun {
		return
	}
	g.inRun = true
	if g.returned {
		g.returned = false
		g.tangle()
	}
	if b := g.buf; b.x > 0 {
		b.line(b.y).halve(b.x-1, g.penCell)
	}
}

// endRun is for what comes after: what is left of a wide character goes when
// its left half was overwritten.
func (g *grid) endRun() {
	b := g.buf
	if b.x >= b.cols {
		return
	}
	if c := &b.line(b.y).cells[b.x]; c.isSecond() {
		*c = g.penCell
	}
}

// print puts one character where the cursor is. It does nothing and returns
// false if the character were to join a cell that has no room for it.
func (g *grid) print(r rune) bool {
	b := g.buf
	next, joins := g.join.follow(r)
	if joins && b.x > 0 {
		return g.printJoined(r, next)
	}
	width, old := next.width(), 0
	if joins {
		old = g.join.width()
	}
	g.join = next
	if !g.makeRoom(width, old) {
		return true
	}
	l := b.line(b.y)
	if g.modes.insert {
		l.insert(b.x, width-old, g.penCell)
		l.halve(b.cols-1, g.penCell)
	}
	c := g.penCell
	c.content = uint32(r) | uint32(width^1)<<widthShift
	l.cells[b.x] = c
	b.x++
	if width == 2 {
		c.content = second
		l.cells[b.x] = c
		b.x++
	}
	return true
}

// makeRoom goes to the next row if a character is too wide for this one, of
// which old columns are there already. It returns false if the character is to
// be dropped.
func (g *grid) makeRoom(width, old int) bool {
	b := g.buf
	if b.x+width-old <= b.cols {
		return true
	}
	if g.modes.wraparound {
		g.wrap(old)
		return true
	}
	b.x = b.cols - 1
	return width != 2
}

// printJoined is print for a character that joins the one before the cursor.
func (g *grid) printJoined(r rune, next joint) bool {
	b := g.buf
	content := uint32(r)
	if i := b.line(b.y).before(b.x); i >= 0 && !b.line(b.y).cells[i].empty() {
		var ok bool
		if content, ok = g.clusters.join(b.line(b.y).cells[i].content, r, &g.buffers); !ok {
			return false
		}
	}
	width, old := next.width(), g.join.width()
	g.join = next
	if !g.makeRoom(width, old) {
		return true
	}
	l := b.line(b.y)
	if i := l.before(b.x); i >= 0 {
		if l.cells[i].empty() {
			content = uint32(r) // a screen of one row has scrolled it away
		}
		l.cells[i].content = content | uint32(width^1)<<widthShift
		if content&clusterBit != 0 {
			l.noteCluster(i, content&codeMask)
		}
	}
	for range width - old {
		l.cells[b.x] = g.penCell
		l.cells[b.x].content = second
		b.x++
	}
	return true
}

// wrap goes to the beginning of the next row, which continues this one. The
// last old cells go with it: a character that has become too wide.
func (g *grid) wrap(old int) {
	b := g.buf
	from := *b.line(b.y)
	x := b.x - old
	b.x = old
	if b.y == b.bottom {
		b.scroll(g.pen.erased(), true)
	} else {
		b.y = min(b.y+1, b.rows-1)
		b.line(b.y).wrapped = true
	}
	if x < 0 {
		return
	}
	if old > 0 {
		copyCells(b.line(b.y), 0, &from, x, old)
	}
	for ; x < b.cols; x++ {
		from.cells[x] = g.penCell
	}
}

// repeat prints the last character n more times.
func (g *grid) repeat(n int) {
	g.inRun = false
	text := g.repeated()
	if len(text) == 0 {
		return
	}
	g.beginRun()
	for range n {
		for _, r := range text {
			g.print(r)
		}
	}
	g.endRun()
	g.inRun = false
}

// repeated returns the characters that REP prints.
func (g *grid) repeated() []rune {
	b := g.buf
	x := b.x - g.join.width()
	if g.join == 0 || x < 0 || x >= b.cols {
		return nil
	}
	text := g.clusters.appendRunes(nil, b.line(b.y).cells[x].content)
	for i, r := range text {
		if r < del {
			text[i] = g.charsets.current.translate(byte(r))
		}
	}
	return text
}
