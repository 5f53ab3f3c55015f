package keyframe

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// save sets the saved cursor of b, which is active, in row y. It may have to
// write that row's last cell again, unless the screen is empty and r nil.
func (p *painter) save(b *grid.Buffer, y int, r *grid.Row) {
	saved := &b.Saved
	y = min(max(y, 0), b.Rows-1)
	repair := false
	switch {
	case saved.X < p.cols:
		p.goTo(y, saved.X)
	case b == p.grid.Normal:
		p.pend(y)
	case r == nil:
		p.goTo(y, p.cols-1)
		p.put(" ")
	default:
		repair = !p.reprint(r, y)
	}
	p.useRegular(restorable(grid.Pen{Fg: saved.Fg, Bg: saved.Bg}))
	p.designate(0, saved.Charset)
	p.control("\x1b7")
	if p.locked = true; repair {
		p.designate(0, grid.CharsetASCII)
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
func (p *painter) reprint(r *grid.Row, y int) (right bool) {
	x := p.cols - 1
	if r.Cells[x].IsSecond() {
		x--
	}
	c := &r.Cells[x]
	if c.Empty() || x+c.Width() != p.cols {
		p.goTo(y, p.cols-1)
		p.put(" ")
		return false
	}
	p.goTo(y, x)
	p.use(p.grid.Exts.PenOf(c))
	p.print(c)
	return true
}

// saveEarly is save for a row of the normal screen that is about to scroll off
// the top, when the last row of the screen has been written.
func (p *painter) saveEarly(b *grid.Buffer) {
	x := p.x
	p.save(b, 0, nil)
	p.designate(0, grid.CharsetASCII)
	p.use(grid.Pen{})
	if x < p.cols {
		p.goTo(b.Rows-1, x)
	} else {
		p.pend(b.Rows - 1)
	}
	p.early = true
}

// saveLate is save if that hasn't been done while the rows were written, or was
// undone then.
func (p *painter) saveLate(b *grid.Buffer) {
	if !p.early {
		y := min(max(b.Saved.Y-b.ViewerBase(), 0), b.Rows-1)
		p.save(b, y, b.Line(y))
	}
	p.locked = true
}

// repair writes the last cell of row y again.
func (p *painter) repair(r *grid.Row, y int) {
	x := p.cols - 1
	clear(p.marked)
	p.marked[x] = true
	for x > 0 && isSpecial(r, x) {
		x--
	}
	if r.Cells[x].IsSecond() && x > 0 {
		x--
	}
	p.goTo(y, x)
	p.paintRow(r, false)
}
