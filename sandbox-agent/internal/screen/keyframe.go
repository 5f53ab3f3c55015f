package screen

// AppendKeyframe appends bytes that give any terminal of the same size, in
// whatever state, the state of s: up to history newest rows above the screen,
// both screens, and all that decides about what comes next.
//
// A few things no sequence can say. Most take a change of size: cells and tab
// stops that a narrower size hides, half a wide character at the edge, a last
// row of nothing but such halves, a saved cursor below the screen, that a mark
// is to join a character that has been moved, the text of a cell in the last
// column that was overwritten. The others take the alternate screen: that the
// next character wraps behind an empty cell, and a pen that was restored on the
// normal screen with an underline but no style of it.
func (s *Screen) AppendKeyframe(dst []byte, history int) []byte {
	p := &painter{grid: &s.grid, dst: dst, cols: s.buf.cols, marked: make([]bool, s.buf.cols)}
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
	return s.appendUnfinished(p.dst)
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
	p.early, p.savedRow = false, -1
	if b.saved.y < b.viewerBase() {
		p.savedRow = max(b.saved.y-b.lost-first, 0)
	}
	rows := make([]*row, 0, b.base-first+b.rows)
	for i := first; i < b.base+b.rows; i++ {
		rows = append(rows, b.at(i))
	}
	for len(rows) > 1 && len(rows) <= b.rows && !rows[0].wrapped && blankRow(rows[len(rows)-1]) {
		rows = rows[:len(rows)-1]
	}
	p.paint(b, rows)
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
// write that row's last cell again, unless the screen is empty and r nil.
func (p *painter) save(b *buffer, y int, r *row) {
	saved := &b.saved
	y = min(max(y, 0), b.rows-1)
	repair := false
	switch {
	case saved.x < p.cols:
		p.goTo(y, saved.x)
	case b == p.normal:
		p.pend(y)
	case r == nil:
		p.goTo(y, p.cols-1)
		p.put(" ")
	default:
		repair = !p.reprint(r, y)
	}
	p.useRegular(pen{fg: saved.fg, bg: saved.bg}.restorable())
	p.designate(0, saved.charset)
	p.control("\x1b7")
	if p.locked = true; repair {
		p.designate(0, charsetASCII)
		p.repair(r, y)
	}
	p.locked = false
}

// pend moves the cursor of the normal screen to where the character after that
// in the last column of row y wraps.
func (p *painter) pend(y int) {
	// The other screen has no margins and nothing to lose.
	p.private(47, true)
	p.goTo(y, p.cols-1)
	p.put(" ")
	p.private(47, false)
	p.x = p.cols
}

// reprint is pend for the alternate screen: it writes the last character of
// row r again, which is row y of the screen. If there is none it writes a space
// and returns false.
func (p *painter) reprint(r *row, y int) (right bool) {
	x := p.cols - 1
	if r.cells[x].isSecond() {
		x--
	}
	c := &r.cells[x]
	if c.empty() || x+c.width() != p.cols {
		p.goTo(y, p.cols-1)
		p.put(" ")
		return false
	}
	p.goTo(y, x)
	p.use(p.exts.penOf(c))
	p.print(c)
	return true
}

// saveEarly is save for a row of the normal screen that is about to scroll off
// the top, when the last row of the screen has been written.
func (p *painter) saveEarly(b *buffer) {
	x := p.x
	p.save(b, 0, nil)
	p.designate(0, charsetASCII)
	p.use(pen{})
	if x < p.cols {
		p.goTo(b.rows-1, x)
	} else {
		p.pend(b.rows - 1)
	}
	p.early = true
}

// saveLate is save if that hasn't been done while the rows were written, or was
// undone then.
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
	for x > 0 && isSpecial(r, x) {
		x--
	}
	if r.cells[x].isSecond() && x > 0 {
		x--
	}
	p.goTo(y, x)
	p.paintRow(r, false)
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
	s, b := p.grid, p.buf
	p.saveLate(b)
	shifted := s.charsets.current == s.charsets.g[s.charsets.level]
	restore := !shifted || !s.pen.regular()
	if restore {
		p.useRest(s.pen)
		if !shifted {
			p.paintCharsets()
		}
		p.restore()
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
}

// restore restores the cursor, and with it pen and character set: those of the
// alternate screen if that is where they come from.
func (p *painter) restore() {
	saved := &p.buf.saved
	if p.buf == p.normal && !p.cameFrom(saved) && p.cameFrom(&p.alt.saved) {
		saved = &p.alt.saved
		p.private(47, true)
		p.control("\x1b8")
		p.private(47, false)
	} else {
		p.control("\x1b8")
	}
	p.pen.fg, p.pen.bg = saved.fg, saved.bg
}

// cameFrom reports whether pen and character set may have been restored from a
// saved cursor.
func (g *grid) cameFrom(saved *savedCursor) bool {
	return saved.charset == g.charsets.current &&
		(g.pen.regular() || (saved.fg^g.pen.fg)&flagUnderline == 0 && (saved.bg^g.pen.bg)&flagExtended == 0)
}

func (p *painter) paintCharsets() {
	c := &p.charsets
	for level, set := range c.g {
		p.designate(level, set)
	}
	p.control([]string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[c.level])
}

// placeCursor moves the cursor to where it is. With keepPen it may only change
// those parts of the pen that adjust sets.
func (p *painter) placeCursor(keepPen bool) {
	b := p.buf
	y := b.y
	if p.modes.origin {
		y -= b.top
	}
	outside := p.modes.origin && (b.y < b.top || b.y > b.bottom)
	switch {
	case b == p.normal && b.x >= p.cols:
		p.pend(b.y)
	case b == p.normal && outside:
		p.private(47, true)
		p.goTo(b.y, b.x)
		p.private(47, false)
	case b.x < p.cols:
		p.goTo(y, b.x)
	default:
		p.pendAlternate(b.line(b.y), y, keepPen)
	}
}

// pendAlternate is pend for row r of the alternate screen, to which the cursor
// goes as row y. There is no way where nothing is to be written in the last
// column, or not with the pen that is to be kept.
func (p *painter) pendAlternate(r *row, y int, keepPen bool) {
	x := p.cols - 1
	if r.cells[x].isSecond() {
		x--
	}
	c, set := &r.cells[x], charsetASCII
	if keepPen {
		set = p.buf.saved.charset
	}
	blank := plainRow(r.cells[:p.cols])
	want, ok := p.penLike(c, keepPen)
	p.goTo(y, x)
	if !ok || !blank && (c.empty() || x+c.width() != p.cols || !p.clusters.writable(c, set)) {
		return
	}
	switch {
	case !keepPen:
		p.use(want)
	case want.regular():
		p.useRegular(want)
	default:
		p.adjust(want)
	}
	if blank {
		p.put(" ")
		p.csi("K", 1)
	} else {
		p.printAs(c, set)
	}
}

// penLike returns a pen that c can be written with, or that an empty c can be
// erased with. With keepPen it must be one that adjust can make of the pen there
// is to be, and back.
func (p *painter) penLike(c *cell, keepPen bool) (want pen, ok bool) {
	now := p.grid.pen
	if !keepPen || now.regular() {
		want = p.exts.penOf(c)
		return want, !keepPen || want.regular()
	}
	if c.empty() {
		setColor(&now.bg, c.bg)
		return now, true
	}
	e := ext{}
	if now.bg&flagExtended != 0 {
		e = ext{underline: now.underline, color: now.color, link: now.link}
	}
	ok = p.exts.of(c) == e && (c.fg^now.fg)&flagUnderline == 0
	now.fg, now.bg = c.fg, c.bg|now.bg&flagExtended
	return now, ok
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
