package grid

import (
	"strings"
	"unicode/utf8"
)

// SkipNewText has the next AppendNewText leave out the rows that have scrolled
// off the top so far.
func (g *Grid) SkipNewText() { g.Buf.scrolled = 0 }

// AppendNewText appends the text of the screen, and of the rows that scrolled
// off its top since it was last called or SkipNewText was, as AppendRows does.
func (g *Grid) AppendNewText(dst []byte) []byte {
	b := g.Buf
	g.newRows = min(b.scrolled, b.Base)
	b.scrolled = 0
	return g.Clusters.AppendRows(dst, b, b.Base-g.newRows, b.Cols, nil)
}

// A Finder shows a text to whoever knows secrets, and has mask called for the
// bytes [from, to) that must not be seen.
type Finder = func(text []byte, mask func(from, to int))

// Mask puts asterisks in the place of secrets in both screens with all that is
// held above them, in the title and in hyperlinks. Lines are as
// AppendRows has them. Rows are shown once more with the cells that a narrower size
// hides. It returns how many secrets were found.
func (g *Grid) Mask(secrets Finder) (n int) {
	for _, b := range []*Buffer{g.Normal, g.Alt} {
		for _, cols := range []int{b.Cols, MaxSide} {
			if cols > b.Cols && (b != g.Alt || b.Count == 0) {
				continue // nothing is hidden
			}
			var places []TextPlace
			text := g.Clusters.AppendRows(nil, b, 0, cols, &places)
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
	g.Title = MaskString(g.Title, secrets, &n)
	g.Links.mask(func(text string) string { return MaskString(text, secrets, &n) })
	return n
}

// MaskString returns text with asterisks in the place of secrets, which it adds
// to n.
func MaskString(text string, secrets Finder, n *int) string {
	secrets([]byte(text), func(from, to int) {
		*n++
		text = text[:from] + strings.Repeat("*", to-from) + text[to:]
	})
	return text
}

// AppendRows appends the text of the first cols columns of the held rows of b
// from row first on, and to places, unless that is nil, which cell each byte of
// it is of. Lines end with a line feed; a row that continues the one above, or
// that comes after one of the full width, is of the same line. Empty cells are
// spaces, but for those at the end of a line.
func (t *ClusterTable) AppendRows(dst []byte, b *Buffer, first, cols int, places *[]TextPlace) []byte {
	for i := first; i < b.Count; i++ {
		r := b.At(i)
		visible := Row{Cells: r.Cells[:min(cols, len(r.Cells))]}
		end := min(visible.Length(), len(visible.Cells))
		if end == b.Cols && i+1 < b.Count && r.Cells[end-1].blank() && b.At(i + 1).Cells[0].Width() == 2 {
			end-- // a line editor left out the last column, in which the next had no room
		}
		for x := 0; x < end; {
			c := &r.Cells[x]
			before := len(dst)
			if c.Empty() {
				dst = append(dst, ' ')
			} else if code := c.Content & contentMask; code < utf8.RuneSelf {
				dst = append(dst, byte(code))
			} else {
				dst = t.AppendText(dst, c.Content)
			}
			if places != nil {
				for range len(dst) - before {
					*places = append(*places, TextPlace{row: r, y: i - b.Base, x: x})
				}
			}
			x += max(c.Width(), 1)
		}
		if i+1 < b.Count && (b.At(i+1).Wrapped || visible.Length() >= b.Cols) {
			continue
		}
		dst = append(dst, '\n')
		if places != nil {
			*places = append(*places, TextPlace{})
		}
	}
	return dst
}

// MaskAsIn is Mask for the text that raw shows, a grid of the same output without
// asterisks: that of its last AppendNewText, or with whole all of both screens. A
// row is masked where g has the same characters or asterisks. Of a text of which
// few characters at most are no asterisks yet nothing is masked, and it doesn't
// count.
func (g *Grid) MaskAsIn(raw *Grid, whole bool, secrets func(text []byte, mask func(from, to, few int))) (n int) {
	type pair struct {
		raw, masked *Buffer
		first       int
	}
	pairs := []pair{{raw.Normal, g.Normal, 0}, {raw.Alt, g.Alt, 0}}
	if !whole {
		k := 0
		if raw.Buf == raw.Alt {
			k = 1
		}
		pairs = pairs[k : k+1]
		pairs[0].first = max(raw.Buf.Base-raw.newRows, 0)
	}
	for _, p := range pairs {
		g.places = g.places[:0]
		text := raw.Clusters.AppendRows(nil, p.raw, p.first, p.raw.Cols, &g.places)
		secrets(text, func(from, to, few int) {
			found := unmasked(&raw.Clusters, p.masked, &g.Clusters, g.places[from:to])
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
		g.places = nil // it was large
	}
	return n
}

// unmasked returns where b shows the same characters as there are at places, of
// another screen, of those rows that differ in nothing but asterisks.
func unmasked(theirClusters *ClusterTable, b *Buffer, clusters *ClusterTable, places []TextPlace) (found []TextPlace) {
	for i := 0; i < len(places); {
		if places[i].row == nil {
			i++
			continue
		}
		row, known := places[i].row, len(found)
		y, same := b.Base+places[i].y, true
		for x := -1; i < len(places) && places[i].row == row; i++ {
			if places[i].x == x {
				continue // another byte of the same character
			}
			x = places[i].x
			if y < 0 || y >= b.Count || x >= len(b.At(y).Cells) {
				same = false
				continue
			}
			r := b.At(y)
			switch theirs, ours := &row.Cells[x], &r.Cells[x]; {
			case ours.Content == masked, theirs.blank() && ours.blank():
			case clusters.sameText(ours, theirClusters, theirs):
				found = append(found, TextPlace{row: r, x: x})
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
