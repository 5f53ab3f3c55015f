package screen

// Halves of wide characters that stand alone. Inserting cells in the middle of
// one leaves a right half, a narrower size a left half.

// isOrphan reports whether a cell is a right half without a left one, and one
// that can be made again.
func isOrphan(r *row, x int) bool {
	return x >= 2 && r.cells[x].isSecond() && r.cells[x-1].width() != 2
}

// paintOrphans makes the orphans of a row, the rightmost first: each moves
// those behind it by a cell. It returns whether there are any.
func (p *painter) paintOrphans(r *row) bool {
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
		p.use(p.exts.penOf(&r.cells[x]))
		p.put(blot)
		p.x += 2
		p.to(x - n - 1)
		p.use(pen{})
		p.csi("@", 1)
	}
	return found
}

// isWidow reports whether a cell is a left half without a right one, and one
// that can be made again.
func isWidow(r *row, x int) bool {
	if x+1 >= len(r.cells) || r.cells[x].width() != 2 {
		return false
	}
	next := r.cells[x]
	next.content = 0
	return r.cells[x+1] == next
}

// paintWidows makes the widows of a row at its end, where without wraparound a
// second wide character only ends the first, and moves them to the left. It
// returns whether there are any.
func (p *painter) paintWidows(r *row) bool {
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
		p.use(p.exts.penOf(&r.cells[x]))
		p.join = 0
		p.print(&r.cells[x])
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
	p.use(pen{})
	p.to(0)
	if n > 0 {
		p.csi("P", n)
	}
}
