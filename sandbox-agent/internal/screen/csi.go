package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// dispatchEscape obeys an escape sequence that ends with in[i].
func (s *Screen) dispatchEscape(final byte, i int) {
	if s.maybe && s.closing && s.nCollect == 0 && final == '\\' {
		s.state = ground
		s.remove(i + 1)
		return
	}
	s.clearUp()
	s.state = ground
	s.grid.InRun = false
	switch s.nCollect {
	case 0:
		s.grid.EscapeSequence(final)
	case 1:
		s.grid.EscapeIntermediate(s.collect[0], final)
	}
	s.grid.Join = 0
}

// dispatchCSI obeys a control sequence that ends with in[i].
func (s *Screen) dispatchCSI(final byte, i int) {
	s.state = ground
	if s.maybe && s.answerCSI(final, i+1) {
		return
	}
	if s.limitCount(final, i+1) {
		return
	}
	s.spareErase(final, i+1)
	s.spareAlternate(final, i+1)
	s.clearUp()
	s.grid.InRun = false
	if s.nCollect == 0 {
		s.controlSequence(final)
	} else {
		s.markedSequence(s.identity(final))
	}
	s.grid.Join = 0
}

// tangling has a bit, counted from '@', for each final of a control sequence
// that moves the cursor other than forward, or what is on the screen, or that
// prints.
const tangling uint64 = 1 | 1<<('A'-'@') | 1<<('B'-'@') | 1<<('D'-'@') | 1<<('E'-'@') |
	1<<('F'-'@') | 1<<('G'-'@') | 1<<('H'-'@') | 1<<('L'-'@') | 1<<('M'-'@') | 1<<('P'-'@') |
	1<<('S'-'@') | 1<<('T'-'@') | 1<<('Z'-'@') | 1<<('`'-'@') | 1<<('b'-'@') | 1<<('d'-'@') |
	1<<('e'-'@') | 1<<('f'-'@') | 1<<('r'-'@') | 1<<('u'-'@')

// controlSequence obeys a control sequence without private marker and
// intermediate characters.
func (s *Screen) controlSequence(final byte) {
	b, p := s.grid.Buf, &s.params
	n := p.count()
	if tangling>>(final-'@')&1 != 0 || b.X >= b.Cols && final != 'm' { // many go back from there
		s.grid.Tangle()
	}
	switch final {
	case 'A', 'F':
		s.grid.Up(n)
	case 'B', 'E':
		s.grid.Down(n)
	case 'C', 'a':
		s.grid.Move(n, 0)
	case 'D':
		s.grid.Move(-n, 0)
	case 'G', '`':
		s.grid.GoTo(n-1, b.Y)
	case 'H', 'f':
		s.grid.GoTo(max(p.get(1), 1)-1, n-1)
	case 'd':
		s.grid.GoTo(b.X, n-1)
	case 'e':
		s.grid.Move(0, n)
	case 'I', 'Z':
		b.Tab(n, final == 'Z')
	case 'g':
		b.ClearTabs(p.get(0))
	case 'h', 'l':
		s.setModes(final == 'h')
	case 'm':
		p.selectRendition(&s.grid.Pen)
		s.grid.UsePen()
	case 'r':
		s.grid.SetMargins(n, p.get(1))
	case 's':
		s.grid.SaveCursor()
	case 'u':
		s.grid.RestoreCursor()
	default:
		s.edit(final, n)
	}
	if final == 'E' || final == 'F' {
		b.X = 0
	}
}

// edit obeys the control sequences that change cells.
func (s *Screen) edit(final byte, n int) {
	b := s.grid.Buf
	switch final {
	case '@':
		s.grid.Confine(b.Cols - 1)
		b.Line(b.Y).Insert(b.X, n, s.grid.Pen.Erased())
	case 'P':
		s.grid.Confine(b.Cols - 1)
		b.Line(b.Y).Remove(b.X, n, s.grid.Pen.Erased())
	case 'X':
		s.grid.Confine(b.Cols - 1)
		b.Line(b.Y).Erase(b.X, b.X+n, s.grid.Pen.Erased(), false)
	case 'J':
		s.grid.EraseDisplay(s.params.get(0), false)
	case 'K':
		s.grid.EraseLine(s.params.get(0), false)
	case 'L', 'M':
		s.grid.Confine(b.Cols - 1)
		if b.Y < b.Top || b.Y > b.Bottom {
			return
		}
		if final == 'L' {
			b.InsertLines(b.Y, n, s.grid.Pen.Erased())
		} else {
			b.RemoveLines(b.Y, n, s.grid.Pen.Erased())
		}
		b.X = 0
	case 'S':
		b.RemoveLines(b.Top, n, s.grid.Pen.Erased())
	case 'T':
		b.InsertLines(b.Top, n, grid.Cell{})
	case 'b':
		s.grid.Repeat(n)
	}
}

// markedSequence obeys the other control sequences.
func (s *Screen) markedSequence(id uint32) {
	p := &s.params
	switch id {
	case query | 'h', query | 'l':
		s.setPrivateModes(id == query|'h')
	case query | 'J':
		s.grid.EraseDisplay(p.get(0), true)
	case query | 'K':
		s.grid.EraseLine(p.get(0), true)
	case bang | 'p':
		s.grid.SoftReset()
	case space | 'q':
		s.grid.Modes.SetCursorStyle(p.get(0))
	case quote | 'q':
		switch p.get(0) {
		case 0, 2:
			s.grid.Pen.Bg &^= grid.FlagProtected
		case 1:
			s.grid.Pen.Bg |= grid.FlagProtected
		}
		s.grid.UsePen()
	case space | '@', space | 'A', tick | '}', tick | '~':
		s.grid.ShiftColumns(id == space|'A' || id == tick|'}', id == space|'A' || id == space|'@', p.count())
	}
}

func (s *Screen) setModes(set bool) {
	p := &s.params
	for i := range p.n {
		switch p.get(i) {
		case 4:
			s.grid.Modes.Insert = set
			s.grid.Tangle()
		case 20:
			s.grid.Modes.NewLine = set
		}
	}
}

func (s *Screen) setPrivateModes(set bool) {
	p := &s.params
	for i := range p.n {
		mode := p.get(i)
		if flag := s.grid.Modes.Private(mode); flag != nil {
			*flag = set
			if mode == 7 || mode == 45 { // of wrapping
				s.grid.Tangle()
			}
			continue
		}
		s.grid.SetPrivateMode(mode, set)
	}
}
