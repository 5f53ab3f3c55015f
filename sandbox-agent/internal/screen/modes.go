package screen

// modes are what SM, RM, DECSET, DECRST and their like choose.
type modes struct {
	insert, newLine   bool
	cursorKeys        bool
	keypad            bool
	origin            bool
	wraparound        bool
	reverseWraparound bool
	focus             bool
	bracketedPaste    bool
	synchronized      bool
	hidden            bool // the cursor
	mouse             int  // DECSET number of the events reported, 0 for none
	mouseEncoding     int  // likewise
	shape             int  // of the cursor: block, underline, bar; 0 for the viewer's own
	shapeBlink        toggle
	blink             toggle // by DECSET 12
}

// A toggle is on, off, or up to the viewer.
type toggle uint8

const (
	unset toggle = iota
	on
	off
)

func toggled(yes bool) toggle {
	if yes {
		return on
	}
	return off
}

var initialModes = modes{wraparound: true}

func (s *Screen) setModes(set bool) {
	p := &s.params
	for i := range p.n {
		switch p.get(i) {
		case 4:
			s.modes.insert = set
			s.tangle()
		case 20:
			s.modes.newLine = set
		}
	}
}

func (s *Screen) setPrivateModes(set bool) {
	p := &s.params
	for i := range p.n {
		mode := p.get(i)
		if flag := s.modes.private(mode); flag != nil {
			*flag = set
			if mode == 7 || mode == 45 { // of wrapping
				s.tangle()
			}
			continue
		}
		s.setPrivateMode(mode, set)
	}
}

// private returns the flag of a mode that is nothing but a flag.
func (m *modes) private(mode int) *bool {
	switch mode {
	case 1:
		return &m.cursorKeys
	case 7:
		return &m.wraparound
	case 45:
		return &m.reverseWraparound
	case 66:
		return &m.keypad
	case 1004:
		return &m.focus
	case 2004:
		return &m.bracketedPaste
	case 2026:
		return &m.synchronized
	}
	return nil
}

func (g *grid) setPrivateMode(mode int, set bool) {
	m := &g.modes
	switch mode {
	case 2:
		if set {
			for level := range g.charsets.g {
				g.charsets.designate(uint8(level), charsetASCII)
			}
		}
	case 6:
		m.origin = set
		g.tangle()
		g.goTo(0, 0)
	case 9, 1000, 1002, 1003:
		if m.mouse = 0; set {
			m.mouse = mode
		}
	case 12:
		m.blink = toggled(set)
	case 25:
		m.hidden = !set
	case 1006, 1016:
		if m.mouseEncoding = 0; set {
			m.mouseEncoding = mode
		}
	case 1048:
		g.saveOrRestore(set)
	case 47, 1047, 1049:
		g.tangle()
		if set {
			if mode == 1049 {
				g.saveCursor()
			}
			g.useAlternate()
			return
		}
		g.useNormal()
		if mode == 1049 {
			g.restoreCursor()
		}
	}
}

func (g *grid) saveOrRestore(save bool) {
	if save {
		g.saveCursor()
	} else {
		g.tangle()
		g.restoreCursor()
	}
}

func (g *grid) useAlternate() {
	if g.buf == g.alt {
		return
	}
	g.alt.fillRows(g.pen.erased())
	g.alt.x, g.alt.y = g.normal.x, g.normal.y
	g.buf = g.alt
}

func (g *grid) useNormal() {
	if g.buf == g.normal {
		return
	}
	g.normal.x, g.normal.y = g.alt.x, g.alt.y
	g.alt.clear()
	g.buf = g.normal
}

// tangle reports whether, as modes are, printing moves or overwrites text.
func (m *modes) tangle() bool { return m.insert || !m.wraparound }

// setCursorStyle obeys DECSCUSR. Of an unknown style xterm.js takes whether it
// blinks.
func (m *modes) setCursorStyle(style int) {
	if style == 0 {
		m.shape, m.shapeBlink = 0, unset
		return
	}
	if style <= 6 {
		m.shape = (style + 1) / 2
	}
	m.shapeBlink = toggled(style%2 == 1)
}

// cursorStyle returns the parameter of DECSCUSR for what it has set.
func (m *modes) cursorStyle() int {
	style := 2 * m.shape
	switch {
	case m.shapeBlink == unset:
		return 0
	case m.shape == 0:
		style = 8 // no style, but steady
	}
	if m.shapeBlink == on {
		style--
	}
	return style
}

// softReset obeys DECSTR.
func (g *grid) softReset() {
	b := g.buf
	b.top, b.bottom = 0, b.rows-1
	g.pen = pen{}
	g.usePen()
	g.resetModes()
	g.modes.hidden = false
	g.charsets = charsets{}
	b.saved = savedCursor{y: b.viewerBase()}
}

// resetModes resets what both kinds of reset do.
func (g *grid) resetModes() {
	old := g.modes
	g.modes = initialModes
	g.modes.newLine, g.modes.blink, g.modes.hidden = old.newLine, old.blink, old.hidden
	g.modes.mouse, g.modes.mouseEncoding = old.mouse, old.mouseEncoding
}

// reset obeys RIS, which leaves title, colours and three modes alone.
func (g *grid) reset() {
	cols, rows := g.Size()
	g.normal.reset(cols, rows)
	g.alt.reset(cols, rows)
	g.normal.fillRows(cell{})
	g.buf = g.normal
	g.pen = pen{}
	g.usePen()
	g.resetModes()
	g.modes.mouse, g.modes.mouseEncoding = 0, 0
	g.charsets = charsets{}
	g.tangled, g.returned = false, false
}
