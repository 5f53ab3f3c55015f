package screen

const (
	// maxHistoryRows and maxHistoryCells bound what is kept of the rows that
	// scrolled off the top.
	maxHistoryRows  = 1000
	maxHistoryCells = 64 << 10
	// viewerScrollback is how many such rows a viewer keeps. It matters to the
	// saved cursor, which moves with the text until as many are there.
	viewerScrollback = 10_000
)

// A buffer is one of the two screens, with what scrolled off its top.
//
// Rows are counted from the oldest that a viewer still has. The first lost of
// these are no longer here.
type buffer struct {
	cols, rows int
	scrollback int // rows above the screen that a viewer keeps
	limit      int // rows that a viewer keeps in all
	capacity   int // rows held at most

	ring  []row // at most as many as are held
	start int   // of the oldest row
	count int   // rows held; 0 while the alternate screen is not in use
	base  int   // held rows above the screen
	lost  int   // rows that only a viewer still has

	scrolled    int // rows that left the top of the screen and were not read yet
	x, y        int // x is cols when the next character wraps
	top, bottom int // margins, inclusive
	tabs        tabStops
	saved       savedCursor
}

// buffers are the two screens of a terminal.
type buffers struct {
	normal, alt *buffer
}

// eachRow visits all rows, in no order.
func (b *buffers) eachRow(visit func(*row)) {
	for _, b := range []*buffer{b.normal, b.alt} {
		for i := range b.count {
			visit(b.at(i))
		}
	}
}

// A savedCursor is what DECSC saves.
type savedCursor struct {
	x, y    int // y counts from the oldest row
	fg, bg  uint32
	charset charset
}

func newBuffer(cols, rows, scrollback int) *buffer {
	b := &buffer{cols: cols, rows: rows, scrollback: scrollback}
	b.clear()
	return b
}

// clear removes all rows. Only the saved cursor stays.
func (b *buffer) clear() {
	b.limit = b.rows + b.scrollback
	b.setCapacity()
	b.start, b.count, b.base, b.lost, b.scrolled = 0, 0, 0, 0, 0
	b.x, b.y = 0, 0
	b.top, b.bottom = 0, b.rows-1
	b.tabs = tabStops{}
	b.tabs.fill(0, b.cols)
}

// fillRows gives an empty buffer its rows.
func (b *buffer) fillRows(blank cell) {
	for b.count < b.rows {
		b.push().reset(b.cols, blank, false)
	}
	b.base = 0
}

func (b *buffer) setCapacity() {
	b.capacity = min(b.limit, b.rows+min(maxHistoryRows, maxHistoryCells/b.cols))
}

// at returns the held row i.
func (b *buffer) at(i int) *row {
	i += b.start
	if i >= len(b.ring) {
		i -= len(b.ring)
	}
	return &b.ring[i]
}

// line returns row y of the screen.
func (b *buffer) line(y int) *row { return b.at(b.base + y) }

// ringLine returns row y from the oldest that a viewer has, if that is held. In
// xterm.js the list of rows is a ring: behind the last it has come the oldest.
func (b *buffer) ringLine(y int) *row {
	if y >= b.limit {
		y -= b.limit
	}
	if y -= b.lost; y < 0 || y >= b.count {
		return nil
	}
	return b.at(y)
}

// push appends a row, for which the oldest may have to go, and returns it as
// it was. The screen stays where it is in the text.
func (b *buffer) push() *row {
	if b.count == b.capacity {
		b.drop(1)
	}
	if b.count == len(b.ring) {
		b.grow()
	}
	b.count++
	return b.at(b.count - 1)
}

// grow makes room in the ring.
func (b *buffer) grow() {
	ring := make([]row, min(max(2*len(b.ring), b.rows), b.capacity))
	for i := range b.count {
		ring[i] = *b.at(i)
	}
	b.ring, b.start = ring, 0
}

// drop forgets the n oldest held rows, which viewers may still have.
func (b *buffer) drop(n int) {
	b.start = (b.start + n) % len(b.ring)
	b.count -= n
	b.base = max(b.base-n, 0)
	b.lost += n
}

// scroll moves the rows between the margins up by one. What leaves the top of
// the screen becomes history.
func (b *buffer) scroll(blank cell, wrapped bool) {
	if b.top > 0 {
		b.rotate(b.top, b.bottom)
		b.line(b.bottom).reset(b.cols, blank, wrapped)
		return
	}
	full := b.lost+b.count >= b.limit
	held := b.lost
	b.push()
	b.scrolled++
	b.base = b.count - b.rows
	if full {
		b.lost = held
	}
	for y := b.rows - 1; y > b.bottom; y-- {
		above, below := b.line(y-1), b.line(y)
		*above, *below = *below, *above
	}
	b.line(b.bottom).reset(b.cols, blank, wrapped)
}

// rotate moves row top to bottom and those between up by one.
func (b *buffer) rotate(top, bottom int) {
	first := *b.line(top)
	for y := top; y < bottom; y++ {
		*b.line(y) = *b.line(y + 1)
	}
	*b.line(bottom) = first
}

// removeLines takes n rows out at y and adds as many at the lower margin.
func (b *buffer) removeLines(y, n int, blank cell) {
	for range min(n, b.bottom-y+1) {
		b.rotate(y, b.bottom)
		b.line(b.bottom).reset(b.cols, blank, false)
	}
}

// insertLines adds n rows at y, for which as many at the lower margin go.
func (b *buffer) insertLines(y, n int, blank cell) {
	for range min(n, b.bottom-y+1) {
		last := *b.line(b.bottom)
		for i := b.bottom; i > y; i-- {
			*b.line(i) = *b.line(i - 1)
		}
		*b.line(y) = last
		b.line(y).reset(b.cols, blank, false)
	}
}

// viewerBase returns how many rows a viewer has above the screen.
func (b *buffer) viewerBase() int { return b.lost + b.base }

// dropHistory forgets the rows above the screen.
func (b *buffer) dropHistory() {
	if b.base > 0 {
		b.start = (b.start + b.base) % len(b.ring)
		b.count -= b.base
	}
	b.base, b.lost = 0, 0
}

// tabStops are the columns of tab stops. There may be one beyond the last
// column, and some that a narrower size hides.
type tabStops [16]uint64

func (t *tabStops) has(x int) bool { return x >= 0 && x>>6 < len(t) && t[x>>6]>>(x&63)&1 == 1 }

func (t *tabStops) set(x int) {
	if x>>6 < len(t) {
		t[x>>6] |= 1 << (x & 63)
	}
}

func (t *tabStops) clear(x int) {
	if x>>6 < len(t) {
		t[x>>6] &^= 1 << (x & 63)
	}
}

// fill sets every eighth stop from x up to cols.
func (t *tabStops) fill(x, cols int) {
	for ; x < cols; x += 8 {
		t.set(x)
	}
}

// next returns the stop behind x, or the last column.
func (t *tabStops) next(x, cols int) int {
	x++
	for x < cols && !t.has(x) {
		x++
	}
	return max(min(x, cols-1), 0)
}

// previous returns the stop before x, or the first column.
func (t *tabStops) previous(x, cols int) int {
	x--
	for x > 0 && !t.has(x) {
		x--
	}
	return max(min(x, cols-1), 0)
}

// reset makes b like new, for which it keeps its memory.
func (b *buffer) reset(cols, rows int) {
	b.cols, b.rows = cols, rows
	b.saved = savedCursor{}
	b.clear()
}
