package grid

const (
	bs = 0x08
	ht = 0x09
	lf = 0x0a
	vt = 0x0b
	ff = 0x0c
	cr = 0x0d
	so = 0x0e
	si = 0x0f

	c1IND = 0x84
	c1NEL = 0x85
	c1HTS = 0x88
)

// Execute obeys a C0 or C1 control.
func (g *Grid) Execute(c rune) {
	b := g.Buf
	switch c {
	case lf, vt, ff:
		g.lineFeed()
	case cr:
		g.Returned = g.Returned || b.X > 0
		b.X = 0
	case bs:
		g.Tangle()
		g.backspace()
	case ht:
		if b.X < b.Cols {
			b.X = b.Tabs.next(b.X, b.Cols)
		}
	case so:
		g.Charsets.shift(1)
	case si:
		g.Charsets.shift(0)
	case c1IND:
		g.index()
	case c1NEL:
		b.X = 0
		g.index()
	case c1HTS:
		b.Tabs.set(b.X)
	default:
		g.Tangle() // it parts bytes of the output, and no cells
	}
	g.Join, g.InRun = 0, false
}

// EscapeSequence obeys ESC and a final character.
func (g *Grid) EscapeSequence(final byte) {
	b := g.Buf
	switch final {
	case '7':
		g.SaveCursor()
	case '8':
		g.Tangle()
		g.RestoreCursor()
	case 'D':
		g.index()
	case 'E':
		b.X = 0
		g.index()
	case 'H':
		b.Tabs.set(b.X)
	case 'M':
		g.Tangle()
		g.reverseIndex()
	case '=':
		g.Modes.Keypad = true
	case '>':
		g.Modes.Keypad = false
	case 'c':
		g.reset()
	case 'n', '}':
		g.Charsets.shift(2)
	case 'o', '|':
		g.Charsets.shift(3)
	case '~':
		g.Charsets.shift(1)
	}
}

// EscapeIntermediate obeys ESC, an intermediate character and a final one.
func (g *Grid) EscapeIntermediate(intermediate, final byte) {
	level := uint8(0)
	switch intermediate {
	case '#':
		if final == '8' {
			g.alignmentTest()
		}
		return
	case '%':
		if final == '@' || final == 'G' {
			g.Charsets.shift(0)
			g.Charsets.designate(0, CharsetASCII)
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
	for set, finals := range Designators {
		for _, f := range []byte(finals) {
			if f == final {
				g.Charsets.designate(level, Charset(set))
			}
		}
	}
}

// ShiftColumns inserts n columns between the margins, or removes them: at the
// cursor, or at the left edge.
func (g *Grid) ShiftColumns(insert, atEdge bool, n int) {
	g.Tangle()
	b := g.Buf
	if b.Y < b.Top || b.Y > b.Bottom {
		return
	}
	x := b.X
	if atEdge {
		x = 0
	}
	for y := b.Top; y <= b.Bottom; y++ {
		l := b.Line(y)
		if insert {
			l.Insert(x, n, g.Pen.Erased())
		} else {
			l.Remove(x, n, g.Pen.Erased())
		}
		l.Wrapped = false
	}
}
