package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// printSlowly is PrintASCII where something special is on.
func (s *Screen) printSlowly(i int) int {
	g := s.grid
	g.Tangle()
	g.BeginRun()
	n := 0
	for _, c := range s.in[i:] {
		if c-' ' >= del-' ' {
			break
		}
		r := rune(c)
		if g.Charsets.Current != grid.CharsetASCII {
			r = g.Charsets.Current.Translate(c)
		}
		if !g.Print(r) {
			s.leaveOut(i+n, 1)
		}
		n++
	}
	g.EndRun()
	return n
}

// printText prints the run of characters beyond ASCII at in[i] and returns its
// length in bytes. A C1 control or a mistake ends it.
func (s *Screen) printText(i int) int {
	g, p, n := s.grid, s.in[i:], 0
	for n < len(p) && p[n] >= 0x80 {
		r, size := decode(p[n:])
		if r < 0xa0 {
			if n > 0 {
				break
			}
			if r > 0 {
				s.control(r, i, size)
			}
			return size
		}
		if n == 0 {
			g.BeginRun()
		}
		if !g.Print(r) {
			s.leaveOut(i+n, size)
		}
		n += size
	}
	g.EndRun()
	return n
}
