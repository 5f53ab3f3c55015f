// Package keyframe writes what makes a terminal's grid another: escape sequences
// that rebuild a screen in a viewer that comes late.
package keyframe

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// Append appends what gives any terminal of the same size the state of g,
// with up to history rows above the screen.
func Append(dst []byte, g *grid.Grid, history int) []byte {
	p := &painter{grid: g, dst: dst, cols: g.Buf.Cols, marked: make([]bool, g.Buf.Cols)}
	p.control("\x18\x1bc\x1b[20l\x1b[?25h")
	p.paintColors()
	p.control("\x1b]2;" + g.Title + "\a")
	if g.Buf == g.Normal && g.Alt.Saved != (grid.SavedCursor{}) {
		p.private(47, true)
		p.save(g.Alt, g.Alt.Saved.Y, nil)
		p.control("\x1b(B")
		p.use(grid.Pen{})
		p.private(47, false)
		p.csi("H")
		p.x = 0
	}
	p.paintBuffer(g.Normal, history)
	if g.Buf == g.Alt {
		p.leave(g.Normal)
		p.paintBuffer(g.Alt, 0)
	}
	p.finish()
	return p.dst
}

func (p *painter) paintColors() {
	p.control("\x1b]104\a\x1b]110\a\x1b]111\a\x1b]112\a")
	for i, c := range p.grid.Colors.Palette {
		if c.Set {
			p.dst = grid.AppendInt(append(p.dst, "\x1b]4;"...), i, ';')
			p.dst = append(append(p.dst, c.Format()...), '\a')
		}
	}
	for i, c := range p.grid.Colors.Special {
		if c.Set {
			p.dst = grid.AppendInt(append(p.dst, "\x1b]"...), 10+i, ';')
			p.dst = append(append(p.dst, c.Format()...), '\a')
		}
	}
}

// paintBuffer writes rows and tab stops of a screen that is active and empty.
func (p *painter) paintBuffer(b *grid.Buffer, history int) {
	first := b.Base - min(max(history, 0), b.Base)
	p.early, p.savedRow = false, -1
	if b.Saved.Y < b.ViewerBase() {
		p.savedRow = max(b.Saved.Y-b.Lost-first, 0)
	}
	rows := make([]*grid.Row, 0, b.Base-first+b.Rows)
	for i := first; i < b.Base+b.Rows; i++ {
		rows = append(rows, b.At(i))
	}
	for len(rows) > 1 && len(rows) <= b.Rows && !rows[0].Wrapped && blankRow(rows[len(rows)-1]) {
		rows = rows[:len(rows)-1]
	}
	p.paint(b, rows)
	p.paintTabs(b)
}

func blankRow(r *grid.Row) bool {
	return !r.Wrapped && r.Cells[0] == grid.Cell{} && plainRow(r.Cells)
}

func (p *painter) paintTabs(b *grid.Buffer) {
	var usual grid.TabStops
	usual.Fill(0, b.Cols)
	same := true
	for x := range b.Cols {
		same = same && usual.Has(x) == b.Tabs.Has(x)
	}
	if same {
		return
	}
	p.csi("g", 3)
	for x := range b.Cols {
		if b.Tabs.Has(x) {
			p.to(x)
			p.control("\x1bH")
		}
	}
}

// leave finishes the normal screen, which stays behind the alternate one.
func (p *painter) leave(b *grid.Buffer) {
	p.saveLate(b)
	p.designate(0, grid.CharsetASCII)
	p.use(grid.Pen{})
	p.margins(b)
	p.goTo(b.Y, min(b.X, p.cols-1))
	p.locked = false
	p.private(47, true)
	p.csi("H")
	p.x = 0
}

func (p *painter) margins(b *grid.Buffer) {
	if b.Top != 0 || b.Bottom != b.Rows-1 {
		p.csi("r", b.Top+1, b.Bottom+1)
	}
}

// finish sets all that isn't a cell.
func (p *painter) finish() {
	s, b := p.grid, p.grid.Buf
	p.saveLate(b)
	shifted := s.Charsets.Current == s.Charsets.G[s.Charsets.Level]
	restore := !shifted || !s.Pen.Regular()
	if restore {
		p.useRest(s.Pen)
		if !shifted {
			p.paintCharsets()
		}
		p.restore()
	} else {
		p.designate(0, grid.CharsetASCII)
	}
	p.margins(b)
	if s.Modes.Origin {
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
	saved := &p.grid.Buf.Saved
	if p.grid.Buf == p.grid.Normal && !cameFrom(p.grid, saved) && cameFrom(p.grid, &p.grid.Alt.Saved) {
		saved = &p.grid.Alt.Saved
		p.private(47, true)
		p.control("\x1b8")
		p.private(47, false)
	} else {
		p.control("\x1b8")
	}
	p.pen.Fg, p.pen.Bg = saved.Fg, saved.Bg
}

func (p *painter) paintCharsets() {
	c := &p.grid.Charsets
	for level, set := range c.G {
		p.designate(level, set)
	}
	p.control([]string{"\x0f", "\x0e", "\x1bn", "\x1bo"}[c.Level])
}

// placeCursor moves the cursor to where it is. With keepPen it may only change
// those parts of the pen that adjust sets.
func (p *painter) placeCursor(keepPen bool) {
	b := p.grid.Buf
	y := b.Y
	if p.grid.Modes.Origin {
		y -= b.Top
	}
	outside := p.grid.Modes.Origin && (b.Y < b.Top || b.Y > b.Bottom)
	switch {
	case b == p.grid.Normal && b.X >= p.cols:
		p.pend(b.Y)
	case b == p.grid.Normal && outside:
		p.private(47, true)
		p.goTo(b.Y, b.X)
		p.private(47, false)
	case b.X < p.cols:
		p.goTo(y, b.X)
	default:
		p.pendAlternate(b.Line(b.Y), y, keepPen)
	}
}

// pendAlternate is pend for row r of the alternate screen, to which the cursor
// goes as row y. There is no way where nothing is to be written in the last
// column, or not with the pen that is to be kept.
func (p *painter) pendAlternate(r *grid.Row, y int, keepPen bool) {
	x := p.cols - 1
	if r.Cells[x].IsSecond() {
		x--
	}
	c, set := &r.Cells[x], grid.CharsetASCII
	if keepPen {
		set = p.grid.Buf.Saved.Charset
	}
	blank := plainRow(r.Cells[:p.cols])
	want, ok := p.penLike(c, keepPen)
	p.goTo(y, x)
	if !ok || !blank && (c.Empty() || x+c.Width() != p.cols || !p.grid.Clusters.Writable(c, set)) {
		return
	}
	switch {
	case !keepPen:
		p.use(want)
	case want.Regular():
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
func (p *painter) penLike(c *grid.Cell, keepPen bool) (want grid.Pen, ok bool) {
	now := p.grid.Pen
	if !keepPen || now.Regular() {
		want = p.grid.Exts.PenOf(c)
		return want, !keepPen || want.Regular()
	}
	if c.Empty() {
		grid.SetColor(&now.Bg, c.Bg)
		return now, true
	}
	e := grid.Ext{}
	if now.Bg&grid.FlagExtended != 0 {
		e = grid.Ext{Underline: now.Underline, Color: now.Color, Link: now.Link}
	}
	ok = p.grid.Exts.Of(c) == e && (c.Fg^now.Fg)&grid.FlagUnderline == 0
	now.Fg, now.Bg = c.Fg, c.Bg|now.Bg&grid.FlagExtended
	return now, ok
}

// plainRow reports whether all cells are equal to what erasing leaves.
func plainRow(cells []grid.Cell) bool {
	for i := range cells {
		if cells[i] != cells[0] {
			return false
		}
	}
	return cells[0] == grid.Cell{Bg: cells[0].Bg & (grid.ModeMask | grid.ColorMask)}
}

// cameFrom reports whether pen and character set may have been restored from a
// saved cursor.
func cameFrom(g *grid.Grid, saved *grid.SavedCursor) bool {
	return saved.Charset == g.Charsets.Current &&
		(g.Pen.Regular() || (saved.Fg^g.Pen.Fg)&grid.FlagUnderline == 0 && (saved.Bg^g.Pen.Bg)&grid.FlagExtended == 0)
}
