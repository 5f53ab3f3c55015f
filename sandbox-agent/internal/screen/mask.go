package screen

import (
	"strings"
	"unicode/utf8"
)

// masked is the cell that stands for one that was masked, but for its look.
const masked = '*' | narrow

// A textPlace says which cell a byte of a screen's text is of.
type textPlace struct {
	row *row // nil: the end of a line
	y   int  // counted from the top of the screen
	x   int
}

// SkipNewText has the next [Screen.AppendNewText] leave out the rows that have
// scrolled off the top so far.
func (g *grid) SkipNewText() { g.buf.scrolled = 0 }

// AppendNewText appends the text of the screen, and of the rows that scrolled
// off its top since it was last called or [Screen.SkipNewText] was.
// Lines end with a line feed; a row that continues the one above, or that comes
// after one of the full width, is of the same line. Empty cells are spaces, but
// for those at the end of a line.
func (g *grid) AppendNewText(dst []byte) []byte {
	b := g.buf
	g.newRows = min(b.scrolled, b.base)
	b.scrolled = 0
	return g.clusters.appendRows(dst, b, b.base-g.newRows, b.cols, nil)
}

// Mask shows each text that the screen holds to secrets, which calls mask for
// the bytes [from, to) that must not be seen: asterisks take their place. The
// texts are those of both screens with all that is held above them, in which
// lines are as in [Screen.AppendNewText], of the title, of hyperlinks, and of a
// string that has begun. Rows are shown once more with the cells that a narrower
// size hides. It returns how often mask was called.
func (s *Screen) Mask(secrets func(text []byte, mask func(from, to int))) (n int) {
	for _, b := range []*buffer{s.normal, s.alt} {
		for _, cols := range []int{b.cols, maxSide} {
			if cols > b.cols && (b != s.alt || b.count == 0) {
				continue // nothing is hidden
			}
			var places []textPlace
			text := s.clusters.appendRows(nil, b, 0, cols, &places)
			secrets(text, func(from, to int) {
				n++
				for i := from; i < to; i++ {
					if p := places[i]; p.row != nil {
						p.row.mask(p.x)
					}
				}
			})
		}
	}
	maskString := func(text string) string {
		secrets([]byte(text), func(from, to int) {
			n++
			text = maskBytes(text, from, to)
		})
		return text
	}
	s.title = maskString(s.title)
	if s.state == oscString {
		s.str = []byte(maskString(string(s.str)))
	}
	s.links.mask(maskString)
	return n
}

// maskLinks masks addresses and ids of hyperlinks.
func (t *linkTable) mask(mask func(string) string) {
	for n, old := range t.list {
		l := link{id: mask(old.id), uri: mask(old.uri)}
		if l == old {
			continue
		}
		if t.number[old] == uint32(n) {
			delete(t.number, old)
		}
		t.list[n], t.number[l] = l, uint32(n)
		t.bytes += len(l.id) + len(l.uri) - len(old.id) - len(old.uri)
	}
}

// maskBytes returns text, which keeps its length, with asterisks at [from, to).
func maskBytes(text string, from, to int) string {
	return text[:from] + strings.Repeat("*", to-from) + text[to:]
}

// mask puts an asterisk in the place of the character at column x, in both
// columns of a wide one.
func (r *row) mask(x int) {
	wide := r.cells[x].width() == 2
	r.cells[x].content = masked
	if wide && x+1 < len(r.cells) {
		r.cells[x+1].content = masked
	}
}

// appendRows appends the text of the first cols columns of the held rows of b
// from row first on, and to places, unless that is nil, which cell each byte of
// it is of.
func (t *clusterTable) appendRows(dst []byte, b *buffer, first, cols int, places *[]textPlace) []byte {
	for i := first; i < b.count; i++ {
		r := b.at(i)
		visible := row{cells: r.cells[:min(cols, len(r.cells))]}
		end := min(visible.length(), len(visible.cells))
		if end == b.cols && i+1 < b.count && r.cells[end-1].blank() && b.at(i + 1).cells[0].width() == 2 {
			end-- // a line editor left out the last column, in which the next had no room
		}
		for x := 0; x < end; {
			c := &r.cells[x]
			before := len(dst)
			if c.empty() {
				dst = append(dst, ' ')
			} else if code := c.content & contentMask; code < utf8.RuneSelf {
				dst = append(dst, byte(code))
			} else {
				dst = t.appendText(dst, c.content)
			}
			if places != nil {
				for range len(dst) - before {
					*places = append(*places, textPlace{row: r, y: i - b.base, x: x})
				}
			}
			x += max(c.width(), 1)
		}
		if i+1 < b.count && (b.at(i+1).wrapped || visible.length() >= b.cols) {
			continue
		}
		dst = append(dst, '\n')
		if places != nil {
			*places = append(*places, textPlace{})
		}
	}
	return dst
}

// MaskAsIn masks what raw, a screen of the same output without asterisks,
// shows to secrets as [Screen.Mask] does: the text that raw's last
// [Screen.AppendNewText] returned, or with whole all of both screens. A row's
// part of such a text is masked where s has the same characters there or
// asterisks, which it hasn't where it is behind raw or was shifted. Of a text of
// which few characters at most are no asterisks yet nothing is masked, and it
// doesn't count.
func (s *Screen) MaskAsIn(raw *Screen, whole bool, secrets func(text []byte, mask func(from, to, few int))) (n int) {
	type pair struct {
		raw, masked *buffer
		first       int
	}
	pairs := []pair{{raw.normal, s.normal, 0}, {raw.alt, s.alt, 0}}
	if !whole {
		k := 0
		if raw.buf == raw.alt {
			k = 1
		}
		pairs = pairs[k : k+1]
		pairs[0].first = max(raw.buf.base-raw.newRows, 0)
	}
	for _, p := range pairs {
		s.places = s.places[:0]
		text := raw.clusters.appendRows(nil, p.raw, p.first, p.raw.cols, &s.places)
		secrets(text, func(from, to, few int) {
			found := unmasked(&raw.clusters, p.masked, &s.clusters, s.places[from:to])
			if len(found) <= few {
				return
			}
			n++
			for _, c := range found {
				c.row.mask(c.x)
			}
		})
	}
	if whole {
		s.places = nil // it was large
	}
	return n
}

// unmasked returns where b shows the same characters as there are at places, of
// another screen, of those rows that differ in nothing but asterisks.
func unmasked(theirClusters *clusterTable, b *buffer, clusters *clusterTable, places []textPlace) (found []textPlace) {
	for i := 0; i < len(places); {
		if places[i].row == nil {
			i++
			continue
		}
		row, known := places[i].row, len(found)
		y, same := b.base+places[i].y, true
		for x := -1; i < len(places) && places[i].row == row; i++ {
			if places[i].x == x {
				continue // another byte of the same character
			}
			x = places[i].x
			if y < 0 || y >= b.count || x >= len(b.at(y).cells) {
				same = false
				continue
			}
			r := b.at(y)
			switch theirs, ours := &row.cells[x], &r.cells[x]; {
			case ours.content == masked, theirs.blank() && ours.blank():
			case clusters.sameText(ours, theirClusters, theirs):
				found = append(found, textPlace{row: r, x: x})
			default:
				same = false
			}
		}
		if !same {
			found = found[:known]
		}
	}
	return found
}

// sameText reports whether the cell c shows the same as d, whose clusters are other's.
func (t *clusterTable) sameText(c *cell, other *clusterTable, d *cell) bool {
	if (c.content|d.content)&clusterBit == 0 {
		return c.content == d.content
	}
	return c.width() == d.width() && string(t.appendText(nil, c.content)) == string(other.appendText(nil, d.content))
}

// full reports whether there is a character in the last of cols columns.
func (r *row) full(cols int) bool {
	last := &r.cells[cols-1]
	return !last.empty() || last.isSecond()
}
