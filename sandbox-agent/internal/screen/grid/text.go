package grid

// Line returns the text of a row of the screen, counted from 0, without the
// blank cells at its end.
func (g *Grid) Line(row int) string { return g.Clusters.RowText(g.Buf.Line(row)) }

// RowText returns the text of r without the empty cells at its end.
func (t *ClusterTable) RowText(r *Row) string {
	var text []byte
	end := r.Length()
	for x := 0; x < end; {
		c := &r.Cells[x]
		if c.Empty() {
			text = append(text, ' ')
		} else {
			text = t.AppendText(text, c.Content)
		}
		x += max(c.Width(), 1)
	}
	return string(text)
}

// AppendPlain appends what is shown, and the newest history rows above it, as
// lines of plain text without empty ones at the end.
func (g *Grid) AppendPlain(dst []byte, history int) []byte {
	b, begin := g.Buf, len(dst)
	dst = g.Clusters.appendLines(dst, b, b.Base-min(max(history, 0), b.Base), b.Count)
	end := len(dst)
	for end > begin && dst[end-1] == '\n' {
		end--
	}
	if end > begin {
		end++
	}
	return dst[:end]
}

// TakeHistory appends the lines above the normal screen, and forgets them but for
// one that the screen's first row continues.
func (g *Grid) TakeHistory(dst []byte) []byte {
	b := g.Normal
	n := b.Base
	for n > 0 && b.At(n).Wrapped {
		n--
	}
	dst = g.Clusters.appendLines(dst, b, 0, n)
	if n > 0 {
		b.drop(n)
	}
	return dst
}

// appendLines appends the lines of the held rows [from, to) of b, which are
// whole.
func (t *ClusterTable) appendLines(dst []byte, b *Buffer, from, to int) []byte {
	begin := len(dst)
	for i := from; i < to; i++ {
		dst = t.appendRow(dst, b, i)
		if i+1 < b.Count && b.At(i+1).Wrapped {
			continue
		}
		dst = append(trimBlanks(dst, begin), '\n')
	}
	return dst
}

// appendRow appends the text of the held row i of b, to its full width if the
// next one continues it.
func (t *ClusterTable) appendRow(dst []byte, b *Buffer, i int) []byte {
	r := b.At(i)
	end := min(r.Length(), b.Cols)
	if i+1 < b.Count && b.At(i+1).Wrapped {
		end = b.Cols
		if r.Cells[end-1].blank() && b.At(i + 1).Cells[0].Width() == 2 {
			end-- // there was no room for it
		}
	}
	for x := 0; x < end; {
		c := &r.Cells[x]
		if c.Empty() {
			dst = append(dst, ' ')
		} else {
			dst = t.AppendText(dst, c.Content)
		}
		x += max(c.Width(), 1)
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
