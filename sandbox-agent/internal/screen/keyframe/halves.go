package keyframe

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// Halves of wide characters that stand alone. Inserting cells in the middle of
// one leaves a right half, a narrower size a left half.

// isOrphan reports whether a cell is a right half without a left one, and one
// that can be made again.
func isOrphan(r *grid.Row, x int) bool {
	return x >= 2 && r.Cells[x].IsSecond() && r.Cells[x-1].Width() != 2
}

// paintOrphans makes the orphans of a row, the rightmost first: each moves
// those behind it by a cell. It returns whether there are any.
func (p *painter) paintOrphans(r *grid.Row) bool {
	n := 0
	for x := max(p.x, 2); x < p.cols; x++ {
		if isOrphan(r, x) && x-n >= 2 {
			n++
		}
	}
	found := n > 0
	for x := p.cols - 1; n > 0; x-- {
		if !isOrphan(r, x) {
			continue
		}
		n--
		p.to(x - n - 2)
		p.use(p.grid.Exts.PenOf(&r.Cells[x]))
		p.put(blot)
		p.x += 2
		p.to(x - n - 1)
		p.use(grid.Pen{})
		p.csi("@", 1)
	}
	return found
}

// isWidow reports whether a cell is a left half without a right one, and one
// that can be made again.
func isWidow(r *grid.Row, x int) bool {
	if x+1 >= len(r.Cells) || r.Cells[x].Width() != 2 {
		return false
	}
	next := r.Cells[x]
	next.Content = 0
	return r.Cells[x+1] == next
}

// paintWidows makes the widows of a row at its end, where without wraparound a
// second wide character only ends the first, and moves them to the left. It
// returns whether there are any.
func (p *painter) paintWidows(r *grid.Row) bool {
	last := -1
	for x := p.x; x < p.cols-1; x++ {
		if !isWidow(r, x) {
			continue
		}
		if last < 0 {
			p.private(7, false)
		} else {
			p.shiftLeft(x - last)
		}
		p.to(p.cols - 2)
		p.use(p.grid.Exts.PenOf(&r.Cells[x]))
		p.join = 0
		p.print(&r.Cells[x])
		p.dst = append(p.dst, blot...)
		p.x = -1
		p.join = 0
		last = x
	}
	if last >= 0 {
		p.shiftLeft(p.cols - 2 - last)
		p.private(7, true)
	}
	return last >= 0
}

// shiftLeft moves the cells of the row by n.
func (p *painter) shiftLeft(n int) {
	p.use(grid.Pen{})
	p.to(0)
	if n > 0 {
		p.csi("P", n)
	}
}

// paintStale writes the clusters that xterm.js still knows of cells which hold
// something else: it may show them again when their row gets another size.
func (p *painter) paintStale(r *grid.Row, from int) {
	half := func(x int) bool { return x >= 0 && x < p.cols && (isOrphan(r, x) || isWidow(r, x)) }
	for x := from; x < min(len(r.Clusters), p.cols); x++ {
		if !r.Stale(x) || half(x-1) || half(x) || half(x+1) || half(x+2) {
			continue
		}
		c := grid.Cell{Content: grid.ClusterBit | (r.Clusters[x] - 1)}
		width := p.grid.Clusters.Width(c.Content)
		if x+width > p.cols {
			continue
		}
		c.Content |= uint32(width^1) << grid.WidthShift
		p.to(x)
		p.use(grid.Pen{})
		p.print(&c)
		p.marked[x], p.marked[x+width-1] = true, true
	}
}

// isSpecial reports whether a cell is empty but has a look that erasing
// doesn't give: what is left of a wide character.
func isSpecial(r *grid.Row, x int) bool {
	c := &r.Cells[x]
	return c.Empty() && c.Width() == 1 && (c.Fg != 0 || c.Ext != 0 || c.Bg&^(grid.ModeMask|grid.ColorMask) != 0)
}
