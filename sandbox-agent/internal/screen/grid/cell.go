package grid

import "slices"

// A Cell is one place of the grid. The zero cell is empty, one column wide and
// of default colours.
type Cell struct {
	Content uint32 // a code point, or a cluster's number; its width
	Fg, Bg  uint32 // colour, its mode, flags
	Ext     uint32 // number of an extension, 0 for none
}

// Of Cell.Content. Code point 0 is that of an empty cell.
const (
	codeMask    = 1<<21 - 1 // a code point or, with ClusterBit, a cluster's number
	ClusterBit  = 1 << 21
	contentMask = codeMask | ClusterBit
	// WidthShift is where the width is, of which the lowest bit is inverted
	// so that an empty cell is all zeros.
	WidthShift = 22

	Narrow = 0
	second = 1 << WidthShift // of width 0: the right half of a wide character
)

// Of Cell.Fg and Cell.Bg, and of an extension's underline colour.
const (
	ColorMask   = 1<<24 - 1
	ModeMask    = 3 << 24
	modeDefault = 0 << 24
	ModeANSI    = 1 << 24 // one of 16
	ModeIndexed = 2 << 24 // one of 256
	ModeRGB     = 3 << 24
)

// Of Cell.Fg.
const (
	FlagInverse = 1 << (26 + iota)
	FlagBold
	FlagUnderline
	FlagBlink
	FlagInvisible
	FlagStrike
)

// Of Cell.Bg.
const (
	FlagItalic    = 1 << 26
	FlagDim       = 1 << 27
	FlagExtended  = 1 << 28 // of a pen: its extension is in use
	FlagProtected = 1 << 29
	FlagOverline  = 1 << 30
)

// Width returns the columns that c takes: 1, 2, or 0 for the right half of a wide
// character.
func (c *Cell) Width() int { return int(c.Content>>WidthShift) ^ 1 }

// Empty reports whether c holds no character.
func (c *Cell) Empty() bool { return c.Content&contentMask == 0 }

// blank reports whether c shows nothing.
func (c *Cell) blank() bool { return c.Empty() || c.Content == ' '|Narrow }

// IsSecond reports whether c is the right half of a wide character.
func (c *Cell) IsSecond() bool { return c.Content == second }

// A Row is one line of the grid. It may have more cells than the grid has
// columns: the alternate screen keeps what a narrower size hides.
type Row struct {
	Cells   []Cell
	Wrapped bool // continues the row above
	// Clusters has, for each column that ever had one, the number of its last
	// cluster + 1. Like those of xterm.js it is only looked at when cells move
	// to another size, which may then put an old cluster in a new place.
	Clusters []uint32
}

// reset makes r a row of cols cells like blank.
func (r *Row) reset(cols int, blank Cell, wrapped bool) {
	if cap(r.Cells) < cols {
		r.Cells = make([]Cell, cols)
	}
	r.Cells = r.Cells[:cols]
	r.fill(blank)
	r.Wrapped = wrapped
}

func (r *Row) fill(blank Cell) {
	r.Clusters = r.Clusters[:0]
	if blank == (Cell{}) {
		clear(r.Cells)
		return
	}
	for i := range r.Cells {
		r.Cells[i] = blank
	}
}

// fillUnprotected is fill for the cells that DECSCA doesn't protect.
func (r *Row) fillUnprotected(blank Cell) {
	for i := range r.Cells {
		if r.Cells[i].Bg&FlagProtected == 0 {
			r.Cells[i] = blank
		}
	}
}

// halve empties the left half of a wide character, the right of which goes.
func (r *Row) halve(x int, blank Cell) {
	if x >= 0 && r.Cells[x].Width() == 2 {
		r.Cells[x] = blank
	}
}

// Insert shifts the cells from x on by n to the right.
func (r *Row) Insert(x, n int, blank Cell) {
	x %= len(r.Cells)
	r.halve(x-1, blank)
	n = min(n, len(r.Cells)-x)
	copy(r.Cells[x+n:], r.Cells[x:])
	r.noteClusters(x + n)
	for i := range r.Cells[x : x+n] {
		r.Cells[x+i] = blank
	}
	r.halve(len(r.Cells)-1, blank)
}

// Remove shifts the cells behind x+n to x.
func (r *Row) Remove(x, n int, blank Cell) {
	x %= len(r.Cells)
	n = min(n, len(r.Cells)-x)
	copy(r.Cells[x:], r.Cells[x+n:])
	r.noteClusters(x)
	for i := len(r.Cells) - n; i < len(r.Cells); i++ {
		r.Cells[i] = blank
	}
	r.halve(x-1, blank)
	if r.Cells[x].IsSecond() {
		r.Cells[x] = blank
	}
}

// Erase empties the cells [x, end). With selective it leaves protected ones.
func (r *Row) Erase(x, end int, blank Cell, selective bool) {
	open := func(i int) bool { return !selective || r.Cells[i].Bg&FlagProtected == 0 }
	if x > 0 && x <= len(r.Cells) && open(x-1) {
		r.halve(x-1, blank)
	}
	if end > 0 && end < len(r.Cells) && r.Cells[end-1].Width() == 2 && open(end) {
		r.Cells[end] = blank
	}
	for end = min(end, len(r.Cells)); x < end; x++ {
		if open(x) {
			r.Cells[x] = blank
		}
	}
}

// resize gives r cols cells; new ones are empty.
func (r *Row) resize(cols int) {
	if cols == len(r.Cells) {
		return
	}
	if cols < len(r.Cells) {
		r.Cells = r.Cells[:cols]
		r.Clusters = r.Clusters[:min(cols, len(r.Clusters))]
		return
	}
	n := len(r.Cells)
	if cap(r.Cells) < cols {
		cells := make([]Cell, cols)
		copy(cells, r.Cells)
		r.Cells = cells
		return
	}
	r.Cells = r.Cells[:cols]
	clear(r.Cells[n:])
}

// Length returns the columns up to the last cell that holds a character.
func (r *Row) Length() int {
	for i := len(r.Cells) - 1; i >= 0; i-- {
		if !r.Cells[i].Empty() {
			return i + r.Cells[i].Width()
		}
	}
	return 0
}

// before returns the column of the character that ends before column x, -1 if
// there is none.
func (r *Row) before(x int) int {
	if x--; x >= 0 && r.Cells[x].Width() == 0 {
		x--
	}
	return x
}

// noteCluster notes that column x has cluster n.
func (r *Row) noteCluster(x int, n uint32) {
	for len(r.Clusters) <= x {
		r.Clusters = append(r.Clusters, 0)
	}
	r.Clusters[x] = n + 1
}

// noteClusters notes the clusters from column x on, which were moved there.
func (r *Row) noteClusters(x int) {
	if len(r.Clusters) == 0 {
		return
	}
	for ; x < len(r.Cells); x++ {
		if c := &r.Cells[x]; c.Content&ClusterBit != 0 {
			r.noteCluster(x, c.Content&codeMask)
		}
	}
}

// copyCells copies n cells as xterm.js does, which takes all clusters behind
// column fromX along.
func copyCells(to *Row, x int, from *Row, fromX, n int) {
	held := min(n, max(len(from.Cells)-fromX, 0))
	copy(to.Cells[x:], from.Cells[fromX:fromX+held])
	for i := x + held; i < min(x+n, len(to.Cells)); i++ {
		to.Cells[i] = Cell{Content: second} // of a wide character that was cut
	}
	if len(from.Clusters) <= fromX {
		return
	}
	known := from.Clusters
	if to == from {
		known = slices.Clone(known)
	}
	for i := fromX; i < len(known); i++ {
		if known[i] != 0 {
			to.noteCluster(x+i-fromX, from.Clusters[i]-1) // perhaps just overwritten
		}
	}
	for i := x; i < min(len(to.Cells), len(to.Clusters)); i++ {
		if c := &to.Cells[i]; c.Content&ClusterBit != 0 {
			c.Content = c.Content&^codeMask | (to.Clusters[i] - 1)
		}
	}
}

// Stale reports whether column x had a cluster and has none now.
func (r *Row) Stale(x int) bool {
	return x < len(r.Clusters) && r.Clusters[x] != 0 && r.Cells[x].Content&ClusterBit == 0
}

// masked is the cell that stands for one that was masked, but for its look.
const masked = '*' | Narrow

// mask puts an asterisk in the place of the character at column x, in both
// columns of a wide one.
func (r *Row) mask(x int) {
	wide := r.Cells[x].Width() == 2
	r.Cells[x].Content = masked
	if wide && x+1 < len(r.Cells) {
		r.Cells[x+1].Content = masked
	}
}

// full reports whether there is a character in the last of cols columns.
func (r *Row) full(cols int) bool {
	last := &r.Cells[cols-1]
	return !last.Empty() || last.IsSecond()
}

// A TextPlace says which cell a byte of a screen's text is of.
type TextPlace struct {
	row *Row // nil: the end of a line
	y   int  // counted from the top of the screen
	x   int
}
