package screen

const (
	enq = 0x05
	bs  = 0x08
	ht  = 0x09
	lf  = 0x0a
	vt  = 0x0b
	ff  = 0x0c
	cr  = 0x0d
	so  = 0x0e
	si  = 0x0f

	c1IND = 0x84
	c1NEL = 0x85
	c1HTS = 0x88
)

// execute obeys a C0 or C1 control.
func (g *grid) execute(c rune) {
	b := g.buf
	switch c {
	case lf, vt, ff:
		g.lineFeed()
	case cr:
		g.returned = g.returned || b.x > 0
		b.x = 0
	case bs:
		g.tangle()
		g.backspace()
	case ht:
		if b.x < b.cols {
			b.x = b.tabs.next(b.x, b.cols)
		}
	case so:
		g.charsets.shift(1)
	case si:
		g.charsets.shift(0)
	case c1IND:
		g.index()
	case c1NEL:
		b.x = 0
		g.index()
	case c1HTS:
		b.tabs.set(b.x)
	default:
		g.tangle() // it parts bytes of the output, and no cells
	}
	g.join, g.inRun = 0, false
}

// dispatchEscape obeys an escape sequence that ends with in[i].
func (s *Screen) dispatchEscape(final byte, i int) {
	if s.maybe && s.closing && s.nCollect == 0 && final == '\\' {
		s.state = ground
		s.remove(i + 1)
		return
	}
	s.clearUp()
	s.state = ground
	s.inRun = false
	switch s.nCollect {
	case 0:
		s.escapeSequence(final)
	case 1:
		s.escapeIntermediate(s.collect[0], final)
	}
	s.join = 0
}

func (g *grid) escapeSequence(final byte) {
	b := g.buf
	switch final {
	case '7':
		g.saveCursor()
	case '8':
		g.tangle()
		g.restoreCursor()
	case 'D':
		g.index()
	case 'E':
		b.x = 0
		g.index()
	case 'H':
		b.tabs.set(b.x)
	case 'M':
		g.tangle()
		g.reverseIndex()
	case '=':
		g.modes.keypad = true
	case '>':
		g.modes.keypad = false
	case 'c':
		g.reset()
	case 'n', '}':
		g.charsets.shift(2)
	case 'o', '|':
		g.charsets.shift(3)
	case '~':
		g.charsets.shift(1)
	}
}

func (g *grid) escapeIntermediate(intermediate, final byte) {
	level := uint8(0)
	switch intermediate {
	case '#':
		if final == '8' {
			g.alignmentTest()
		}
		return
	case '%':
		if final == '@' || final == 'G' {
			g.charsets.shift(0)
			g.charsets.designate(0, charsetASCII)
		}
		return
	case '(':
	case ')', '-':
		level = 1
	case '*', '.':
		level = 2
	case '+':
		level = 3
	default:
		return
	}
	for set, finals := range designators {
		for _, f := range []byte(finals) {
			if f == final {
				g.charsets.designate(level, charset(set))
			}
		}
	}
}

// Control sequences by what identity returns for them.
const (
	dollar = '$' << 8
	quote  = '"' << 8
	tick   = '\'' << 8
	space  = ' ' << 8
	query  = '?' << 8
	equals = '=' << 8
	more   = '>' << 8
	bang   = '!' << 8
)

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
	s.inRun = false
	if s.nCollect == 0 {
		s.controlSequence(final)
	} else {
		s.markedSequence(s.identity(final))
	}
	s.join = 0
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
	b, p := s.buf, &s.params
	n := p.count()
	if tangling>>(final-'@')&1 != 0 || b.x >= b.cols && final != 'm' { // many go back from there
		s.tangle()
	}
	switch final {
	case 'A', 'F':
		s.up(n)
	case 'B', 'E':
		s.down(n)
	case 'C', 'a':
		s.move(n, 0)
	case 'D':
		s.move(-n, 0)
	case 'G', '`':
		s.goTo(n-1, b.y)
	case 'H', 'f':
		s.goTo(max(p.get(1), 1)-1, n-1)
	case 'd':
		s.goTo(b.x, n-1)
	case 'e':
		s.move(0, n)
	case 'I', 'Z':
		b.tab(n, final == 'Z')
	case 'g':
		b.clearTabs(p.get(0))
	case 'h', 'l':
		s.setModes(final == 'h')
	case 'm':
		s.pen.selectRendition(p)
		s.usePen()
	case 'r':
		s.setMargins(n, p.get(1))
	case 's':
		s.saveCursor()
	case 'u':
		s.restoreCursor()
	default:
		s.edit(final, n)
	}
	if final == 'E' || final == 'F' {
		b.x = 0
	}
}

// edit obeys the control sequences that change cells.
func (s *Screen) edit(final byte, n int) {
	b := s.buf
	switch final {
	case '@':
		s.confine(b.cols - 1)
		b.line(b.y).insert(b.x, n, s.pen.erased())
	case 'P':
		s.confine(b.cols - 1)
		b.line(b.y).remove(b.x, n, s.pen.erased())
	case 'X':
		s.confine(b.cols - 1)
		b.line(b.y).erase(b.x, b.x+n, s.pen.erased(), false)
	case 'J':
		s.eraseDisplay(s.params.get(0), false)
	case 'K':
		s.eraseLine(s.params.get(0), false)
	case 'L', 'M':
		s.confine(b.cols - 1)
		if b.y < b.top || b.y > b.bottom {
			return
		}
		if final == 'L' {
			b.insertLines(b.y, n, s.pen.erased())
		} else {
			b.removeLines(b.y, n, s.pen.erased())
		}
		b.x = 0
	case 'S':
		b.removeLines(b.top, n, s.pen.erased())
	case 'T':
		b.insertLines(b.top, n, cell{})
	case 'b':
		s.repeat(n)
	}
}

// markedSequence obeys the other control sequences.
func (s *Screen) markedSequence(id uint32) {
	p := &s.params
	switch id {
	case query | 'h', query | 'l':
		s.setPrivateModes(id == query|'h')
	case query | 'J':
		s.eraseDisplay(p.get(0), true)
	case query | 'K':
		s.eraseLine(p.get(0), true)
	case bang | 'p':
		s.softReset()
	case space | 'q':
		s.modes.setCursorStyle(p.get(0))
	case quote | 'q':
		switch p.get(0) {
		case 0, 2:
			s.pen.bg &^= flagProtected
		case 1:
			s.pen.bg |= flagProtected
		}
		s.usePen()
	case space | '@', space | 'A', tick | '}', tick | '~':
		s.shiftColumns(id, p.count())
	}
}

// shiftColumns inserts or removes columns between the margins.
func (g *grid) shiftColumns(id uint32, n int) {
	g.tangle()
	b := g.buf
	if b.y < b.top || b.y > b.bottom {
		return
	}
	x := b.x
	if id == space|'@' || id == space|'A' {
		x = 0
	}
	for y := b.top; y <= b.bottom; y++ {
		l := b.line(y)
		if id == space|'A' || id == tick|'}' {
			l.insert(x, n, g.pen.erased())
		} else {
			l.remove(x, n, g.pen.erased())
		}
		l.wrapped = false
	}
}
