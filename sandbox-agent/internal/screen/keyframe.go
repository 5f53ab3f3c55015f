package screen

// AppendKeyframe appends bytes that give any terminal of the same size, in
// whatever state, the state of s: up to history newest rows above the screen,
// both screens, and all that decides about what comes next.
//
// A few things no sequence can say, all of which take a change of size or a
// wide character cut in two: cells and tab stops that a narrower size hides,
// half a character in the first or last column, a saved cursor below the
// screen, and that a mark is to join a character that has been moved.
func (s *Screen) AppendKeyframe(dst []byte, history int) []byte {
	p := &painter{Screen: s, dst: dst, cols: s.buf.cols, marked: make([]bool, s.buf.cols)}
	p.control("\x18\x1bc\x1b[20l\x1b[?25h")
	p.paintColors()
	p.control("\x1b]2;" + s.title + "\a")
	if s.buf == s.normal && s.alt.saved != (savedCursor{}) {
		p.private(47, true)
		p.save(s.alt, s.alt.saved.y, nil)
		p.control("\x1b(B")
		p.use(pen{})
		p.private(47, false)
		p.csi("H")
		p.x = 0
	}
	p.paintBuffer(s.normal, history)
	if s.buf == s.alt {
		p.leave(s.normal)
		p.paintBuffer(s.alt, 0)
	}
	p.finish()
	return p.dst
}

func (p *painter) paintColors() {
	p.control("\x1b]104\a\x1b]110\a\x1b]111\a\x1b]112\a")
	for i, c := range p.colors.palette {
		if c.set {
			p.dst = appendInt(append(p.dst, "\x1b]4;"...), i, ';')
			p.dst = append(append(p.dst, c.format()...), bel)
		}
	}
	for i, c := range p.colors.special {
		if c.set {
			p.dst = appendInt(append(p.dst, "\x1b]"...), oscForeground+i, ';')
			p.dst = append(append(p.dst, c.format()...), bel)
		}
	}
}

// paintBuffer writes rows and tab stops of a screen that is active and empty.
func (p *painter) paintBuffer(b *buffer, history int) {
	first := b.base - min(max(history, 0), b.base)
	if p.early = b.saved.y < b.viewerBase(); p.early {
		// Its row scrolls off. Count it from the oldest that is shown.
		p.save(b, b.saved.y-b.lost-first, &row{cells: make([]cell, p.cols)})
		p.designate(0, charsetASCII)
		p.use(pen{})
		p.goTo(0, 0)
	}
	rows := make([]*row, 0, b.base-first+b.rows)
	for i := first; i < b.base+b.rows; i++ {
		rows = append(rows, b.at(i))
	}
	for len(rows) > 1 && len(rows) <= b.rows && !rows[0].wrapped && blankRow(rows[len(rows)-1]) {
		rows = rows[:len(rows)-1]
	}
	p.paint(rows, b.rows)
	p.paintTabs(b)
}

func blankRow(r *row) bool {
	return !r.wrapped && r.cells[0] == cell{} && plainRow(r.cells)
}

func (p *painter) paintTabs(b *buffer) {
	var usual tabStops
	usual.fill(0, b.cols)
	same := true
	for x := range b.cols {
		same = same && usual.has(x) == b.tabs.has(x)
	}
	if same {
		return
	}
	p.csi("g", 3)
	for x := range b.cols {
		if b.tabs.has(x) {
			p.to(x)
			p.control("\x1bH")
		}
	}
}

// goTo moves the cursor to a row, in origin mode below the upper margin, and
// a column.
func (p *painter) goTo(y, x int) {
	p.csi("H", y+1, x+1)
	p.x = x
}

// save sets the saved cursor of b, which is active, in row y. It may have to
// write that row's last cell again, if there are rows.
func (p *painter) save(b *buffer, y int, r *row) {
	saved := &b.saved
	y = min(max(y, 0), b.rows-1)
	p.goTo(y, min(saved.x, p.cols-1))
	pending := saved.x >= p.cols && r != nil
	if pending {
		p.put(" ")
	}
	p.useRegular(pen{fg: saved.fg, bg: saved.bg}.restorable())
	p.designate(0, saved.charset)
	p.control("\x1b7")
	if p.locked = true; pending {
		p.designate(0, charsetASCII)
		p.repair(r, y)
	}
	p.locked = false
}

// saveLate is save if that hasn't been done before the rows were written, or
// was undone then.
func (p *painter) saveLate(b *buffer) {
	if !p.early {
		y := min(max(b.saved.y-b.viewerBase(), 0), b.rows-1)
		p.save(b, y, b.line(y))
	}
	p.locked = true
}

// repair writes the last cell of row y again.
func (p *painter) repair(r *row, y int) {
	x := p.cols - 1
	clear(p.marked)
	p.marked[x] = true
	if p.isSpecial(r, x) {
		x--
	}
	if r.cells[x].isSecond() && x > 0 {
		x--
	}
	p.goTo(y, x)
	p.paintRow(r)
}

func (p *painter) designate(level int, set charset) {
	p.control("\x1b" + "()*+"[level:level+1] + designators[set][:1])
}

// leave finishes the normal screen, which stays behind the alternate one.
func (p *painter) leave(b *buffer) {
	p.saveLate(b)
	p.designate(0, charsetASCII)
	p.use(pen{})
	p.margins(b)
	p.goTo(b.y, min(b.x, p.cols-1))
	p.locked = false
	p.private(47, true)
	p.csi("H")
	p.x = 0
}

func (p *painter) margins(b *buffer) {
	if b.top != 0 || b.bottom != b.rows-1 {
		p.csi("r", b.top+1, b.bottom+1)
	}
}

// finish sets all that isn't a cell.
func (p *painter) finish() {
	s, b := p.Screen, p.buf
	p.saveLate(b)
	shifted := s.charsets.current == s.charsets.g[s.charsets.level]
	restore := !shifted || !s.pen.regular()
	if restore {
		p.useRest(s.pen)
		if !shifted {
			p.paintCharsets()
		}
		p.control("\x1b8")
		p.pen.fg, p.pen.bg = b.saved.fg, b.saved.bg
	} else {
		p.designate(0, charsetASCII)
	}
	p.margins(b)
	if s.modes.origin {
		p.private(6, true)
	}
	last := p.lastPrinted()
	if last == nil {
		p.placeCursor(restore)
	}
	if shifted {
		p.paintCharsets()
	}
	p.paintModes()
	p.finishPen()
	if last != nil {
		p.printLast(last)
	}
	p.appendUnfinished()
}

func (p *painter) paintCharsets() {
	c := &p.charsets
	for level, set := range c.g {
		p.designate(level, set)
	}
	p.control([]string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[c.level])
}

// placeCursor moves the cursor to where it is. With keepPen it writes nothing.
func (p *painter) placeCursor(keepPen bool) {
	b := p.buf
	y := b.y
	if p.modes.origin {
		y -= b.top
	}
	outside := p.modes.origin && (b.y < b.top || b.y > b.bottom)
	if b == p.normal && (b.x >= p.cols || outside) {
		// The other screen has no margins and nothing to lose.
		p.private(47, true)
		p.goTo(b.y, min(b.x, p.cols-1))
		if b.x >= p.cols {
			p.put(" ")
		}
		p.private(47, false)
		return
	}
	p.goTo(y, min(b.x, p.cols-1))
	if b.x < p.cols || keepPen {
		return
	}
	cells := b.line(b.y).cells
	x := p.cols - 1
	if cells[x].isSecond() {
		x--
	}
	switch c := &cells[x]; {
	case !c.empty() && x+c.width() == p.cols:
		p.goTo(y, x)
		p.use(p.penOf(c))
		p.print(c)
	case plainRow(cells[:p.cols]):
		p.use(pen{bg: c.bg})
		p.put(" ")
		p.csi("K", 1)
	}
}

// plainRow reports whether all cells are equal to what erasing leaves.
func plainRow(cells []cell) bool {
	for i := range cells {
		if cells[i] != cells[0] {
			return false
		}
	}
	return cells[0] == cell{bg: cells[0].bg & (modeMask | colorMask)}
}
