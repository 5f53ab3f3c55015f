package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// selectRendition obeys SGR, of which p are the parameters.
func (p *params) selectRendition(pen *grid.Pen) {
	for i := 0; i < p.n; i++ {
		switch n := p.values[i]; {
		case n >= 30 && n <= 37:
			grid.SetColor(&pen.Fg, grid.ModeANSI|uint32(n-30))
		case n >= 40 && n <= 47:
			grid.SetColor(&pen.Bg, grid.ModeANSI|uint32(n-40))
		case n >= 90 && n <= 97:
			grid.SetColor(&pen.Fg, grid.ModeANSI|uint32(n-90+8))
		case n >= 100 && n <= 107:
			grid.SetColor(&pen.Bg, grid.ModeANSI|uint32(n-100+8))
		case n == 38 || n == 48 || n == 58:
			i += p.selectColor(pen, i)
		case n == 4:
			style := int32(grid.UnderlineSingle)
			if sub := p.sub(i); len(sub) > 0 {
				style = sub[0]
			}
			pen.SetUnderline(style)
		default:
			pen.Set(n)
		}
	}
}

// selectColor obeys parameters 38, 48 and 58 of SGR, the one at i, in whatever
// mixture of parameters and subparameters. It returns how many more it took.
func (p *params) selectColor(pen *grid.Pen, i int) int {
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
	applyColor(pen, spec)
	return taken
}

func applyColor(pen *grid.Pen, spec [6]int32) {
	target := &pen.Fg
	switch spec[0] {
	case 48:
		target = &pen.Bg
	case 58:
		target = &pen.Color
	}
	switch spec[1] {
	case 2:
		grid.SetColor(target, grid.ModeRGB|uint32(spec[3]&255)<<16|uint32(spec[4]&255)<<8|uint32(spec[5]&255))
	case 5:
		grid.SetColor(target, grid.ModeIndexed|uint32(spec[3]&255))
	}
}
