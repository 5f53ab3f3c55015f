package grid

const (
	// MaxLinks bounds the hyperlinks that cells refer to, MaxLinkBytes what
	// they take. Beyond either a link is dropped and its text stays.
	MaxLinks     = 4096
	MaxLinkBytes = 1 << 20
)

// An Ext is what few cells have: an underline that isn't plain, a hyperlink.
type Ext struct {
	Underline uint8
	Color     uint32
	Link      uint32
}

// An ExtTable numbers the extensions in use, from 1.
type ExtTable struct {
	List   []Ext // List[0] is that of all other cells
	number map[Ext]uint32
	free   []uint32
	sweeper
}

// intern returns the number of e, 0 when there is no room. A sweep keeps the
// extensions of b's cells and the one with the number used.
func (t *ExtTable) intern(e Ext, used uint32, b *buffers) uint32 {
	if e == (Ext{}) {
		return 0
	}
	if n, ok := t.number[e]; ok {
		return n
	}
	if t.number == nil {
		t.number = make(map[Ext]uint32)
		t.List = make([]Ext, 1)
		t.sweepAt = minTable
	}
	if len(t.number) >= t.sweepAt && !t.refuse() {
		t.sweep(used, b)
		t.after(len(t.number))
	}
	if len(t.number) >= t.sweepAt {
		return 0
	}
	var n uint32
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.List[n] = e
	} else {
		n = uint32(len(t.List))
		t.List = append(t.List, e)
	}
	t.number[e] = n
	return n
}

// sweep forgets the extensions that no cell of b has, but for that with the
// number pen.
func (t *ExtTable) sweep(pen uint32, b *buffers) {
	used := make([]bool, len(t.List))
	b.eachRow(func(r *Row) {
		for i := range r.Cells {
			used[r.Cells[i].Ext] = true
		}
	})
	used[pen] = true
	for e, n := range t.number {
		if !used[n] {
			delete(t.number, e)
			t.free = append(t.free, n)
		}
	}
}

// Of returns the extension of c.
func (t *ExtTable) Of(c *Cell) Ext {
	if c.Ext == 0 {
		return Ext{}
	}
	return t.List[c.Ext]
}

// A Link is a hyperlink (OSC 8). Cells of equal links belong together.
type Link struct {
	ID  string // the program's, empty for a link of its own
	URI string
}

// A LinkTable numbers the hyperlinks in use, from 1.
type LinkTable struct {
	List    []Link // List[0] is none
	number  map[Link]uint32
	free    []uint32
	Bytes   int
	refused int // since the last sweep
}

// wantsSweep reports whether a sweep is due before l is added.
func (t *LinkTable) wantsSweep(l Link) bool {
	if _, known := t.number[l]; known && l.ID != "" || len(t.List) == 0 {
		return false
	}
	return t.full(len(l.ID)+len(l.URI)) && t.refused%minTable == 0
}

// add returns the number of a hyperlink, 0 when there is no room.
func (t *LinkTable) add(l Link) uint32 {
	if n, ok := t.number[l]; ok && l.ID != "" {
		return n
	}
	size := len(l.ID) + len(l.URI)
	if len(t.List) == 0 {
		t.List = make([]Link, 1)
		t.number = make(map[Link]uint32)
	}
	if t.full(size) {
		t.refused++
		return 0
	}
	t.refused = 0
	t.Bytes += size
	n := uint32(len(t.List))
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.List[n] = l
	} else {
		t.List = append(t.List, l)
	}
	t.number[l] = n
	return n
}

func (t *LinkTable) full(size int) bool {
	return len(t.List)-len(t.free) > MaxLinks || t.Bytes+size > MaxLinkBytes
}

// sweep forgets the hyperlinks that no extension has, but for that with the
// number pen.
func (t *LinkTable) sweep(exts *ExtTable, pen uint32) {
	used := make([]bool, len(t.List))
	for e := range exts.number {
		used[e.Link] = true
	}
	used[pen], used[0] = true, true
	t.free, t.Bytes = t.free[:0], 0
	for n := range t.List {
		if !used[n] {
			if l := t.List[n]; t.number[l] == uint32(n) {
				delete(t.number, l)
			}
			t.List[n] = Link{}
			t.free = append(t.free, uint32(n))
		}
		t.Bytes += len(t.List[n].ID) + len(t.List[n].URI)
	}
}

// maskLinks masks addresses and ids of hyperlinks.
func (t *LinkTable) mask(mask func(string) string) {
	for n, old := range t.List {
		l := Link{ID: mask(old.ID), URI: mask(old.URI)}
		if l == old {
			continue
		}
		if t.number[old] == uint32(n) {
			delete(t.number, old)
		}
		t.List[n], t.number[l] = l, uint32(n)
		t.Bytes += len(l.ID) + len(l.URI) - len(old.ID) - len(old.URI)
	}
}
