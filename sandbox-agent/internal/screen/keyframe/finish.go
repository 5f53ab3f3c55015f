package keyframe

import (
	"unicode/utf8"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"
)

func (p *painter) paintModes() {
	m := &p.grid.Modes
	for _, mode := range []int{1, 7, 45, 66, 1004, 2004, 2026} {
		if set := *m.Private(mode); set != *grid.InitialModes.Private(mode) {
			p.private(mode, set)
		}
	}
	for _, mode := range []int{m.Mouse, m.MouseEncoding} {
		if mode != 0 {
			p.private(mode, true)
		}
	}
	if m.Blink != grid.Unset {
		p.private(12, m.Blink == grid.On)
	}
	if m.Hidden {
		p.private(25, false)
	}
	if style := m.CursorStyle(); style != 0 {
		p.csi(" q", style)
	}
	if m.NewLine {
		p.csi("h", 20)
	}
	if m.Insert {
		p.csi("h", 4)
	}
}

// finishPen makes the pen what it is. It leaves the saved cursor alone.
func (p *painter) finishPen() {
	want := p.grid.Pen
	switch {
	case p.pen == want:
	case want.Regular():
		p.useRegular(want)
	default:
		p.adjust(want)
	}
}

// adjust changes what can be changed of an irregular pen one by one.
func (p *painter) adjust(want grid.Pen) {
	if (want.Bg^p.pen.Bg)&grid.FlagExtended != 0 {
		p.openLink(want.Link) // even of none it says whether there is an extension
	}
	p.control("\x1b[")
	for _, f := range [...]struct {
		on      uint32
		yes, no string
	}{
		{want.Fg & grid.FlagBold, "22;1", "22"}, {want.Bg & grid.FlagDim, "2", ""},
		{want.Bg & grid.FlagItalic, "3", "23"}, {want.Fg & grid.FlagBlink, "5", "25"},
		{want.Fg & grid.FlagInverse, "7", "27"}, {want.Fg & grid.FlagInvisible, "8", "28"},
		{want.Fg & grid.FlagStrike, "9", "29"}, {want.Bg & grid.FlagOverline, "53", "55"},
	} {
		set := f.no
		if f.on != 0 {
			set = f.yes
		}
		if set != "" {
			p.dst = append(append(p.dst, set...), ';')
		}
	}
	p.dst = append(p.dst, "39;49"...)
	p.dst = grid.AppendColor(p.dst, want.Fg, 30)
	p.dst = grid.AppendColor(p.dst, want.Bg, 40)
	p.dst = append(p.dst, 'm')
	protect := 0
	if want.Bg&grid.FlagProtected != 0 {
		protect = 1
	}
	p.csi("\"q", protect)
	p.pen = want
}

// lastPrinted returns the cell of the character that was printed just before,
// to which the next may be joined, if printing it again is the same.
func (p *painter) lastPrinted() *grid.Cell {
	b, s := p.grid.Buf, p.grid
	x := b.X - s.Join.Width()
	if s.Join == 0 || x < 0 || x >= p.cols || s.Modes.Origin && (b.Y < b.Top || b.Y > b.Bottom) {
		return nil
	}
	c := &b.Line(b.Y).Cells[x]
	if c.Empty() || c.Fg != s.PenCell.Fg || c.Bg != s.PenCell.Bg || c.Ext != s.PenCell.Ext {
		return nil
	}
	j := grid.Joint(0)
	for i, r := range p.grid.Clusters.AppendRunes(nil, c.Content) {
		next, joins := j.Follow(r)
		if joins != (i > 0) {
			return nil
		}
		j = next
	}
	if j != s.Join || !p.grid.Clusters.Writable(c, s.Charsets.Current) {
		return nil
	}
	return c
}

// printLast prints the last character again, with all modes on.
func (p *painter) printLast(c *grid.Cell) {
	b := p.grid.Buf
	y := b.Y
	if p.grid.Modes.Origin {
		y -= b.Top
	}
	p.goTo(y, b.X-c.Width())
	if p.grid.Modes.Insert {
		first := p.grid.Clusters.AppendRunes(nil, c.Content)[0]
		joint, _ := grid.Joint(0).Follow(first)
		p.csi("P", joint.Width()) // for which printing makes room again
	}
	p.printAs(c, p.grid.Charsets.Current)
}

// printAs appends the text of a cell as it is written when a character set is
// in use.
func (p *painter) printAs(c *grid.Cell, set grid.Charset) {
	for _, r := range p.grid.Clusters.AppendRunes(nil, c.Content) {
		written, _ := set.Invert(r)
		p.dst = utf8.AppendRune(p.dst, written)
	}
}
