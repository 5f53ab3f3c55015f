package screen

// Modes are the modes of a terminal, but for that of the origin, which goes with
// the margins, and on which screen it is. The zero value stands for those of a
// new terminal.
type Modes struct {
	modes     modes
	alternate bool
	known     bool
}

// AppendHandover appends bytes that take a terminal in the state of s from one
// program to another: whatever is unfinished is given up, modes, margins and pen
// become those of a new terminal, the normal screen is shown, and the cursor is
// at the beginning of a line. Then to is set, on an empty alternate screen if it
// is of one. Text stays. It returns the modes from before as well.
func (s *Screen) AppendHandover(dst []byte, to Modes) ([]byte, Modes) {
	was := Modes{modes: s.modes, alternate: s.buf == s.alt, known: true}
	was.modes.origin = false
	p := &painter{grid: &s.grid, dst: dst}
	p.control("\x18")
	x := s.buf.x
	if was.alternate {
		p.private(1049, false)
		x = s.normal.saved.x
	}
	for _, mode := range []int{s.modes.mouse, s.modes.mouseEncoding} {
		if mode != 0 {
			p.private(mode, false)
		}
	}
	if s.modes.newLine {
		p.csi("l", 20)
	}
	if s.modes.cursorStyle() != 0 {
		p.csi(" q", 0)
	}
	p.control("\x1b[!p")
	if x > 0 {
		p.control("\r\n")
	}
	if !to.known {
		return p.dst, was
	}
	if to.alternate {
		p.private(1049, true)
	}
	p.grid = &grid{modes: to.modes}
	p.paintModes()
	return p.dst, was
}
