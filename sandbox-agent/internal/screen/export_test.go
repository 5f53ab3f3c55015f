package screen

// CellInfo is a cell as tests compare it with xterm.js.
type CellInfo struct {
	Text   string
	Width  int
	Fg, Bg uint32 // mode<<24 | value; mode 0 default, 1 of 16, 2 of 256, 3 RGB
	Flags  uint16 // bold 1, dim 2, italic 4, underline 8, blink 16, inverse 32, invisible 64, strike 128, overline 256
	Link   string
}

// Cell returns a cell of the active screen.
func (s *Screen) Cell(row, col int) CellInfo {
	return s.info(&s.buf.line(row).cells[col])
}

func (s *Screen) info(c *cell) CellInfo {
	i := CellInfo{
		Text:  string(s.clusters.appendText(nil, c.content)),
		Width: c.width(),
		Fg:    c.fg & (modeMask | colorMask),
		Bg:    c.bg & (modeMask | colorMask),
	}
	for bit, on := range []bool{
		c.fg&flagBold != 0, c.bg&flagDim != 0, c.bg&flagItalic != 0, c.fg&flagUnderline != 0, c.fg&flagBlink != 0,
		c.fg&flagInverse != 0, c.fg&flagInvisible != 0, c.fg&flagStrike != 0, c.bg&flagOverline != 0,
	} {
		if on {
			i.Flags |= 1 << bit
		}
	}
	if e := s.exts.of(c); e.link != 0 {
		i.Flags |= 8
		i.Link = s.links.list[e.link].uri
	} else if e.underline != underlineNone {
		i.Flags |= 8
	}
	return i
}

// Cursor returns where the cursor is. The column is that of the grid's width
// when the next character wraps.
func (s *Screen) Cursor() (row, col int) { return s.buf.y, s.buf.x }

// Wrapped reports whether a row continues the one above.
func (s *Screen) Wrapped(row int) bool { return s.buf.line(row).wrapped }

// Modes returns the modes by name.
func (s *Screen) Modes() map[string]bool {
	m := &s.modes
	return map[string]bool{
		"applicationCursor":  m.cursorKeys,
		"applicationKeypad":  m.keypad,
		"bracketedPaste":     m.bracketedPaste,
		"insert":             m.insert,
		"origin":             m.origin,
		"reverseWraparound":  m.reverseWraparound,
		"sendFocus":          m.focus,
		"wraparound":         m.wraparound,
		"synchronizedOutput": m.synchronized,
		"cursorHidden":       m.hidden,
		"alternate":          s.buf == s.alt,
	}
}

// MouseMode returns xterm.js' name for the mouse events that are reported.
func (s *Screen) MouseMode() string {
	return map[int]string{0: "none", 9: "x10", 1000: "vt200", 1002: "drag", 1003: "any"}[s.modes.mouse]
}

// Title returns the window's title.
func (s *Screen) Title() string { return s.title }

// HistoryLines returns how many rows are held above the normal screen.
func (s *Screen) HistoryLines() int { return s.normal.base }

// HistoryLine returns the text of such a row, the oldest first.
func (s *Screen) HistoryLine(i int) string { return s.clusters.rowText(s.normal.at(i)) }

// SetScrollback sets how many rows viewers keep above the screen, before
// anything is written.
func (s *Screen) SetScrollback(rows int) {
	s.normal.scrollback = rows
	s.normal.limit = rows + s.normal.rows
	s.normal.setCapacity()
}
