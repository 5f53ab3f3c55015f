package screen

import "unicode/utf8"

// A painter writes what makes a terminal's grid another. The terminal
// is in its initial state but for what the painter knows of it.
type painter struct {
	*grid
	dst    []byte
	pen    pen
	cols   int
	x      int   // of the cursor, cols when the next character wraps
	join   joint // of the character before
	early  bool  // the saved cursor is set, and was while the rows were written
	locked bool  // the saved cursor must stay

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
		p.dst = appendInt(p.dst, n)
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

// penOf returns the pen that c was written with.
func (t *extTable) penOf(c *cell) pen {
	e := t.of(c)
	p := pen{fg: c.fg, bg: c.bg, underline: e.underline, color: e.color, link: e.link}
	if c.ext != 0 || c.fg&flagUnderline != 0 {
		p.bg |= flagExtended
	}
	return p
}

// regular reports whether SGR and OSC 8 alone make such a pen. Others come of
// restoring the cursor, which restores only a part.
func (p *pen) regular() bool {
	return (p.fg&flagUnderline != 0) == (p.underline != underlineNone) &&
		(p.bg&flagExtended != 0) == (p.underline != underlineNone || p.link != 0)
}

// use makes the terminal's pen want. An irregular one takes the saved cursor.
func (p *painter) use(want pen) {
	if p.pen == want {
		return
	}
	if want.regular() {
		p.useRegular(want)
		return
	}
	p.useRegular(want.restorable())
	if p.locked {
		return
	}
	p.control("\x1b7")
	p.early = false
	p.useRest(want)
	p.control("\x1b8")
	p.pen = want
}

// restorable returns a regular pen of which saving and restoring makes those
// parts of want.
func (p pen) restorable() pen {
	p.color, p.underline = 0, underlineNone
	switch {
	case p.fg&flagUnderline != 0:
		p.underline = underlineSingle
	case p.bg&flagExtended == 0:
		p.link = 0
	case p.link == 0:
		p.link = anyLink
	}
	return p
}

// useRest makes the parts of the terminal's pen those of want that aren't
// saved with the cursor.
func (p *painter) useRest(want pen) {
	want.fg, want.bg = 0, 0
	if want.underline != underlineNone {
		want.fg = flagUnderline
	}
	want.extend()
	p.useRegular(want)
}

func (p *painter) useRegular(want pen) {
	if want.link != p.pen.link {
		p.openLink(want.link)
		p.pen.link = want.link
		p.pen.extend()
	}
	if p.pen == want {
		return
	}
	p.control("\x1b[")
	p.dst = append(want.appendSGR(append(p.dst, '0')), 'm')
	if want.bg&flagProtected != 0 {
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
		l := p.links.list[n]
		if l.id != "" {
			p.dst = append(append(p.dst, "id="...), l.id...)
		}
		p.dst = append(append(p.dst, ';'), l.uri...)
	default:
		p.dst = append(p.dst, ';')
	}
	p.dst = append(p.dst, bel)
}

// print appends the text of a cell at the cursor.
func (p *painter) print(c *cell) {
	var buf [8]rune
	for i, r := range p.clusters.appendRunes(buf[:0], c.content) {
		next, joins := p.join.follow(r)
		if joins != (i > 0) {
			if i > 0 {
				break // in a cell of its own it would be more than that
			}
			p.control("\x1b\\")
			next, _ = p.join.follow(r)
		}
		p.dst = utf8.AppendRune(p.dst, r)
		p.join = next
	}
	p.x += c.width()
}

// paint writes rows from the top of an empty screen on; more than it has
// scroll. If the first continues a row that is gone, so does what is written.
func (p *painter) paint(b *buffer, rows []*row) {
	height := b.rows
	clear(p.marked)
	above := &row{}
	if rows[0].wrapped {
		above = &row{cells: make([]cell, p.cols)}
		above.cells[p.cols-1].content = ' ' | narrow
		p.paintRow(above, false)
	}
	for i, r := range rows {
		if len(above.cells) > 0 {
			p.nextRow(above, r)
		}
		if rows[0].wrapped && i == height-1 {
			p.csi("J", 3) // the row above the first has just scrolled off
		}
		p.paintRow(r, i < len(rows)-1 && (height > 1 || rows[i+1].wrapped))
		if p.savedRow >= 0 && i == p.savedRow+height-1 {
			p.saveEarly(b)
		}
		above = r
	}
	p.use(pen{})
}

// nextRow moves the cursor from row above to the beginning of r.
func (p *painter) nextRow(above, r *row) {
	last := &above.cells[p.cols-1]
	special := isSpecial(above, p.cols-1)
	switch {
	case special && (r.wrapped || p.buf.rows > 1), r.wrapped && p.x < p.cols:
		// A wide character that finds no room leaves a cell of its look.
		p.to(p.cols - 1)
		p.use(p.exts.penOf(last))
		p.put(blot)
		for x := range p.marked {
			p.marked[x] = x < 2 || last.bg&modeMask != 0
		}
		if !r.wrapped {
			p.control("\x1b[A\r\n")
			p.x = 0
			return
		}
	case !r.wrapped:
		clear(p.marked)
		if p.pen.bg&(modeMask|colorMask) != 0 {
			p.use(pen{})
		}
		p.control("\r\n")
		p.x = 0
		return
	default:
		clear(p.marked)
		if first := &r.cells[0]; !r.stale(0) && !first.empty() && first.width() == 1 && first.bg&modeMask == 0 {
			if want := p.exts.penOf(first); want.regular() {
				p.use(want)
				p.x = 0
				p.print(first)
				return
			}
		}
		p.use(pen{})
		p.put(" ")
		p.marked[0] = true
	}
	p.control("\r")
	p.x = 0
}

// paintRow writes the cells of r from the cursor on. With open, nextRow makes
// the last one if it is special.
func (p *painter) paintRow(r *row, open bool) {
	from := p.x
	widows, orphans := p.paintWidows(r), p.paintOrphans(r)
	if widows || orphans {
		from = 0 // they went through the cells before
	}
	p.paintStale(r, from)
	for x := p.paintSpecial(r, from, open); x < p.cols; {
		c := &r.cells[x]
		switch {
		case c.width() > 0 && !c.empty() && x+c.width() <= p.cols && !isWidow(r, x):
			p.to(x)
			p.use(p.exts.penOf(c))
			p.print(c)
			x += c.width()
		case *c == cell{} && !p.marked[x], isSpecial(r, x), isOrphan(r, x), isWidow(r, x):
			x++
		default:
			x += p.paintBlank(r, x)
		}
	}
}

// paintBlank erases the cells from x on that are equally blank, and returns
// how many these are.
func (p *painter) paintBlank(r *row, x int) int {
	background := r.cells[x].bg & (modeMask | colorMask)
	n := 1
	for x+n < p.cols {
		c := &r.cells[x+n]
		if !c.empty() || c.width() != 1 || isWidow(r, x+n) || c.bg&(modeMask|colorMask) != background || isSpecial(r, x+n) || background == 0 && !p.marked[x+n] {
			break
		}
		n++
	}
	p.to(x)
	p.use(pen{bg: background})
	p.csi("X", n)
	return n
}

// isSpecial reports whether a cell is empty but has a look that erasing
// doesn't give: what is left of a wide character.
func isSpecial(r *row, x int) bool {
	c := &r.cells[x]
	return c.empty() && c.width() == 1 && (c.fg != 0 || c.ext != 0 || c.bg&^(modeMask|colorMask) != 0)
}

// paintSpecial makes the special cells of a row by overwriting wide
// characters. It marks what it leaves beside them, and returns from where on
// cells are still to be written: from, or a little before.
func (p *painter) paintSpecial(r *row, from int, open bool) int {
	end := p.cols
	if isSpecial(r, end-1) {
		end--
	}
	for x := from; x < end; x++ {
		if !isSpecial(r, x) {
			continue
		}
		if !open && end < p.cols && allSpecial(r.cells[x:p.cols]) && x > 0 {
			end = x
			break
		}
		p.to(x)
		p.use(p.exts.penOf(&r.cells[x]))
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
		p.use(p.exts.penOf(&r.cells[x]))
		p.put(blot)
		p.x += 2
		p.to(x - 1)
		p.put(" ")
		p.x++
		p.marked[x], p.marked[x-1] = false, true
		if from = min(from, x-1); r.cells[from].isSecond() && from > 0 {
			from--
		}
	}
	return from
}

func allSpecial(cells []cell) bool {
	r := row{cells: cells}
	for x := range cells {
		if !isSpecial(&r, x) {
			return false
		}
	}
	return true
}
