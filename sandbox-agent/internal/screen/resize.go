package screen

// Resize changes the size as xterm.js does: rows of the normal screen that
// wrapped flow again, those of the alternate screen don't.
func (s *Screen) Resize(cols, rows int) {
	s.inRun = false // what comes next is another write
	if c, r := s.Size(); c == cols && r == rows {
		return
	}
	s.tangle()
	cols, rows = clampSize(cols, rows)
	s.normal.resize(cols, rows)
	s.alt.resize(cols, rows)
	for _, b := range []*buffer{s.normal, s.alt} {
		from := cols
		if !b.tabs.has(cols) {
			from = b.tabs.previous(cols, cols)
		}
		b.tabs.fill(from, cols)
	}
}

// A resizing is a buffer on its way to a new size. Like a viewer it counts
// rows from the oldest that a viewer has.
type resizing struct {
	*buffer
	lines   []row // those held, behind the first lost
	base    int   // rows above the screen
	oldCols int
}

func (r *resizing) length() int { return r.lost + len(r.lines) }

func (b *buffer) resize(cols, rows int) {
	r := &resizing{buffer: b, base: b.lost + b.base, oldCols: b.cols}
	for i := range b.count {
		r.lines = append(r.lines, *b.at(i))
	}
	oldRows := b.rows
	b.cols, b.rows = cols, rows
	limit := rows + b.scrollback
	b.limit = max(b.limit, limit)
	if b.count > 0 {
		if r.oldCols < cols {
			r.resizeLines()
		}
		added := r.resizeRows(oldRows)
		r.trim(limit)
		b.limit = limit
		b.x, b.y = min(b.x, cols-1), min(b.y, rows-1)+added
		b.saved.x = min(b.saved.x, cols-1)
		b.top = 0
	}
	b.bottom = rows - 1
	if b.scrollback > 0 {
		switch {
		case r.oldCols < cols:
			r.reflowWider()
		case r.oldCols > cols:
			r.reflowNarrower()
			r.resizeLines()
		}
	}
	r.finish()
}

func (r *resizing) resizeLines() {
	for i := range r.lines {
		r.lines[i].resize(r.cols)
	}
}

// resizeRows adds or removes rows at the bottom, or moves the screen in the
// text. It returns by how much the cursor moves down.
func (r *resizing) resizeRows(oldRows int) (added int) {
	for y := oldRows; y < r.rows; y++ {
		switch {
		case r.length() >= r.rows+r.base:
		case r.base > 0 && r.length() <= r.base+r.y+added+1:
			r.base--
			added++
		default:
			r.push()
		}
	}
	for y := oldRows; y > r.rows; y-- {
		switch {
		case r.length() <= r.rows+r.base:
		case r.length() > r.base+r.y+1:
			r.lines = r.lines[:len(r.lines)-1]
		default:
			r.base++
		}
	}
	return added
}

// push adds a row at the bottom. If a viewer keeps no more it forgets the
// oldest, but leaves the screen where it is.
func (r *resizing) push() {
	if r.length() == r.limit {
		if r.lost > 0 {
			r.lost--
		} else {
			r.lines = r.lines[1:]
		}
	}
	r.lines = append(r.lines, row{cells: make([]cell, r.cols)})
}

// trim drops the oldest rows of which a viewer has more than limit.
func (r *resizing) trim(limit int) {
	n := r.length() - limit
	if n <= 0 {
		return
	}
	lost := min(n, r.lost)
	r.lost -= lost
	r.lines = r.lines[n-lost:]
	r.base = max(r.base-n, 0)
	r.saved.y = max(r.saved.y-n, 0)
}

// finish makes the buffer of what has become of its rows.
func (r *resizing) finish() {
	b := r.buffer
	b.setCapacity()
	if len(r.lines) == 0 {
		return
	}
	if missing := b.lost - r.base; missing > 0 {
		// The screen has moved up to rows that only viewers still have.
		lines := make([]row, missing, missing+len(r.lines))
		for i := range lines {
			lines[i].cells = make([]cell, b.cols)
		}
		r.lines = append(lines, r.lines...)
		b.lost = r.base
	}
	b.ring, b.start, b.count, b.base = r.lines, 0, len(r.lines), r.base-b.lost
	if b.count > b.capacity {
		b.drop(b.count - b.capacity)
	}
}
