package grid

import "unicode/utf8"

const (
	// MaxClusterBytes bounds the characters that share one cell. The longest
	// emoji have 35 bytes; more of a pile of marks is dropped, for viewers too:
	// xterm.js keeps them all, and REP would multiply them beyond its memory.
	MaxClusterBytes = 128
	// minTable and MaxTable bound the entries of a table of what cells refer
	// to. One that is full is swept, and what no longer fits is dropped.
	minTable = 1024
	MaxTable = 64 << 10
)

// A ClusterTable numbers the texts of cells that hold more than one character.
type ClusterTable struct {
	Text    []string
	number  map[string]uint32
	free    []uint32
	scratch []byte
	sweeper
}

// A sweeper says when a table is to be swept, which takes a look at all cells.
type sweeper struct {
	sweepAt int // entries
	refused int // entries that had no room since
}

// refuse reports whether the last sweep of a table is too recent, so that what
// has no room must be dropped.
func (w *sweeper) refuse() bool {
	w.refused++
	return w.sweepAt == MaxTable && w.refused%minTable != 1
}

// after decides about the next sweep when n entries are left.
func (w *sweeper) after(n int) {
	w.sweepAt = min(max(minTable, 2*n), MaxTable)
	if n < w.sweepAt {
		w.refused = 0
	}
}

// join returns the content of a cell of b that gets r added, without a width,
// and whether there is room for it.
func (t *ClusterTable) join(content uint32, r rune, b *buffers) (joined uint32, ok bool) {
	t.scratch = t.AppendText(t.scratch[:0], content)
	t.scratch = utf8.AppendRune(t.scratch, r)
	if len(t.scratch) > MaxClusterBytes {
		return 0, false
	}
	n, ok := t.number[string(t.scratch)]
	if !ok {
		n, ok = t.add(string(t.scratch), b)
	}
	return n | ClusterBit, ok
}

func (t *ClusterTable) add(text string, b *buffers) (n uint32, ok bool) {
	if t.number == nil {
		t.number = make(map[string]uint32)
		t.sweepAt = minTable
	}
	if len(t.number) >= t.sweepAt && !t.refuse() {
		t.sweep(b)
		t.after(len(t.number))
	}
	if len(t.number) >= t.sweepAt {
		return 0, false
	}
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.Text[n] = text
	} else {
		n = uint32(len(t.Text))
		t.Text = append(t.Text, text)
	}
	t.number[text] = n
	return n, true
}

// sweep forgets the clusters that no cell of b holds.
func (t *ClusterTable) sweep(b *buffers) {
	used := make([]bool, len(t.Text))
	b.eachRow(func(r *Row) {
		for _, n := range r.Clusters {
			if n != 0 {
				used[n-1] = true
			}
		}
	})
	for text, n := range t.number {
		if !used[n] {
			delete(t.number, text)
			t.Text[n] = ""
			t.free = append(t.free, n)
		}
	}
}

// AppendText appends the characters of a cell's content.
func (t *ClusterTable) AppendText(dst []byte, content uint32) []byte {
	switch {
	case content&ClusterBit != 0:
		return append(dst, t.Text[content&codeMask]...)
	case content&codeMask != 0:
		return utf8.AppendRune(dst, rune(content&codeMask))
	}
	return dst
}

// AppendRunes is AppendText for characters one by one.
func (t *ClusterTable) AppendRunes(dst []rune, content uint32) []rune {
	switch {
	case content&ClusterBit != 0:
		return append(dst, []rune(t.Text[content&codeMask])...)
	case content&codeMask != 0:
		return append(dst, rune(content&codeMask))
	}
	return dst
}

// Width returns the columns that a cluster takes when it is printed.
func (t *ClusterTable) Width(content uint32) int {
	j := Joint(0)
	for _, r := range t.AppendRunes(nil, content) {
		j, _ = j.Follow(r)
	}
	return j.Width()
}

// Writable reports whether the text of a cell can be written when a character
// set is in use.
func (t *ClusterTable) Writable(c *Cell, set Charset) bool {
	for _, r := range t.AppendRunes(nil, c.Content) {
		if _, ok := set.Invert(r); !ok {
			return false
		}
	}
	return true
}

// sameText reports whether the cell c shows the same as d, whose clusters are other's.
func (t *ClusterTable) sameText(c *Cell, other *ClusterTable, d *Cell) bool {
	if (c.Content|d.Content)&ClusterBit == 0 {
		return c.Content == d.Content
	}
	return c.Width() == d.Width() && string(t.AppendText(nil, c.Content)) == string(other.AppendText(nil, d.Content))
}
