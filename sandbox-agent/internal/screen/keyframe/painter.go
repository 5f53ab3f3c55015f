package keyframe

import (
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

// anyLink stands for a hyperlink whose address doesn't matter.
const anyLink = ^uint32(0)

// blot is a wide character that is to be overwritten.
const blot = "\u3000"

// A painter writes what makes the grid of a terminal equal to its own. The
// terminal is in its initial state but for what the painter knows of it.
type painter struct {
	grid   *grid.Grid // is only read
	dst    []byte
	pen    grid.Pen
	cols   int
	x      int        // of the cursor, cols when the next character wraps
	join   grid.Joint // of the character before
	early  bool       // the saved cursor is set, and was while the rows were written
	locked bool       // the saved cursor must stay

	savedRow int    // of those that are written, where it is set early; -1 for none
	marked   []bool // cells of the row in work that hold what doesn't belong there
}

// control appends a control or sequence.
func (p *painter) control(seq string) {
	p.dst = append(p.dst, seq...)
	p.join = 0
}

// csi appends a control sequence, with its final and what is before that.
func (p *painter) csi(end string, params ...int) {
	p.control("\x1b[")
	for i, n := range params {
		if i > 0 {
			p.dst = append(p.dst, ';')
		}
		p.dst = grid.AppendInt(p.dst, n)
	}
	p.dst = append(p.dst, end...)
}

// put appends text that isn't to join what is before, and that doesn't matter.
func (p *painter) put(text string) {
	if p.join != 0 {
		p.control("\x1b\\")
	}
	p.dst = append(p.dst, text...)
}

// to moves the cursor within its row.
func (p *painter) to(x int) {
	switch {
	case x == p.x:
		return
	case x == 0:
		p.control("\r")
	default:
		p.csi("G", x+1)
	}
	p.x = x
}

// use makes the terminal's pen want. An irregular one takes the saved cursor.
func (p *painter) use(want grid.Pen) {
	if p.pen == want {
		return
	}
	if want.Regular() {
		p.useRegular(want)
		return
	}
	p.useRegular(restorable(want))
	if p.locked {
		return
	}
	p.control("\x1b7")
	p.early = false
	p.useRest(want)
	p.control("\x1b8")
	p.pen = want
}

// useOf is use of the pen that c was written with.
func (p *painter) useOf(c *grid.Cell) {
	if c.Ext == 0 && c.Fg&grid.FlagUnderline == 0 && p.pen == (grid.Pen{Fg: c.Fg, Bg: c.Bg}) {
		return // most cells look like the one before
	}
	p.use(p.grid.Exts.PenOf(c))
}

// restorable returns a regular pen of which saving and restoring makes those
// parts of want.
func restorable(p grid.Pen) grid.Pen {
	p.Color, p.Underline = 0, grid.UnderlineNone
	switch {
	case p.Fg&grid.FlagUnderline != 0:
		p.Underline = grid.UnderlineSingle
	case p.Bg&grid.FlagExtended == 0:
		p.Link = 0
	case p.Link == 0:
		p.Link = anyLink
	}
	return p
}

// useRest makes the parts of the terminal's pen those of want that aren't
// saved with the cursor.
func (p *painter) useRest(want grid.Pen) {
	want.Fg, want.Bg = 0, 0
	if want.Underline != grid.UnderlineNone {
		want.Fg = grid.FlagUnderline
	}
	want.Extend()
	p.useRegular(want)
}

func (p *painter) useRegular(want grid.Pen) {
	if want.Link != p.pen.Link {
		p.openLink(want.Link)
		p.pen.Link = want.Link
		p.pen.Extend()
	}
	if p.pen == want {
		return
	}
	p.control("\x1b[")
	p.dst = append(want.AppendSGR(append(p.dst, '0')), 'm')
	if want.Bg&grid.FlagProtected != 0 {
		p.csi("\"q", 1)
	}
	p.pen = want
}

func (p *painter) openLink(n uint32) {
	p.control("\x1b]8;")
	switch {
	case n == anyLink:
		p.dst = append(p.dst, ";x"...)
	case n != 0:
		l := p.grid.Links.List[n]
		if l.ID != "" {
			p.dst = append(append(p.dst, "id="...), l.ID...)
		}
		p.dst = append(append(p.dst, ';'), l.URI...)
	default:
		p.dst = append(p.dst, ';')
	}
	p.dst = append(p.dst, '\a')
}

// print appends the text of a cell at the cursor.
func (p *painter) print(c *grid.Cell) {
	var buf [8]rune
	for i, r := range p.grid.Clusters.AppendRunes(buf[:0], c.Content) {
		next, joins := p.join.Follow(r)
		if joins != (i > 0) {
			if i > 0 {
				break // in a cell of its own it would be more than that
			}
			p.control("\x1b\\")
			next, _ = p.join.Follow(r)
		}
		p.dst = utf8.AppendRune(p.dst, r)
		p.join = next
	}
	p.x += c.Width()
}

// private sets or resets a DEC private mode.
func (p *painter) private(mode int, set bool) {
	p.control("\x1b[?")
	final := byte('l')
	if set {
		final = 'h'
	}
	p.dst = grid.AppendInt(p.dst, mode, final)
}

// goTo moves the cursor to a row, in origin mode below the upper margin, and
// a column.
func (p *painter) goTo(y, x int) {
	p.csi("H", y+1, x+1)
	p.x = x
}

func (p *painter) designate(level int, set grid.Charset) {
	p.control("\x1b" + "()*+"[level:level+1] + grid.Designators[set][:1])
}
