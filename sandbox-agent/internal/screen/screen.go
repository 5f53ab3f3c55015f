package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

// A Screen is one terminal as its viewers see it. It interprets what a program
// prints. It is not safe for concurrent use.
type Screen struct {
	grid     *grid.Grid // what is shown
	sequence            // the escape sequence that is being parsed
	outlet              // what is let out, and what is held back
}

// New returns an empty screen. Sizes that no viewer can have are clamped, to
// [2, 1000] columns and [1, 1000] rows.
func New(cols, rows int) *Screen {
	s := &Screen{grid: grid.New(cols, rows)}
	s.params.reset()
	return s
}

// remove takes the sequence being parsed, a query that ends at in[end], out of
// the output. What viewers have seen of it they see end, without an effect.
func (s *Screen) remove(end int) {
	s.cut(end)
	switch {
	case s.escaped:
		s.out = append(s.out, '\\')
		s.grid.Join, s.grid.InRun = 0, false
	case s.broken:
		s.separate()
	}
}

// separate keeps what comes next from ending the character that was begun
// before what viewers don't see.
func (s *Screen) separate() {
	s.out = append(s.out, 0)
	s.grid.Join, s.grid.InRun = 0, false
}

// Resize changes the size as xterm.js does: rows of the normal screen that
// wrapped flow again, those of the alternate screen don't.
func (s *Screen) Resize(cols, rows int) { s.grid.Resize(cols, rows) }

// Size returns the size in cells.
func (s *Screen) Size() (cols, rows int) { return s.grid.Size() }

// toGround ends a sequence that has no effect.
func (s *Screen) toGround() {
	s.clearUp()
	s.state = ground
	s.grid.InRun = false
}
