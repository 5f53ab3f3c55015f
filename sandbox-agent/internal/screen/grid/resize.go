package grid

// A resizing is a buffer on its way to a new size. Like a viewer it counts
// rows from the oldest that a viewer has.
type resizing struct {
	*Buffer
	lines   []Row // those held, behind the first lost
	base    int   // rows above the screen
	oldCols int
}

func (r *resizing) length() int { return r.Lost + len(r.lines) }

func (b *Buffer) resize(cols, rows int) {
	r := &resizing{Buffer: b, base: b.Lost + b.Base, oldCols: b.Cols}
	for i := range b.Count {
		r.lines = append(r.lines, *b.At(i))
	}
	oldRows := b.Rows
	b.Cols, b.Rows = cols, rows
	limit := rows + b.Scrollback
	b.Limit = max(b.Limit, limit)
	if b.Count > 0 {
		if r.oldCols < cols {
			r.resizeLines()
		}
		added := r.resizeRows(oldRows)
		r.trim(limit)
		b.Limit = limit
		b.X, b.Y = min(b.X, cols-1), min(b.Y, rows-1)+added
		b.Saved.X = min(b.Saved.X, cols-1)
		b.Top = 0
	}
	b.Bottom = rows - 1
	if b.Scrollback > 0 {
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
		r.lines[i].resize(r.Cols)
	}
}

// resizeRows adds or removes rows at the bottom, or moves the screen in the
// text. It returns by how much the cursor moves down.
func (r *resizing) resizeRows(oldRows int) (added int) {
	for y := oldRows; y < r.Rows; y++ {
		switch {
		case r.length() >= r.Rows+r.base:
		case r.base > 0 && r.length() <= r.base+r.Y+added+1:
			r.base--
			added++
		default:
			r.push()
		}
	}
	for y := oldRows; y > r.Rows; y-- {
		switch {
		case r.length() <= r.Rows+r.base:
		case r.length() > r.base+r.Y+1:
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
	if r.length() == r.Limit {
		if r.Lost > 0 {
			r.Lost--
		} else {
			r.lines = r.lines[1:]
		}
	}
	r.lines = append(r.lines, Row{Cells: make([]Cell, r.Cols)})
}

// trim drops the oldest rows of which a viewer has more than limit.
func (r *resizing) trim(limit int) {
	n := r.length() - limit
	if n <= 0 {
		return
	}
	lost := min(n, r.Lost)
	r.Lost -= lost
	r.lines = r.lines[n-lost:]
	r.base = max(r.base-n, 0)
	r.Saved.Y = max(r.Saved.Y-n, 0)
}

// finish makes the buffer of what has become of its rows.
func (r *resizing) finish() {
	b := r.Buffer
	b.SetCapacity()
	if len(r.lines) == 0 {
		return
	}
	if missing := b.Lost - r.base; missing > 0 {
		// The screen has moved up to rows that only viewers still have.
		lines := make([]Row, missing, missing+len(r.lines))
		for i := range lines {
			lines[i].Cells = make([]Cell, b.Cols)
		}
		r.lines = append(lines, r.lines...)
		b.Lost = r.base
	}
	b.ring, b.start, b.Count, b.Base = r.lines, 0, len(r.lines), r.base-b.Lost
	if b.Count > b.capacity {
		b.drop(b.Count - b.capacity)
	}
}
