package screen

const (
	// maxLinks bounds the hyperlinks that cells refer to, maxLinkBytes what
	// they take. Beyond either a link is dropped and its text stays.
	maxLinks     = 4096
	maxLinkBytes = 1 << 20
)

// An ext is what few cells have: an underline that isn't plain, a hyperlink.
type ext struct {
	underline uint8
	color     uint32
	link      uint32
}

// An extTable numbers the extensions in use, from 1.
type extTable struct {
	list   []ext // list[0] is that of all other cells
	number map[ext]uint32
	free   []uint32
	sweeper
}

// intern returns the number of e, 0 when there is no room. A sweep keeps the
// extensions of b's cells and the one with the number used.
func (t *extTable) intern(e ext, used uint32, b *buffers) uint32 {
	if e == (ext{}) {
		return 0
	}
	if n, ok := t.number[e]; ok {
		return n
	}
	if t.number == nil {
		t.number = make(map[ext]uint32)
		t.list = make([]ext, 1)
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
		t.list[n] = e
	} else {
		n = uint32(len(t.list))
		t.list = append(t.list, e)
	}
	t.number[e] = n
	return n
}

// sweep forgets the extensions that no cell of b has, but for that with the
// number pen.
func (t *extTable) sweep(pen uint32, b *buffers) {
	used := make([]bool, len(t.list))
	b.eachRow(func(r *row) {
		for i := range r.cells {
			used[r.cells[i].ext] = true
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

// of returns the extension of c.
func (t *extTable) of(c *cell) ext {
	if c.ext == 0 {
		return ext{}
	}
	return t.list[c.ext]
}

// A link is a hyperlink (OSC 8). Cells of equal links belong together.
type link struct {
	id  string // the program's, empty for a link of its own
	uri string
}

// A linkTable numbers the hyperlinks in use, from 1.
type linkTable struct {
	list    []link // list[0] is none
	number  map[link]uint32
	free    []uint32
	bytes   int
	refused int // since the last sweep
}

// wantsSweep reports whether a sweep is due before l is added.
func (t *linkTable) wantsSweep(l link) bool {
	if _, known := t.number[l]; known && l.id != "" || len(t.list) == 0 {
		return false
	}
	return t.full(len(l.id)+len(l.uri)) && t.refused%minTable == 0
}

// add returns the number of a hyperlink, 0 when there is no room.
func (t *linkTable) add(l link) uint32 {
	if n, ok := t.number[l]; ok && l.id != "" {
		return n
	}
	size := len(l.id) + len(l.uri)
	if len(t.list) == 0 {
		t.list = make([]link, 1)
		t.number = make(map[link]uint32)
	}
	if t.full(size) {
		t.refused++
		return 0
	}
	t.refused = 0
	t.bytes += size
	n := uint32(len(t.list))
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.list[n] = l
	} else {
		t.list = append(t.list, l)
	}
	t.number[l] = n
	return n
}

func (t *linkTable) full(size int) bool {
	return len(t.list)-len(t.free) > maxLinks || t.bytes+size > maxLinkBytes
}

// sweep forgets the hyperlinks that no extension has, but for that with the
// number pen.
func (t *linkTable) sweep(exts *extTable, pen uint32) {
	used := make([]bool, len(t.list))
	for e := range exts.number {
		used[e.link] = true
	}
	used[pen], used[0] = true, true
	t.free, t.bytes = t.free[:0], 0
	for n := range t.list {
		if !used[n] {
			if l := t.list[n]; t.number[l] == uint32(n) {
				delete(t.number, l)
			}
			t.list[n] = link{}
			t.free = append(t.free, uint32(n))
		}
		t.bytes += len(t.list[n].id) + len(t.list[n].uri)
	}
}
