package grid

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
