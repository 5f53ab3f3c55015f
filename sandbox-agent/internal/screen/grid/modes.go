package grid

// Modes are what SM, RM, DECSET, DECRST and their like choose.
type Modes struct {
	Insert, NewLine   bool
	CursorKeys        bool
	Keypad            bool
	Origin            bool
	Wraparound        bool
	ReverseWraparound bool
	Focus             bool
	BracketedPaste    bool
	Synchronized      bool
	Hidden            bool // the cursor
	Mouse             int  // DECSET number of the events reported, 0 for none
	MouseEncoding     int  // likewise
	shape             int  // of the cursor: block, underline, bar; 0 for the viewer's own
	shapeBlink        toggle
	Blink             toggle // by DECSET 12
}

// A toggle is on, off, or up to the viewer.
type toggle uint8

const (
	Unset toggle = iota
	On
	off
)

func toggled(yes bool) toggle {
	if yes {
		return On
	}
	return off
}

// InitialModes are those of a new terminal.
var InitialModes = Modes{Wraparound: true}

// Private returns the flag of a mode that is nothing but a flag.
func (m *Modes) Private(mode int) *bool {
	switch mode {
	case 1:
		return &m.CursorKeys
	case 7:
		return &m.Wraparound
	case 45:
		return &m.ReverseWraparound
	case 66:
		return &m.Keypad
	case 1004:
		return &m.Focus
	case 2004:
		return &m.BracketedPaste
	case 2026:
		return &m.Synchronized
	}
	return nil
}

// SetPrivateMode obeys DECSET, or DECRST, of a mode that is more than a flag.
func (g *Grid) SetPrivateMode(mode int, set bool) {
	m := &g.Modes
	switch mode {
	case 2:
		if set {
			for level := range g.Charsets.G {
				g.Charsets.designate(uint8(level), CharsetASCII)
			}
		}
	case 6:
		m.Origin = set
		g.Tangle()
		g.GoTo(0, 0)
	case 9, 1000, 1002, 1003:
		if m.Mouse = 0; set {
			m.Mouse = mode
		}
	case 12:
		m.Blink = toggled(set)
	case 25:
		m.Hidden = !set
	case 1006, 1016:
		if m.MouseEncoding = 0; set {
			m.MouseEncoding = mode
		}
	case 1048:
		g.saveOrRestore(set)
	case 47, 1047, 1049:
		g.Tangle()
		if set {
			if mode == 1049 {
				g.SaveCursor()
			}
			g.UseAlternate()
			return
		}
		g.UseNormal()
		if mode == 1049 {
			g.RestoreCursor()
		}
	}
}

func (g *Grid) saveOrRestore(save bool) {
	if save {
		g.SaveCursor()
	} else {
		g.Tangle()
		g.RestoreCursor()
	}
}

// UseAlternate shows the alternate screen, empty, unless it is shown.
func (g *Grid) UseAlternate() {
	if g.Buf == g.Alt {
		return
	}
	g.Alt.fillRows(g.Pen.Erased())
	g.Alt.X, g.Alt.Y = g.Normal.X, g.Normal.Y
	g.Buf = g.Alt
}

// UseNormal shows the normal screen, and empties the alternate one.
func (g *Grid) UseNormal() {
	if g.Buf == g.Normal {
		return
	}
	g.Normal.X, g.Normal.Y = g.Alt.X, g.Alt.Y
	g.Alt.clear()
	g.Buf = g.Normal
}

// tangle reports whether, as modes are, printing moves or overwrites text.
func (m *Modes) tangle() bool { return m.Insert || !m.Wraparound }

// SetCursorStyle obeys DECSCUSR. Of an unknown style xterm.js takes whether it
// blinks.
func (m *Modes) SetCursorStyle(style int) {
	if style == 0 {
		m.shape, m.shapeBlink = 0, Unset
		return
	}
	if style <= 6 {
		m.shape = (style + 1) / 2
	}
	m.shapeBlink = toggled(style%2 == 1)
}

// CursorStyle returns the parameter of DECSCUSR for what it has set.
func (m *Modes) CursorStyle() int {
	style := 2 * m.shape
	switch {
	case m.shapeBlink == Unset:
		return 0
	case m.shape == 0:
		style = 8 // no style, but steady
	}
	if m.shapeBlink == On {
		style--
	}
	return style
}

// SoftReset obeys DECSTR.
func (g *Grid) SoftReset() {
	b := g.Buf
	b.Top, b.Bottom = 0, b.Rows-1
	g.Pen = Pen{}
	g.UsePen()
	g.resetModes()
	g.Modes.Hidden = false
	g.Charsets = Charsets{}
	b.Saved = SavedCursor{Y: b.ViewerBase()}
}

// resetModes resets what both kinds of reset do.
func (g *Grid) resetModes() {
	old := g.Modes
	g.Modes = InitialModes
	g.Modes.NewLine, g.Modes.Blink, g.Modes.Hidden = old.NewLine, old.Blink, old.Hidden
	g.Modes.Mouse, g.Modes.MouseEncoding = old.Mouse, old.MouseEncoding
}

// reset obeys RIS, which leaves title, colours and three modes alone.
func (g *Grid) reset() {
	cols, rows := g.Size()
	g.Normal.reset(cols, rows)
	g.Alt.reset(cols, rows)
	g.Normal.fillRows(Cell{})
	g.Buf = g.Normal
	g.Pen = Pen{}
	g.UsePen()
	g.resetModes()
	g.Modes.Mouse, g.Modes.MouseEncoding = 0, 0
	g.Charsets = Charsets{}
	g.tangled, g.Returned = false, false
}

// States of a mode in DECRPM.
const (
	modeUnknown = iota
	modeSet
	modeReset
	modeAlwaysSet
	modeAlwaysReset
)

func setOrReset(set bool) int {
	if set {
		return modeSet
	}
	return modeReset
}

// State returns what DECRPM says of a mode that SM sets.
func (m *Modes) State(mode int) int {
	switch mode {
	case 2:
		return modeAlwaysReset
	case 4:
		return setOrReset(m.Insert)
	case 12:
		return modeAlwaysSet
	case 20:
		return setOrReset(m.NewLine)
	}
	return modeUnknown
}

// PrivateModeState returns what DECRPM says of a mode that DECSET sets.
func (g *Grid) PrivateModeState(mode int) int {
	m := &g.Modes
	if flag := m.Private(mode); flag != nil {
		return setOrReset(*flag)
	}
	switch mode {
	case 6:
		return setOrReset(m.Origin)
	case 8:
		return modeAlwaysSet
	case 9, 1000, 1002, 1003:
		return setOrReset(m.Mouse == mode)
	case 12:
		return setOrReset(m.Blink == On)
	case 25:
		return setOrReset(!m.Hidden)
	case 67, 1005, 1015:
		return modeAlwaysReset
	case 1006, 1016:
		return setOrReset(m.MouseEncoding == mode)
	case 1048:
		return modeSet
	case 47, 1047, 1049:
		return setOrReset(g.Buf == g.Alt)
	}
	return modeUnknown
}
