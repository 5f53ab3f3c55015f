package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

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
	return s.info(&s.grid.Buf.Line(row).Cells[col])
}

func (s *Screen) info(c *grid.Cell) CellInfo {
	i := CellInfo{
		Text:  string(s.grid.Clusters.AppendText(nil, c.Content)),
		Width: c.Width(),
		Fg:    c.Fg & (grid.ModeMask | grid.ColorMask),
		Bg:    c.Bg & (grid.ModeMask | grid.ColorMask),
	}
	for bit, on := range []bool{
		c.Fg&grid.FlagBold != 0, c.Bg&grid.FlagDim != 0, c.Bg&grid.FlagItalic != 0, c.Fg&grid.FlagUnderline != 0, c.Fg&grid.FlagBlink != 0,
		c.Fg&grid.FlagInverse != 0, c.Fg&grid.FlagInvisible != 0, c.Fg&grid.FlagStrike != 0, c.Bg&grid.FlagOverline != 0,
	} {
		if on {
			i.Flags |= 1 << bit
		}
	}
	if e := s.grid.Exts.Of(c); e.Link != 0 {
		i.Flags |= 8
		i.Link = s.grid.Links.List[e.Link].URI
	} else if e.Underline != grid.UnderlineNone {
		i.Flags |= 8
	}
	return i
}

// Cursor returns where the cursor is. The column is that of the grid's width
// when the next character wraps.
func (s *Screen) Cursor() (row, col int) { return s.grid.Buf.Y, s.grid.Buf.X }

// Wrapped reports whether a row continues the one above.
func (s *Screen) Wrapped(row int) bool { return s.grid.Buf.Line(row).Wrapped }

// Modes returns the modes by name.
func (s *Screen) Modes() map[string]bool {
	m := &s.grid.Modes
	return map[string]bool{
		"applicationCursor":  m.CursorKeys,
		"applicationKeypad":  m.Keypad,
		"bracketedPaste":     m.BracketedPaste,
		"insert":             m.Insert,
		"origin":             m.Origin,
		"reverseWraparound":  m.ReverseWraparound,
		"sendFocus":          m.Focus,
		"wraparound":         m.Wraparound,
		"synchronizedOutput": m.Synchronized,
		"cursorHidden":       m.Hidden,
		"alternate":          s.grid.Buf == s.grid.Alt,
	}
}

// MouseMode returns xterm.js' name for the mouse events that are reported.
func (s *Screen) MouseMode() string {
	return map[int]string{0: "none", 9: "x10", 1000: "vt200", 1002: "drag", 1003: "any"}[s.grid.Modes.Mouse]
}

// Title returns the window's title.
func (s *Screen) Title() string { return s.grid.Title }

// HistoryLines returns how many rows are held above the normal screen.
func (s *Screen) HistoryLines() int { return s.grid.Normal.Base }

// HistoryLine returns the text of such a row, the oldest first.
func (s *Screen) HistoryLine(i int) string { return s.grid.Clusters.RowText(s.grid.Normal.At(i)) }

// SetScrollback sets how many rows viewers keep above the screen, before
// anything is written.
func (s *Screen) SetScrollback(rows int) {
	s.grid.Normal.Scrollback = rows
	s.grid.Normal.Limit = rows + s.grid.Normal.Rows
	s.grid.Normal.SetCapacity()
}
