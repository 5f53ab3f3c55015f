package grid

// A group is the rows of one line of text. What lies behind the text in the
// last of them, or before a wide character that had no room, is no part of it.
type group []*Row

// length returns the cells of text in row i, of cols columns.
func (g group) length(i, cols int) int {
	if i == len(g)-1 {
		return g[i].Length()
	}
	if last := &g[i].Cells[cols-1]; last.Empty() && last.Width() == 1 && g[i+1].Cells[0].Width() == 2 {
		return cols - 1
	}
	return cols
}

// reflowWider joins rows that wrapped to the wider ones they now fit.
func (r *resizing) reflowWider() {
	cursor := r.base + r.Y - r.Lost
	kept := r.lines[:0:0]
	for y := 0; y < len(r.lines); {
		end := y + 1
		for end < len(r.lines) && r.lines[end].Wrapped {
			end++
		}
		n := end - y
		if n > 1 && (cursor < y || cursor >= end) {
			n = newGroup(r.lines[y:end]).widen(r.oldCols, r.Cols)
		}
		kept = append(kept, r.lines[y:y+n]...)
		y = end
	}
	removed := len(r.lines) - len(kept)
	r.lines = kept
	if removed == 0 {
		return
	}
	for range removed {
		if r.base > 0 {
			r.base--
			continue
		}
		r.Y = max(r.Y-1, 0)
		if r.length() < r.Rows {
			r.push()
		}
	}
	r.Saved.Y = max(r.Saved.Y-removed, 0)
}

func newGroup(lines []Row) group {
	g := make(group, 0, len(lines))
	for i := range lines {
		g = append(g, &lines[i])
	}
	return g
}

// widen moves the text of g together and returns how many rows it needs.
func (g group) widen(oldCols, cols int) int {
	to, x := 0, g.length(0, oldCols)
	from, fromX := 1, 0
	for from < len(g) {
		length := g.length(from, oldCols)
		n := min(length-fromX, cols-x)
		copyCells(g[to], x, g[from], fromX, n)
		if x += n; x == cols {
			to, x = to+1, 0
		}
		if fromX += n; fromX == length {
			from, fromX = from+1, 0
		}
		if x == 0 && to > 0 && g[to-1].Cells[cols-1].Width() == 2 {
			copyCells(g[to], 0, g[to-1], cols-1, 1)
			g[to-1].Cells[cols-1] = Cell{}
			x = 1
		}
	}
	if to < len(g) {
		g[to].Erase(x, cols, Cell{}, false)
	}
	rows := len(g)
	for rows > 1 && (rows-1 > to || g[rows-1].Length() == 0) {
		rows--
	}
	return rows
}

// An insertion is rows that text needs which takes more than before.
type insertion struct {
	before int // row, as if those that come later in the text were inserted
	rows   []Row
}

// reflowNarrower spreads rows that don't fit any more.
func (r *resizing) reflowNarrower() {
	var insertions []insertion
	inserted := 0
	lines := r.lines // with those at the end for which there will be no room
	for y := len(lines) - 1; y >= 0; y-- {
		if !lines[y].Wrapped && lines[y].Length() <= r.Cols {
			continue
		}
		end := y + 1
		for y > 0 && lines[y].Wrapped {
			y--
		}
		if cursor := r.base + r.Y - r.Lost; cursor >= y && cursor < end {
			continue // the program will see to the line it is in
		}
		g := newGroup(lines[y:end])
		lengths := g.narrowLengths(r.oldCols, r.Cols)
		more := len(lengths) - len(g)
		kept := r.length()
		if r.base == 0 && r.Y != r.length()-1 {
			kept = r.Y // the screen isn't full
		}
		trimmed := max(0, kept-r.Limit+more)
		rows := make([]Row, max(more, 0))
		for i := range rows {
			rows[i] = Row{Cells: make([]Cell, r.Cols), Wrapped: true}
		}
		if more > 0 {
			insertions = append(insertions, insertion{end + inserted, rows})
			inserted += more
		}
		g.narrow(rows, lengths, r.oldCols, r.Cols)
		r.makeRoom(more-trimmed, inserted)
		r.Saved.Y = min(r.Saved.Y+more, r.base+r.Rows-1)
	}
	r.insert(insertions, inserted)
}

// makeRoom moves the screen for n rows more.
func (r *resizing) makeRoom(n, inserted int) {
	for range max(n, 0) {
		switch {
		case r.base > 0:
			if r.base < min(r.Limit, r.length()+inserted)-r.Rows {
				r.base++
			}
		case r.Y < r.Rows-1:
			r.Y++
			r.lines = r.lines[:len(r.lines)-1]
		default:
			r.base++
		}
	}
}

// insert carries out insertions, the last of which comes first in the text.
func (r *resizing) insert(insertions []insertion, inserted int) {
	if len(insertions) == 0 {
		return
	}
	lines := make([]Row, len(r.lines)+inserted)
	old, done := len(r.lines)-1, 0
	for i := len(lines) - 1; i >= 0; i-- {
		if len(insertions) > 0 && insertions[0].before > old+done {
			rows := insertions[0].rows
			i -= len(rows) - 1
			copy(lines[i:], rows)
			done += len(rows)
			insertions = insertions[1:]
			continue
		}
		lines[i] = r.lines[old]
		old--
	}
	r.lines = lines
	if over := r.length() - r.Limit; over > 0 {
		lost := min(over, r.Lost)
		r.Lost -= lost
		r.lines = r.lines[over-lost:]
	}
}

// narrowLengths returns how many cells of text each row of cols columns gets.
func (g group) narrowLengths(oldCols, cols int) []int {
	need := 0
	for i := range g {
		need += g.length(i, oldCols)
	}
	var lengths []int
	x, from := 0, 0
	for have := 0; have < need; {
		if need-have < cols {
			return append(lengths, need-have)
		}
		x += cols
		if length := g.length(from, oldCols); x > length {
			x -= length
			from++
		}
		n := cols
		if from < len(g) && g[from].isWide(x-1) {
			x--
			n--
		}
		lengths = append(lengths, n)
		have += n
	}
	return lengths
}

// isWide reports whether a wide character begins at column x, if there is one.
func (r *Row) isWide(x int) bool { return x >= 0 && x < len(r.Cells) && r.Cells[x].Width() == 2 }

// narrow moves the text of g, from its end, to rows of the given lengths.
func (g group) narrow(more []Row, lengths []int, oldCols, cols int) {
	from := len(g) - 1
	fromX := g[from].Length()
	for i := range more {
		g = append(g, &more[i])
	}
	to := len(lengths) - 1
	for to >= 0 && lengths[to] == 0 {
		to--
	}
	for x := 0; from >= 0 && to >= 0; {
		if x == 0 {
			x = lengths[to]
		}
		n := min(fromX, x)
		if x -= n; to < len(g) {
			copyCells(g[to], x, g[from], fromX-n, n)
		}
		if x == 0 {
			to--
		}
		if fromX -= n; fromX == 0 {
			from--
			fromX = g.length(max(from, 0), oldCols)
		}
	}
	for i, n := range lengths {
		if i < len(g) && n < cols {
			g[i].Cells[n] = Cell{}
		}
	}
}
