package screen

import "unicode/utf8"

const (
	// maxClusterBytes bounds the characters that share one cell. The longest
	// emoji have 35 bytes; more of a pile of marks is dropped, for viewers too:
	// xterm.js keeps them all, and REP would multiply them beyond its memory.
	maxClusterBytes = 128
	// minTable and maxTable bound the entries of a table of what cells refer
	// to. One that is full is swept, and what no longer fits is dropped.
	minTable = 1024
	maxTable = 64 << 10
)

// A clusterTable numbers the texts of cells that hold more than one character.
type clusterTable struct {
	text    []string
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
	return w.sweepAt == maxTable && w.refused%minTable != 1
}

// after decides about the next sweep when n entries are left.
func (w *sweeper) after(n int) {
	w.sweepAt = min(max(minTable, 2*n), maxTable)
	if n < w.sweepAt {
		w.refused = 0
	}
}

// join returns the content of a cell of b that gets r added, without a width,
// and whether there is room for it.
func (t *clusterTable) join(content uint32, r rune, b *buffers) (joined uint32, ok bool) {
	t.scratch = t.appendText(t.scratch[:0], content)
	t.scratch = utf8.AppendRune(t.scratch, r)
	if len(t.scratch) > maxClusterBytes {
		return 0, false
	}
	n, ok := t.number[string(t.scratch)]
	if !ok {
		n, ok = t.add(string(t.scratch), b)
	}
	return n | clusterBit, ok
}

func (t *clusterTable) add(text string, b *buffers) (n uint32, ok bool) {
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
		t.text[n] = text
	} else {
		n = uint32(len(t.text))
		t.text = append(t.text, text)
	}
	t.number[text] = n
	return n, true
}

// sweep forgets the clusters that no cell of b holds.
func (t *clusterTable) sweep(b *buffers) {
	used := make([]bool, len(t.text))
	b.eachRow(func(r *row) {
		for _, n := range r.clusters {
			if n != 0 {
				used[n-1] = true
			}
		}
	})
	for text, n := range t.number {
		if !used[n] {
			delete(t.number, text)
			t.text[n] = ""
			t.free = append(t.free, n)
		}
	}
}

// appendText appends the characters of a cell's content.
func (t *clusterTable) appendText(dst []byte, content uint32) []byte {
	switch {
	case content&clusterBit != 0:
		return append(dst, t.text[content&codeMask]...)
	case content&codeMask != 0:
		return utf8.AppendRune(dst, rune(content&codeMask))
	}
	return dst
}

// appendRunes is appendText for characters one by one.
func (t *clusterTable) appendRunes(dst []rune, content uint32) []rune {
	switch {
	case content&clusterBit != 0:
		return append(dst, []rune(t.text[content&codeMask])...)
	case content&codeMask != 0:
		return append(dst, rune(content&codeMask))
	}
	return dst
}
