package keyframe

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// Modes are the modes of a terminal, but for that of the origin, which goes with
// the margins, and on which screen it is. The zero value stands for those of a
// new terminal.
type Modes struct {
	Modes     grid.Modes
	Alternate bool // the alternate screen is shown
	Known     bool // false: those of a new terminal
}

// AppendHandover appends what takes a terminal in the state of g from one program
// to another with the modes to. It returns the modes from before as well.
func AppendHandover(dst []byte, g *grid.Grid, to Modes) ([]byte, Modes) {
	was := Modes{Modes: g.Modes, Alternate: g.Buf == g.Alt, Known: true}
	was.Modes.Origin = false
	p := &painter{grid: g, dst: dst}
	p.control("\x18")
	x := g.Buf.X
	if was.Alternate {
		p.private(1049, false)
		x = g.Normal.Saved.X
	}
	for _, mode := range []int{g.Modes.Mouse, g.Modes.MouseEncoding} {
		if mode != 0 {
			p.private(mode, false)
		}
	}
	if g.Modes.NewLine {
		p.csi("l", 20)
	}
	if g.Modes.CursorStyle() != 0 {
		p.csi(" q", 0)
	}
	p.control("\x1b[!p")
	if x > 0 {
		p.control("\r\n")
	}
	if !to.Known {
		return p.dst, was
	}
	if to.Alternate {
		p.private(1049, true)
	}
	p.grid = &grid.Grid{Modes: to.Modes}
	p.paintModes()
	return p.dst, was
}
