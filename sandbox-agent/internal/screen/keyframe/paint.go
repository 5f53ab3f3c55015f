package keyframe

import (
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

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
