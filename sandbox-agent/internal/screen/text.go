package screen

// Line returns the text of a row of the screen, counted from 0, without the
// blank cells at its end.
func (s *Screen) Line(row int) string { return s.rowText(s.buf.line(row)) }

func (s *Screen) rowText(r *row) string {
	var text []byte
	end := r.length()
	for x := 0; x < end; {
		c := &r.cells[x]
		if c.empty() {
			text = append(text, ' ')
		} else {
			text = s.appendText(text, c.content)
		}
		x += max(c.width(), 1)
	}
	return string(text)
}
