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

// TakeTangled reports whether, since it was last called, rows of the screen may
// have come to read otherwise than the output did: because the cursor went back
// or somewhere else, what is there was moved, or a line ended at the full
// width. Output that only goes forward, line by line, never does that.
func (s *Screen) TakeTangled() bool {
	was := s.tangled || s.wasTangled
	s.wasTangled = s.tangled
	return was
}

// SkipNewText has the next [Screen.AppendNewText] leave out the rows that have
// scrolled off the top so far.
func (s *Screen) SkipNewText() { s.buf.scrolled = 0 }

// Tangle has [Screen.TakeTangled] report true as if the cursor had gone
// somewhere else.
func (s *Screen) Tangle() { s.tangle() }

// AppendNewText appends the text of the screen, and of the rows that scrolled
// off its top since it was last called or [Screen.SkipNewText] was.
// Lines end with a line feed; a row that continues the one above, or that comes
// after one of the full width, is of the same line. Empty cells are spaces, but
// for those at the end of a line.
func (s *Screen) AppendNewText(dst []byte) []byte {
	b := s.buf
	s.newRows = min(b.scrolled, b.base)
	b.scrolled = 0
	return s.appendRows(dst, b, b.base-s.newRows, b.cols, nil)
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
			text := s.appendRows(nil, b, 0, cols, &places)
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
	s.maskLinks(maskString)
	return n
}

// maskLinks masks addresses and ids of hyperlinks.
func (s *Screen) maskLinks(mask func(string) string) {
	for n, old := range s.links.list {
		l := link{id: mask(old.id), uri: mask(old.uri)}
		if l == old {
			continue
		}
		if s.links.number[old] == uint32(n) {
			delete(s.links.number, old)
		}
		s.links.list[n], s.links.number[l] = l, uint32(n)
		s.links.bytes += len(l.id) + len(l.uri) - len(old.id) - len(old.uri)
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
func (s *Screen) appendRows(dst []byte, b *buffer, first, cols int, places *[]textPlace) []byte {
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
				dst = s.appendText(dst, c.content)
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
		text := raw.appendRows(nil, p.raw, p.first, p.raw.cols, &s.places)
		secrets(text, func(from, to, few int) {
			found := s.unmasked(raw, p.masked, s.places[from:to])
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

// unmasked returns where b, of s, shows the same characters as raw does at
// places, of those rows that differ in nothing but asterisks.
func (s *Screen) unmasked(raw *Screen, b *buffer, places []textPlace) (found []textPlace) {
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
			case s.sameText(ours, raw, theirs):
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

// sameText reports whether the cell c shows the same as d, of another screen.
func (s *Screen) sameText(c *cell, other *Screen, d *cell) bool {
	if (c.content|d.content)&clusterBit == 0 {
		return c.content == d.content
	}
	return c.width() == d.width() && string(s.appendText(nil, c.content)) == string(other.appendText(nil, d.content))
}

// tangle says that the screen may read otherwise than the output did, until a
// line begins that has nothing beside or above it.
func (s *Screen) tangle() { s.tangled, s.wasTangled = true, true }

// fed is called when a line feed has moved the cursor down from a row that may
// be full, perhaps to one that has just come.
func (s *Screen) fed(full, fresh bool) {
	s.returned = false
	switch {
	case full, !fresh && s.buf.line(s.buf.y).length() > 0:
		s.tangle()
	case s.tangled:
		s.tangled = s.modes.insert || !s.modes.wraparound
	}
}

// full reports whether there is a character in the last of cols columns.
func (r *row) full(cols int) bool {
	last := &r.cells[cols-1]
	return !last.empty() || last.isSecond()
}
