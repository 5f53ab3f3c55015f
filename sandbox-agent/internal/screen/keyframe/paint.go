package keyframe

import (
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

// A painter writes what makes the grid of a terminal equal to its own. The
// terminal is in its initial state but for what the painter knows of it.
type painter struct {
	grid   *grid.Grid // is only read
	dst    []byte
	pen    grid.Pen
	cols   int
	x      int        // of the cursor, cols when the next character wraps
	join   grid.Joint // of the character before
	early  bool       // the saved cursor is set, and was while the rows were written
	locked bool       // the saved cursor must stay

	savedRow int    // of those that are written, where it is set early; -1 for none
	marked   []bool // cells of the row in work that hold what doesn't belong there
}

// anyLink stands for a hyperlink whose address doesn't matter.
const anyLink = ^uint32(0)

// blot is a wide character that is to be overwritten.
const blot = "\u3000"

// control appends a control or sequence.
func (p *painter) control(seq string) {
	p.dst = append(p.dst, seq...)
	p.join = 0
}

// csi appends a control sequence, with its final and what is before that.
func (p *painter) csi(end string, params ...int) {
	p.control("\x1b[")
	for i, n := range params {
		if i > 0 {
			p.dst = append(p.dst, ';')
		}
		p.dst = grid.AppendInt(p.dst, n)
	}
	p.dst = append(p.dst, end...)
}

// put appends text that isn't to join what is before, and that doesn't matter.
func (p *painter) put(text string) {
	if p.join != 0 {
		p.control("\x1b\\")
	}
	p.dst = append(p.dst, text...)
}

// to moves the cursor within its row.
func (p *painter) to(x int) {
	switch {
	case x == p.x:
		return
	case x == 0:
		p.control("\r")
	default:
		p.csi("G", x+1)
	}
	p.x = x
}

// use makes the terminal's pen want. An irregular one takes the saved cursor.
func (p *painter) use(want grid.Pen) {
	if p.pen == want {
		return
	}
	if want.Regular() {
		p.useRegular(want)
		return
	}
	p.useRegular(restorable(want))
	if p.locked {
		return
	}
	p.control("\x1b7")
	p.early = false
	p.useRest(want)
	p.control("\x1b8")
	p.pen = want
}

// useRest makes the parts of the terminal's pen those of want that aren't
// saved with the cursor.
func (p *painter) useRest(want grid.Pen) {
	want.Fg, want.Bg = 0, 0
	if want.Underline != grid.UnderlineNone {
		want.Fg = grid.FlagUnderline
	}
	want.Extend()
	p.useRegular(want)
}

func (p *painter) useRegular(want grid.Pen) {
	if want.Link != p.pen.Link {
		p.openLink(want.Link)
		p.pen.Link = want.Link
		p.pen.Extend()
	}
	if p.pen == want {
		return
	}
	p.control("\x1b[")
	p.dst = append(want.AppendSGR(append(p.dst, '0')), 'm')
	if want.Bg&grid.FlagProtected != 0 {
		p.csi("\"q", 1)
	}
	p.pen = want
}

func (p *painter) openLink(n uint32) {
	p.control("\x1b]8;")
	switch {
	case n == anyLink:
		p.dst = append(p.dst, ";x"...)
	case n != 0:
		l := p.grid.Links.List[n]
		if l.ID != "" {
			p.dst = append(append(p.dst, "id="...), l.ID...)
		}
		p.dst = append(append(p.dst, ';'), l.URI...)
	default:
		p.dst = append(p.dst, ';')
	}
	p.dst = append(p.dst, '\a')
}

// print appends the text of a cell at the cursor.
func (p *painter) print(c *grid.Cell) {
	var buf [8]rune
	for i, r := range p.grid.Clusters.AppendRunes(buf[:0], c.Content) {
		next, joins := p.join.Follow(r)
		if joins != (i > 0) {
			if i > 0 {
				break // in a cell of its own it would be more than that
			}
			p.control("\x1b\\")
			next, _ = p.join.Follow(r)
		}
		p.dst = utf8.AppendRune(p.dst, r)
		p.join = next
	}
	p.x += c.Width()
}

// paint writes rows from the top of an empty screen on; more than it has
// scroll. If the first continues a row that is gone, so does what is written.
func (p *painter) paint(b *grid.Buffer, rows []*grid.Row) {
	height := b.Rows
	clear(p.marked)
	above := &grid.Row{}
	if rows[0].Wrapped {
		above = &grid.Row{Cells: make([]grid.Cell, p.cols)}
		above.Cells[p.cols-1].Content = ' ' | grid.Narrow
		p.paintRow(above, false)
	}
	for i, r := range rows {
		if len(above.Cells) > 0 {
			p.nextRow(above, r)
		}
		if rows[0].Wrapped && i == height-1 {
			p.csi("J", 3) // the row above the first has just scrolled off
		}
		p.paintRow(r, i < len(rows)-1 && (height > 1 || rows[i+1].Wrapped))
		if p.savedRow >= 0 && i == p.savedRow+height-1 {
			p.saveEarly(b)
		}
		above = r
	}
	p.use(grid.Pen{})
}

// nextRow moves the cursor from row above to the beginning of r.
func (p *painter) nextRow(above, r *grid.Row) {
	last := &above.Cells[p.cols-1]
	special := isSpecial(above, p.cols-1)
	switch {
	case special && (r.Wrapped || p.grid.Buf.Rows > 1), r.Wrapped && p.x < p.cols:
		// A wide character that finds no room leaves a cell of its look.
		p.to(p.cols - 1)
		p.use(p.grid.Exts.PenOf(last))
		p.put(blot)
		for x := range p.marked {
			p.marked[x] = x < 2 || last.Bg&grid.ModeMask != 0
		}
		if !r.Wrapped {
			p.control("\x1b[A\r\n")
			p.x = 0
			return
		}
	case !r.Wrapped:
		clear(p.marked)
		if p.pen.Bg&(grid.ModeMask|grid.ColorMask) != 0 {
			p.use(grid.Pen{})
		}
		p.control("\r\n")
		p.x = 0
		return
	default:
		clear(p.marked)
		if first := &r.Cells[0]; !r.Stale(0) && !first.Empty() && first.Width() == 1 && first.Bg&grid.ModeMask == 0 {
			if want := p.grid.Exts.PenOf(first); want.Regular() {
				p.use(want)
				p.x = 0
				p.print(first)
				return
			}
		}
		p.use(grid.Pen{})
		p.put(" ")
		p.marked[0] = true
	}
	p.control("\r")
	p.x = 0
}

// paintRow writes the cells of r from the cursor on. With open, nextRow makes
// the last one if it is special.
func (p *painter) paintRow(r *grid.Row, open bool) {
	from := p.x
	widows, orphans := p.paintWidows(r), p.paintOrphans(r)
	if widows || orphans {
		from = 0 // they went through the cells before
	}
	p.paintStale(r, from)
	for x := p.paintSpecial(r, from, open); x < p.cols; {
		c := &r.Cells[x]
		switch {
		case c.Width() > 0 && !c.Empty() && x+c.Width() <= p.cols && !isWidow(r, x):
			p.to(x)
			p.useOf(c)
			p.print(c)
			x += c.Width()
		case *c == grid.Cell{} && !p.marked[x], isSpecial(r, x), isOrphan(r, x), isWidow(r, x):
			x++
		default:
			x += p.paintBlank(r, x)
		}
	}
}

// paintBlank erases the cells from x on that are equally blank, and returns
// how many these are.
func (p *painter) paintBlank(r *grid.Row, x int) int {
	background := r.Cells[x].Bg & (grid.ModeMask | grid.ColorMask)
	n := 1
	for x+n < p.cols {
		c := &r.Cells[x+n]
		if !c.Empty() || c.Width() != 1 || isWidow(r, x+n) || c.Bg&(grid.ModeMask|grid.ColorMask) != background || isSpecial(r, x+n) || background == 0 && !p.marked[x+n] {
			break
		}
		n++
	}
	p.to(x)
	p.use(grid.Pen{Bg: background})
	p.csi("X", n)
	return n
}

// isSpecial reports whether a cell is empty but has a look that erasing
// doesn't give: what is left of a wide character.
func isSpecial(r *grid.Row, x int) bool {
	c := &r.Cells[x]
	return c.Empty() && c.Width() == 1 && (c.Fg != 0 || c.Ext != 0 || c.Bg&^(grid.ModeMask|grid.ColorMask) != 0)
}

// paintSpecial makes the special cells of a row by overwriting wide
// characters. It marks what it leaves beside them, and returns from where on
// cells are still to be written: from, or a little before.
func (p *painter) paintSpecial(r *grid.Row, from int, open bool) int {
	end := p.cols
	if isSpecial(r, end-1) {
		end--
	}
	for x := from; x < end; x++ {
		if !isSpecial(r, x) {
			continue
		}
		if !open && end < p.cols && allSpecial(r.Cells[x:p.cols]) && x > 0 {
			end = x
			break
		}
		p.to(x)
		p.use(p.grid.Exts.PenOf(&r.Cells[x]))
		p.put(blot)
		p.x += 2
		p.to(x + 1)
		p.put(" ")
		p.x++
		p.marked[x], p.marked[x+1] = false, true
	}
	if open {
		return from
	}
	// What is left of the right half doesn't touch the cells behind it.
	for x := p.cols - 1; x >= end; x-- {
		p.to(x - 1)
		p.use(p.grid.Exts.PenOf(&r.Cells[x]))
		p.put(blot)
		p.x += 2
		p.to(x - 1)
		p.put(" ")
		p.x++
		p.marked[x], p.marked[x-1] = false, true
		if from = min(from, x-1); r.Cells[from].IsSecond() && from > 0 {
			from--
		}
	}
	return from
}

func allSpecial(cells []grid.Cell) bool {
	r := grid.Row{Cells: cells}
	for x := range cells {
		if !isSpecial(&r, x) {
			return false
		}
	}
	return true
}

// useOf is use of the pen that c was written with.
func (p *painter) useOf(c *grid.Cell) {
	if c.Ext == 0 && c.Fg&grid.FlagUnderline == 0 && p.pen == (grid.Pen{Fg: c.Fg, Bg: c.Bg}) {
		return // most cells look like the one before
	}
	p.use(p.grid.Exts.PenOf(c))
}

// restorable returns a regular pen of which saving and restoring makes those
// parts of want.
func restorable(p grid.Pen) grid.Pen {
	p.Color, p.Underline = 0, grid.UnderlineNone
	switch {
	case p.Fg&grid.FlagUnderline != 0:
		p.Underline = grid.UnderlineSingle
	case p.Bg&grid.FlagExtended == 0:
		p.Link = 0
	case p.Link == 0:
		p.Link = anyLink
	}
	return p
}
