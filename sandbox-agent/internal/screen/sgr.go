package screen

// A pen is what characters are written with. Its flags are those of a cell;
// flagExtended says whether the rest of it counts.
type pen struct {
	fg, bg    uint32
	underline uint8  // style
	color     uint32 // of the underline
	link      uint32 // number of a hyperlink, 0 for none
}

const (
	underlineNone = iota
	underlineSingle
	underlineDouble
	underlineLast = 5 // dashed
)

// usePen makes the pen that of the next characters.
func (g *grid) usePen() {
	p := &g.pen
	g.penCell = cell{fg: p.fg, bg: p.bg &^ flagExtended}
	if p.bg&flagExtended != 0 {
		g.penCell.ext = g.exts.intern(ext{underline: p.underline, color: p.color, link: p.link}, g.penCell.ext, &g.buffers)
	}
}

// openLink makes the next characters part of a hyperlink, of none if l is empty.
func (g *grid) openLink(l link) {
	g.pen.link = 0
	if l.uri != "" {
		if g.links.wantsSweep(l) {
			g.exts.sweep(g.penCell.ext, &g.buffers)
			g.links.sweep(&g.exts, g.pen.link)
		}
		g.pen.link = g.links.add(l)
	}
	g.pen.extend()
	g.usePen()
}

// extend sets whether underline and link count: when there are any.
func (p *pen) extend() {
	p.bg &^= flagExtended
	if p.underline != underlineNone || p.link != 0 {
		p.bg |= flagExtended
	}
}

// erased returns what erasing leaves: an empty cell of the pen's background.
func (p *pen) erased() cell { return cell{bg: p.bg & (modeMask | colorMask)} }

func (p *pen) reset() {
	p.fg, p.bg = 0, 0
	p.underline, p.color = underlineNone, 0
	p.extend()
}

func (p *pen) setUnderline(style int32) {
	if style < 0 || style > underlineLast {
		style = underlineSingle
	}
	p.underline = uint8(style)
	if p.fg &^= flagUnderline; style != underlineNone {
		p.fg |= flagUnderline
	}
	p.extend()
}

// selectRendition obeys SGR.
func (pen *pen) selectRendition(p *params) {
	for i := 0; i < p.n; i++ {
		switch n := p.values[i]; {
		case n >= 30 && n <= 37:
			setColor(&pen.fg, modeANSI|uint32(n-30))
		case n >= 40 && n <= 47:
			setColor(&pen.bg, modeANSI|uint32(n-40))
		case n >= 90 && n <= 97:
			setColor(&pen.fg, modeANSI|uint32(n-90+8))
		case n >= 100 && n <= 107:
			setColor(&pen.bg, modeANSI|uint32(n-100+8))
		case n == 38 || n == 48 || n == 58:
			i += pen.selectColor(p, i)
		case n == 4:
			style := int32(underlineSingle)
			if sub := p.sub(i); len(sub) > 0 {
				style = sub[0]
			}
			pen.setUnderline(style)
		default:
			pen.set(n)
		}
	}
}

func setColor(to *uint32, color uint32) { *to = *to&^(modeMask|colorMask) | color }

// set obeys a parameter of SGR that needs no other.
func (p *pen) set(n int32) {
	switch n {
	case 0:
		p.reset()
	case 1:
		p.fg |= flagBold
	case 2:
		p.bg |= flagDim
	case 3:
		p.bg |= flagItalic
	case 5:
		p.fg |= flagBlink
	case 7:
		p.fg |= flagInverse
	case 8:
		p.fg |= flagInvisible
	case 9:
		p.fg |= flagStrike
	case 21:
		p.setUnderline(underlineDouble)
	case 22:
		p.fg &^= flagBold
		p.bg &^= flagDim
	case 23:
		p.bg &^= flagItalic
	case 24:
		p.setUnderline(underlineNone)
	case 25:
		p.fg &^= flagBlink
	case 27:
		p.fg &^= flagInverse
	case 28:
		p.fg &^= flagInvisible
	case 29:
		p.fg &^= flagStrike
	case 39:
		setColor(&p.fg, modeDefault)
	case 49:
		setColor(&p.bg, modeDefault)
	case 53:
		p.bg |= flagOverline
	case 55:
		p.bg &^= flagOverline
	case 59:
		p.color = modeRGB | colorMask // what xterm.js makes of it
		p.extend()
	}
}

// selectColor obeys parameters 38, 48 and 58 of SGR, the one at i, in whatever
// mixture of parameters and subparameters. It returns how many more it took.
func (pen *pen) selectColor(p *params, i int) int {
	// Target, mode, colour space, and up to three values.
	spec := [6]int32{0, 0, -1, 0, 0, 0}
	taken, space := 0, 0
	for {
		spec[taken+space] = p.values[i+taken]
		if sub := p.sub(i + taken); len(sub) > 0 {
			for k := 0; ; {
				if spec[1] == 5 {
					space = 1
				}
				if at := taken + k + 1 + space; at < len(spec) {
					spec[at] = sub[k]
				}
				if k++; k >= len(sub) || k+taken+1+space >= len(spec) {
					break
				}
			}
			break
		}
		if spec[1] == 5 && taken+space >= 2 || spec[1] == 2 && taken+space >= 5 {
			break
		}
		if spec[1] != 0 {
			space = 1
		}
		if taken++; taken+i >= p.n || taken+space >= len(spec) {
			break
		}
	}
	for k := 2; k < len(spec); k++ {
		spec[k] = max(spec[k], 0)
	}
	pen.applyColor(spec)
	return taken
}

func (pen *pen) applyColor(spec [6]int32) {
	target := &pen.fg
	switch spec[0] {
	case 48:
		target = &pen.bg
	case 58:
		target = &pen.color
	}
	switch spec[1] {
	case 2:
		setColor(target, modeRGB|uint32(spec[3]&255)<<16|uint32(spec[4]&255)<<8|uint32(spec[5]&255))
	case 5:
		setColor(target, modeIndexed|uint32(spec[3]&255))
	}
}

// appendSGR appends the parameters of an SGR that makes an untouched pen p.
// Each follows a semicolon.
func (p *pen) appendSGR(dst []byte) []byte {
	for _, f := range [...]struct {
		on    bool
		param string
	}{
		{p.fg&flagBold != 0, "1"}, {p.bg&flagDim != 0, "2"}, {p.bg&flagItalic != 0, "3"},
		{p.fg&flagBlink != 0, "5"}, {p.fg&flagInverse != 0, "7"}, {p.fg&flagInvisible != 0, "8"},
		{p.fg&flagStrike != 0, "9"}, {p.bg&flagOverline != 0, "53"},
	} {
		if f.on {
			dst = append(append(dst, ';'), f.param...)
		}
	}
	if p.fg&flagUnderline != 0 {
		dst = append(dst, ";4"...)
		if p.underline > underlineSingle {
			dst = append(dst, ':', '0'+p.underline)
		}
	}
	dst = appendColor(dst, p.fg, 30)
	dst = appendColor(dst, p.bg, 40)
	return appendColor(dst, p.color, 50)
}

// appendColor appends the parameters for a colour; base is 30 for a foreground,
// 40 for a background, 50 for an underline.
func appendColor(dst []byte, color uint32, base int) []byte {
	value := int(color & colorMask)
	switch color & modeMask {
	case modeANSI:
		if value >= 8 {
			value += 60 - 8
		}
		return appendInt(append(dst, ';'), base+value)
	case modeIndexed:
		dst = appendInt(append(dst, ';'), base+8)
		return appendInt(append(dst, ";5;"...), value)
	case modeRGB:
		dst = appendInt(append(dst, ';'), base+8)
		dst = appendInt(append(dst, ";2;"...), value>>16, ';')
		return appendInt(appendInt(dst, value>>8&255, ';'), value&255)
	}
	return dst
}
