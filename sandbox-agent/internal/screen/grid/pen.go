package grid

const (
	UnderlineNone = iota
	UnderlineSingle
	underlineDouble
	underlineLast = 5 // dashed
)

// A Pen is what characters are written with. Its flags are those of a cell;
// FlagExtended says whether the rest of it counts.
type Pen struct {
	Fg, Bg    uint32
	Underline uint8  // style
	Color     uint32 // of the underline
	Link      uint32 // number of a hyperlink, 0 for none
}

// Extend sets whether underline and link count: when there are any.
func (p *Pen) Extend() {
	p.Bg &^= FlagExtended
	if p.Underline != UnderlineNone || p.Link != 0 {
		p.Bg |= FlagExtended
	}
}

// Erased returns what erasing leaves: an empty cell of the pen's background.
func (p *Pen) Erased() Cell { return Cell{Bg: p.Bg & (ModeMask | ColorMask)} }

func (p *Pen) reset() {
	p.Fg, p.Bg = 0, 0
	p.Underline, p.Color = UnderlineNone, 0
	p.Extend()
}

// SetUnderline sets the style of the underline; an unknown one is single.
func (p *Pen) SetUnderline(style int32) {
	if style < 0 || style > underlineLast {
		style = UnderlineSingle
	}
	p.Underline = uint8(style)
	if p.Fg &^= FlagUnderline; style != UnderlineNone {
		p.Fg |= FlagUnderline
	}
	p.Extend()
}

// SetColor sets the colour and its mode in to, which may hold flags as well.
func SetColor(to *uint32, color uint32) { *to = *to&^(ModeMask|ColorMask) | color }

// Set obeys a parameter of SGR that needs no other.
func (p *Pen) Set(n int32) {
	switch n {
	case 0:
		p.reset()
	case 1:
		p.Fg |= FlagBold
	case 2:
		p.Bg |= FlagDim
	case 3:
		p.Bg |= FlagItalic
	case 5:
		p.Fg |= FlagBlink
	case 7:
		p.Fg |= FlagInverse
	case 8:
		p.Fg |= FlagInvisible
	case 9:
		p.Fg |= FlagStrike
	case 21:
		p.SetUnderline(underlineDouble)
	case 22:
		p.Fg &^= FlagBold
		p.Bg &^= FlagDim
	case 23:
		p.Bg &^= FlagItalic
	case 24:
		p.SetUnderline(UnderlineNone)
	case 25:
		p.Fg &^= FlagBlink
	case 27:
		p.Fg &^= FlagInverse
	case 28:
		p.Fg &^= FlagInvisible
	case 29:
		p.Fg &^= FlagStrike
	case 39:
		SetColor(&p.Fg, modeDefault)
	case 49:
		SetColor(&p.Bg, modeDefault)
	case 53:
		p.Bg |= FlagOverline
	case 55:
		p.Bg &^= FlagOverline
	case 59:
		p.Color = ModeRGB | ColorMask // what xterm.js makes of it
		p.Extend()
	}
}

// AppendSGR appends the parameters of an SGR that makes an untouched pen p.
// Each follows a semicolon.
func (p *Pen) AppendSGR(dst []byte) []byte {
	for _, f := range [...]struct {
		on    bool
		param string
	}{
		{p.Fg&FlagBold != 0, "1"}, {p.Bg&FlagDim != 0, "2"}, {p.Bg&FlagItalic != 0, "3"},
		{p.Fg&FlagBlink != 0, "5"}, {p.Fg&FlagInverse != 0, "7"}, {p.Fg&FlagInvisible != 0, "8"},
		{p.Fg&FlagStrike != 0, "9"}, {p.Bg&FlagOverline != 0, "53"},
	} {
		if f.on {
			dst = append(append(dst, ';'), f.param...)
		}
	}
	if p.Fg&FlagUnderline != 0 {
		dst = append(dst, ";4"...)
		if p.Underline > UnderlineSingle {
			dst = append(dst, ':', '0'+p.Underline)
		}
	}
	dst = AppendColor(dst, p.Fg, 30)
	dst = AppendColor(dst, p.Bg, 40)
	return AppendColor(dst, p.Color, 50)
}

// AppendColor appends the parameters for a colour; base is 30 for a foreground,
// 40 for a background, 50 for an underline.
func AppendColor(dst []byte, color uint32, base int) []byte {
	value := int(color & ColorMask)
	switch color & ModeMask {
	case ModeANSI:
		if value >= 8 {
			value += 60 - 8
		}
		return AppendInt(append(dst, ';'), base+value)
	case ModeIndexed:
		dst = AppendInt(append(dst, ';'), base+8)
		return AppendInt(append(dst, ";5;"...), value)
	case ModeRGB:
		dst = AppendInt(append(dst, ';'), base+8)
		dst = append(AppendInt(append(dst, ";2;"...), value>>16), ';')
		return AppendInt(append(AppendInt(dst, value>>8&255), ';'), value&255)
	}
	return dst
}

// PenOf returns the pen that c was written with.
func (t *ExtTable) PenOf(c *Cell) Pen {
	e := t.Of(c)
	p := Pen{Fg: c.Fg, Bg: c.Bg, Underline: e.Underline, Color: e.Color, Link: e.Link}
	if c.Ext != 0 || c.Fg&FlagUnderline != 0 {
		p.Bg |= FlagExtended
	}
	return p
}

// Regular reports whether SGR and OSC 8 alone make such a pen. Others come of
// restoring the cursor, which restores only a part.
func (p *Pen) Regular() bool {
	return (p.Fg&FlagUnderline != 0) == (p.Underline != UnderlineNone) &&
		(p.Bg&FlagExtended != 0) == (p.Underline != UnderlineNone || p.Link != 0)
}
