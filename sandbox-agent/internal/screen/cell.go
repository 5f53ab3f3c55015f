package screen

import "slices"

// A cell is one place of the grid. The zero cell is empty, one column wide and
// of default colours.
type cell struct {
	content uint32 // a code point, or a cluster's number; its width
	fg, bg  uint32 // colour, its mode, flags
	ext     uint32 // number of an extension, 0 for none
}

// Of cell.content. Code point 0 is that of an empty cell.
const (
	codeMask    = 1<<21 - 1 // a code point or, with clusterBit, a cluster's number
	clusterBit  = 1 << 21
	contentMask = codeMask | clusterBit
	// widthShift is where the width is, of which the lowest bit is inverted
	// so that an empty cell is all zeros.
	widthShift = 22

	narrow = 0
	second = 1 << widthShift // of width 0: the right half of a wide character
)

// Of cell.fg and cell.bg, and of an extension's underline colour.
const (
	colorMask   = 1<<24 - 1
	modeMask    = 3 << 24
	modeDefault = 0 << 24
	modeANSI    = 1 << 24 // one of 16
	modeIndexed = 2 << 24 // one of 256
	modeRGB     = 3 << 24
)

// Of cell.fg.
const (
	flagInverse = 1 << (26 + iota)
	flagBold
	flagUnderline
	flagBlink
	flagInvisible
	flagStrike
)

// Of cell.bg.
const (
	flagItalic    = 1 << 26
	flagDim       = 1 << 27
	flagExtended  = 1 << 28 // of a pen: its extension is in use
	flagProtected = 1 << 29
	flagOverline  = 1 << 30
)

func (c *cell) width() int { return int(c.content>>widthShift) ^ 1 }

func (c *cell) empty() bool { return c.content&contentMask == 0 }

// blank reports whether c shows nothing.
func (c *cell) blank() bool { return c.empty() || c.content == ' '|narrow }

// isSecond reports whether c is the right half of a wide character.
func (c *cell) isSecond() bool { return c.content == second }

// A row is one line of the grid. It may have more cells than the grid has
// columns: the alternate screen keeps what a narrower size hides.
type row struct {
	cells   []cell
	wrapped bool // continues the row above
	// clusters has, for each column that ever had one, the number of its last
	// cluster + 1. Like those of xterm.js it is only looked at when cells move
	// to another size, which may then put an old cluster in a new place.
	clusters []uint32
}

// reset makes r a row of cols cells like blank.
func (r *row) reset(cols int, blank cell, wrapped bool) {
	if cap(r.cells) < cols {
		r.cells = make([]cell, cols)
	}
	r.cells = r.cells[:cols]
	r.fill(blank)
	r.wrapped = wrapped
}

func (r *row) fill(blank cell) {
	r.clusters = r.clusters[:0]
	if blank == (cell{}) {
		clear(r.cells)
		return
	}
	for i := range r.cells {
		r.cells[i] = blank
	}
}

// fillUnprotected is fill for the cells that DECSCA doesn't protect.
func (r *row) fillUnprotected(blank cell) {
	for i := range r.cells {
		if r.cells[i].bg&flagProtected == 0 {
			r.cells[i] = blank
		}
	}
}

// halve empties the left half of a wide character, the right of which goes.
func (r *row) halve(x int, blank cell) {
	if x >= 0 && r.cells[x].width() == 2 {
		r.cells[x] = blank
	}
}

// insert shifts the cells from x on by n to the right.
func (r *row) insert(x, n int, blank cell) {
	x %= len(r.cells)
	r.halve(x-1, blank)
	n = min(n, len(r.cells)-x)
	copy(r.cells[x+n:], r.cells[x:])
	r.noteClusters(x + n)
	for i := range r.cells[x : x+n] {
		r.cells[x+i] = blank
	}
	r.halve(len(r.cells)-1, blank)
}

// remove shifts the cells behind x+n to x.
func (r *row) remove(x, n int, blank cell) {
	x %= len(r.cells)
	n = min(n, len(r.cells)-x)
	copy(r.cells[x:], r.cells[x+n:])
	r.noteClusters(x)
	for i := len(r.cells) - n; i < len(r.cells); i++ {
		r.cells[i] = blank
	}
	r.halve(x-1, blank)
	if r.cells[x].isSecond() {
		r.cells[x] = blank
	}
}

// erase empties the cells [x, end). With selective it leaves protected ones.
func (r *row) erase(x, end int, blank cell, selective bool) {
	open := func(i int) bool { return !selective || r.cells[i].bg&flagProtected == 0 }
	if x > 0 && x <= len(r.cells) && open(x-1) {
		r.halve(x-1, blank)
	}
	if end > 0 && end < len(r.cells) && r.cells[end-1].width() == 2 && open(end) {
		r.cells[end] = blank
	}
	for end = min(end, len(r.cells)); x < end; x++ {
		if open(x) {
			r.cells[x] = blank
		}
	}
}

// resize gives r cols cells; new ones are empty.
func (r *row) resize(cols int) {
	if cols == len(r.cells) {
		return
	}
	if cols < len(r.cells) {
		r.cells = r.cells[:cols]
		r.clusters = r.clusters[:min(cols, len(r.clusters))]
		return
	}
	n := len(r.cells)
	if cap(r.cells) < cols {
		cells := make([]cell, cols)
		copy(cells, r.cells)
		r.cells = cells
		return
	}
	r.cells = r.cells[:cols]
	clear(r.cells[n:])
}

// length returns the columns up to the last cell that holds a character.
func (r *row) length() int {
	for i := len(r.cells) - 1; i >= 0; i-- {
		if !r.cells[i].empty() {
			return i + r.cells[i].width()
		}
	}
	return 0
}

// before returns the column of the character that ends before column x, -1 if
// there is none.
func (r *row) before(x int) int {
	if x--; x >= 0 && r.cells[x].width() == 0 {
		x--
	}
	return x
}

// noteCluster notes that column x has cluster n.
func (r *row) noteCluster(x int, n uint32) {
	for len(r.clusters) <= x {
		r.clusters = append(r.clusters, 0)
	}
	r.clusters[x] = n + 1
}

// noteClusters notes the clusters from column x on, which were moved there.
func (r *row) noteClusters(x int) {
	if len(r.clusters) == 0 {
		return
	}
	for ; x < len(r.cells); x++ {
		if c := &r.cells[x]; c.content&clusterBit != 0 {
			r.noteCluster(x, c.content&codeMask)
		}
	}
}

// copyCells copies n cells as xterm.js does, which takes all clusters behind
// column fromX along.
func copyCells(to *row, x int, from *row, fromX, n int) {
	held := min(n, max(len(from.cells)-fromX, 0))
	copy(to.cells[x:], from.cells[fromX:fromX+held])
	for i := x + held; i < min(x+n, len(to.cells)); i++ {
		to.cells[i] = cell{content: second} // of a wide character that was cut
	}
	if len(from.clusters) <= fromX {
		return
	}
	known := from.clusters
	if to == from {
		known = slices.Clone(known)
	}
	for i := fromX; i < len(known); i++ {
		if known[i] != 0 {
			to.noteCluster(x+i-fromX, from.clusters[i]-1) // perhaps just overwritten
		}
	}
	for i := x; i < min(len(to.cells), len(to.clusters)); i++ {
		if c := &to.cells[i]; c.content&clusterBit != 0 {
			c.content = c.content&^codeMask | (to.clusters[i] - 1)
		}
	}
}
