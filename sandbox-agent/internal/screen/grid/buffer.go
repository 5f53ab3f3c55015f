package grid

import (
	"reflect"
	"slices"
)

const (
	// MaxHistoryRows and maxHistoryCells bound what is kept of the rows that
	// scrolled off the top.
	MaxHistoryRows  = 1000
	maxHistoryCells = 64 << 10
	// viewerScrollback is how many such rows a viewer keeps. It matters to the
	// saved cursor, which moves with the text until as many are there.
	viewerScrollback = 10_000
)

// A Buffer is one of the two screens, with what scrolled off its top.
//
// Rows are counted from the oldest that a viewer still has. The first lost of
// these are no longer here.
type Buffer struct {
	Cols, Rows int
	Scrollback int // rows above the screen that a viewer keeps
	Limit      int // rows that a viewer keeps in all
	capacity   int // rows held at most

	ring  []Row // at most as many as are held
	start int   // of the oldest row
	Count int   // rows held; 0 while the alternate screen is not in use
	Base  int   // held rows above the screen
	Lost  int   // rows that only a viewer still has

	scrolled    int // rows that left the top of the screen and were not read yet
	X, Y        int // X is Cols when the next character wraps
	Top, Bottom int // margins, inclusive
	Tabs        TabStops
	Saved       SavedCursor
}

// buffers are the two screens of a terminal.
type buffers struct {
	Normal, Alt *Buffer
}

// eachRow visits all rows, in no order.
func (b *buffers) eachRow(visit func(*Row)) {
	for _, b := range []*Buffer{b.Normal, b.Alt} {
		for i := range b.Count {
			visit(b.At(i))
		}
	}
}

// A SavedCursor is what DECSC saves.
type SavedCursor struct {
	X, Y    int // y counts from the oldest row
	Fg, Bg  uint32
	Charset Charset
}

func newBuffer(cols, rows, scrollback int) *Buffer {
	b := &Buffer{Cols: cols, Rows: rows, Scrollback: scrollback}
	b.clear()
	return b
}

// clear removes all rows. Only the saved cursor stays.
func (b *Buffer) clear() {
	b.Limit = b.Rows + b.Scrollback
	b.SetCapacity()
	b.start, b.Count, b.Base, b.Lost, b.scrolled = 0, 0, 0, 0, 0
	b.X, b.Y = 0, 0
	b.Top, b.Bottom = 0, b.Rows-1
	b.Tabs = TabStops{}
	b.Tabs.Fill(0, b.Cols)
}

// fillRows gives an empty buffer its rows.
func (b *Buffer) fillRows(blank Cell) {
	for b.Count < b.Rows {
		b.push().reset(b.Cols, blank, false)
	}
	b.Base = 0
}

// SetCapacity sets how many rows are held at most.
func (b *Buffer) SetCapacity() {
	b.capacity = min(b.Limit, b.Rows+min(MaxHistoryRows, maxHistoryCells/b.Cols))
}

// At returns the held row i.
func (b *Buffer) At(i int) *Row {
	i += b.start
	if i >= len(b.ring) {
		i -= len(b.ring)
	}
	return &b.ring[i]
}

// Line returns row y of the screen.
func (b *Buffer) Line(y int) *Row { return b.At(b.Base + y) }

// ringLine returns row y from the oldest that a viewer has, if that is held. In
// xterm.js the list of rows is a ring: behind the last it has come the oldest.
func (b *Buffer) ringLine(y int) *Row {
	if y >= b.Limit {
		y -= b.Limit
	}
	if y -= b.Lost; y < 0 || y >= b.Count {
		return nil
	}
	return b.At(y)
}

// push appends a row, for which the oldest may have to go, and returns it as
// it was. The screen stays where it is in the text.
func (b *Buffer) push() *Row {
	if b.Count == b.capacity {
		b.drop(1)
	}
	if b.Count == len(b.ring) {
		b.grow()
	}
	b.Count++
	return b.At(b.Count - 1)
}

// grow makes room in the ring.
func (b *Buffer) grow() {
	ring := make([]Row, min(max(2*len(b.ring), b.Rows), b.capacity))
	for i := range b.Count {
		ring[i] = *b.At(i)
	}
	b.ring, b.start = ring, 0
}

// drop forgets the n oldest held rows, which viewers may still have.
func (b *Buffer) drop(n int) {
	b.start = (b.start + n) % len(b.ring)
	b.Count -= n
	b.Base = max(b.Base-n, 0)
	b.Lost += n
}

// scroll moves the rows between the margins up by one. What leaves the top of
// the screen becomes history.
func (b *Buffer) scroll(blank Cell, wrapped bool) {
	if b.Top > 0 {
		b.rotate(b.Top, b.Bottom)
		b.Line(b.Bottom).reset(b.Cols, blank, wrapped)
		return
	}
	full := b.Lost+b.Count >= b.Limit
	held := b.Lost
	b.push()
	b.scrolled++
	b.Base = b.Count - b.Rows
	if full {
		b.Lost = held
	}
	for y := b.Rows - 1; y > b.Bottom; y-- {
		above, below := b.Line(y-1), b.Line(y)
		*above, *below = *below, *above
	}
	b.Line(b.Bottom).reset(b.Cols, blank, wrapped)
}

// rotate moves row top to bottom and those between up by one.
func (b *Buffer) rotate(top, bottom int) {
	first := *b.Line(top)
	for y := top; y < bottom; y++ {
		*b.Line(y) = *b.Line(y + 1)
	}
	*b.Line(bottom) = first
}

// RemoveLines takes n rows out at y and adds as many at the lower margin.
func (b *Buffer) RemoveLines(y, n int, blank Cell) {
	for range min(n, b.Bottom-y+1) {
		b.rotate(y, b.Bottom)
		b.Line(b.Bottom).reset(b.Cols, blank, false)
	}
}

// InsertLines adds n rows at y, for which as many at the lower margin go.
func (b *Buffer) InsertLines(y, n int, blank Cell) {
	for range min(n, b.Bottom-y+1) {
		last := *b.Line(b.Bottom)
		for i := b.Bottom; i > y; i-- {
			*b.Line(i) = *b.Line(i - 1)
		}
		*b.Line(y) = last
		b.Line(y).reset(b.Cols, blank, false)
	}
}

// ViewerBase returns how many rows a viewer has above the screen.
func (b *Buffer) ViewerBase() int { return b.Lost + b.Base }

// dropHistory forgets the rows above the screen.
func (b *Buffer) dropHistory() {
	if b.Base > 0 {
		b.start = (b.start + b.Base) % len(b.ring)
		b.Count -= b.Base
	}
	b.Base, b.Lost = 0, 0
}

// TabStops are the columns of tab stops. There may be one beyond the last
// column, and some that a narrower size hides.
type TabStops [16]uint64

// Has reports whether there is a stop at column x.
func (t *TabStops) Has(x int) bool { return x >= 0 && x>>6 < len(t) && t[x>>6]>>(x&63)&1 == 1 }

func (t *TabStops) set(x int) {
	if x>>6 < len(t) {
		t[x>>6] |= 1 << (x & 63)
	}
}

func (t *TabStops) clear(x int) {
	if x>>6 < len(t) {
		t[x>>6] &^= 1 << (x & 63)
	}
}

// Fill sets every eighth stop from x up to cols.
func (t *TabStops) Fill(x, cols int) {
	for ; x < cols; x += 8 {
		t.set(x)
	}
}

// next returns the stop behind x, or the last column.
func (t *TabStops) next(x, cols int) int {
	x++
	for x < cols && !t.Has(x) {
		x++
	}
	return max(min(x, cols-1), 0)
}

// previous returns the stop before x, or the first column.
func (t *TabStops) previous(x, cols int) int {
	x--
	for x > 0 && !t.Has(x) {
		x--
	}
	return max(min(x, cols-1), 0)
}

// reset makes b like new, for which it keeps its memory.
func (b *Buffer) reset(cols, rows int) {
	b.Cols, b.Rows = cols, rows
	b.Saved = SavedCursor{}
	b.clear()
}

func (b *Buffer) same(other *Buffer) bool {
	x, y := *b, *other
	x.ring, x.start, x.scrolled, y.ring, y.start, y.scrolled = nil, 0, 0, nil, 0, 0
	same := reflect.DeepEqual(x, y)
	for i := 0; same && i < b.Count; i++ {
		p, q := b.At(i), other.At(i)
		same = p.Wrapped == q.Wrapped && slices.Equal(p.Cells, q.Cells) && slices.Equal(p.Clusters, q.Clusters)
	}
	return same
}

func (b *Buffer) clone() *Buffer {
	c := *b
	c.ring, c.start = make([]Row, len(b.ring)), 0
	for i := range b.Count {
		r := b.At(i)
		c.ring[i] = Row{Cells: slices.Clone(r.Cells), Wrapped: r.Wrapped, Clusters: slices.Clone(r.Clusters)}
	}
	return &c
}

// unwrapAfter does what xterm.js does to the row below an erased one: it takes
// y for a row counted from the oldest.
func (b *Buffer) unwrapAfter(y int) {
	if l := b.ringLine(y); l != nil {
		l.Wrapped = false
	}
}

// eraseRows empties the rows [from, to).
func (b *Buffer) eraseRows(from, to int, blank Cell, selective bool) {
	for y := from; y < to; y++ {
		l := b.Line(y)
		if selective {
			l.fillUnprotected(blank)
		} else {
			l.fill(blank)
		}
		l.Wrapped = false
	}
}

// Tab goes n tab stops forward, or back.
func (b *Buffer) Tab(n int, back bool) {
	if b.X >= b.Cols {
		return
	}
	for range min(n, b.Cols) {
		if back {
			b.X = b.Tabs.previous(b.X, b.Cols)
		} else {
			b.X = b.Tabs.next(b.X, b.Cols)
		}
	}
}

// ClearTabs obeys TBC: 0 clears the stop at the cursor, 3 clears all.
func (b *Buffer) ClearTabs(which int) {
	switch which {
	case 0:
		b.Tabs.clear(b.X)
	case 3:
		b.Tabs = TabStops{}
	}
}
