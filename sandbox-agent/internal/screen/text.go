package screen

// Line returns the text of a row of the screen, counted from 0, without the
// blank cells at its end.
func (g *grid) Line(row int) string { return g.clusters.rowText(g.buf.line(row)) }

func (t *clusterTable) rowText(r *row) string {
	var text []byte
	end := r.length()
	for x := 0; x < end; {
		c := &r.cells[x]
		if c.empty() {
			text = append(text, ' ')
		} else {
			text = t.appendText(text, c.content)
		}
		x += max(c.width(), 1)
	}
	return string(text)
}

// AppendPlain appends what the screen shows, and the newest history rows above it
// of the normal screen, as plain text: each line ends with a line feed, a row
// that continues the one above is of the same line, empty cells are spaces, and
// there are no blanks at the end of a line and no empty lines at the end.
func (g *grid) AppendPlain(dst []byte, history int) []byte {
	b, begin := g.buf, len(dst)
	dst = g.clusters.appendLines(dst, b, b.base-min(max(history, 0), b.base), b.count)
	end := len(dst)
	for end > begin && dst[end-1] == '\n' {
		end--
	}
	if end > begin {
		end++
	}
	return dst[:end]
}

// TakeHistory appends the lines above the normal screen as [Screen.AppendPlain]
// does, with those that are empty, and forgets them. A line that the screen's
// first row continues stays.
func (g *grid) TakeHistory(dst []byte) []byte {
	b := g.normal
	n := b.base
	for n > 0 && b.at(n).wrapped {
		n--
	}
	dst = g.clusters.appendLines(dst, b, 0, n)
	if n > 0 {
		b.drop(n)
	}
	return dst
}

// BracketedPaste reports whether the program wants to be told what is pasted.
func (g *grid) BracketedPaste() bool { return g.modes.bracketedPaste }

// appendLines appends the lines of the held rows [from, to) of b, which are
// whole.
func (t *clusterTable) appendLines(dst []byte, b *buffer, from, to int) []byte {
	begin := len(dst)
	for i := from; i < to; i++ {
		dst = t.appendRow(dst, b, i)
		if i+1 < b.count && b.at(i+1).wrapped {
			continue
		}
		dst = append(trimBlanks(dst, begin), '\n')
	}
	return dst
}

// appendRow appends the text of the held row i of b, to its full width if the
// next one continues it.
func (t *clusterTable) appendRow(dst []byte, b *buffer, i int) []byte {
	r := b.at(i)
	end := min(r.length(), b.cols)
	if i+1 < b.count && b.at(i+1).wrapped {
		end = b.cols
		if r.cells[end-1].blank() && b.at(i + 1).cells[0].width() == 2 {
			end-- // there was no room for it
		}
	}
	for x := 0; x < end; {
		c := &r.cells[x]
		if c.empty() {
			dst = append(dst, ' ')
		} else {
			dst = t.appendText(dst, c.content)
		}
		x += max(c.width(), 1)
	}
	return dst
}

// trimBlanks drops the spaces at the end of text, but none before begin.
func trimBlanks(text []byte, begin int) []byte {
	for len(text) > begin && text[len(text)-1] == ' ' {
		text = text[:len(text)-1]
	}
	return text
}
