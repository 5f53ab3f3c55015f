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

func (s *Screen) setPrivateMode(mode int, set bool) {
	m := &s.modes
	switch mode {
	case 2:
		if set {
			for level := range s.charsets.g {
				s.charsets.designate(uint8(level), charsetASCII)
			}
		}
	case 6:
		m.origin = set
		s.tangle()
		s.goTo(0, 0)
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
		s.saveOrRestore(set)
	case 47, 1047, 1049:
		s.tangle()
		if set {
			if mode == 1049 {
				s.saveCursor()
			}
			s.useAlternate()
			return
		}
		s.useNormal()
		if mode == 1049 {
			s.restoreCursor()
		}
	}
}

func (s *Screen) saveOrRestore(save bool) {
	if save {
		s.saveCursor()
	} else {
		s.tangle()
		s.restoreCursor()
	}
}

func (s *Screen) useAlternate() {
	if s.buf == s.alt {
		return
	}
	s.alt.fillRows(s.eraseCell())
	s.alt.x, s.alt.y = s.normal.x, s.normal.y
	s.buf = s.alt
}

func (s *Screen) useNormal() {
	if s.buf == s.normal {
		return
	}
	s.normal.x, s.normal.y = s.alt.x, s.alt.y
	s.alt.clear()
	s.buf = s.normal
}

// setCursorStyle obeys DECSCUSR. Of an unknown style xterm.js takes whether it
// blinks.
func (s *Screen) setCursorStyle(style int) {
	m := &s.modes
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
func (s *Screen) softReset() {
	b := s.buf
	b.top, b.bottom = 0, b.rows-1
	s.pen = pen{}
	s.usePen()
	s.resetModes()
	s.modes.hidden = false
	s.charsets = charsets{}
	b.saved = savedCursor{y: b.viewerBase()}
}

// resetModes resets what both kinds of reset do.
func (s *Screen) resetModes() {
	old := s.modes
	s.modes = initialModes
	s.modes.newLine, s.modes.blink, s.modes.hidden = old.newLine, old.blink, old.hidden
	s.modes.mouse, s.modes.mouseEncoding = old.mouse, old.mouseEncoding
}

// reset obeys RIS, which leaves title, colours and three modes alone.
func (s *Screen) reset() {
	cols, rows := s.Size()
	s.normal.reset(cols, rows)
	s.alt.reset(cols, rows)
	s.normal.fillRows(cell{})
	s.buf = s.normal
	s.pen = pen{}
	s.usePen()
	s.resetModes()
	s.modes.mouse, s.modes.mouseEncoding = 0, 0
	s.charsets = charsets{}
	s.tangled, s.returned = false, false
}
