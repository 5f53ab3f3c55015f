package screen

import "github.com/fairlead/fairlead/sandbox-agent/internal/screen/grid"

const (
	// maxHeld bounds the bytes held back because they may become a query.
	maxHeld = 256
	// maxString is how much of an OSC is looked at. A longer one has no effect.
	maxString = 64 << 10
)

// A Screen is one terminal as its viewers see it. It interprets what a program
// prints. It is not safe for concurrent use.
type Screen struct {
	grid     *grid.Grid // what viewers see
	sequence            // the escape sequence that has begun
	outlet              // what viewers are given of the output
}

// New returns an empty screen. Sizes that no viewer can have are clamped, to
// [2, 1000] columns and [1, 1000] rows.
func New(cols, rows int) *Screen {
	s := &Screen{grid: grid.New(cols, rows)}
	s.params.reset()
	return s
}

// Write advances the screen over p, the program's output. It appends to out
// what viewers are to see, which is p without the queries that are answered or
// suppressed here, and to answers what goes back to the program.
//
// It holds back the beginning of what may still become such a query, at most
// 256 bytes, and of a character. These come first at a later call or in
// [Screen.Flush]. The state of the screen is always that of exactly the bytes
// in out so far.
func (s *Screen) Write(out, answers, p []byte) (o, a []byte) {
	if len(s.part) > 0 {
		s.joined = append(append(s.joined[:0], s.part...), p...)
		p, s.part = s.joined, s.part[:0]
	}
	s.in, s.out, s.answers = p, out, answers
	s.kept, s.maybeAt = 0, 0
	for i := 0; i < len(p); {
		n := 0
		if s.state == ground {
			n = s.ground(i)
		} else {
			n = s.inSequence(i)
		}
		if n == 0 {
			s.part = append(s.part, p[i:]...)
			p = p[:i]
		}
		i += n
	}
	s.endWrite(p)
	out, answers = s.out, s.answers
	s.in, s.out, s.answers = nil, nil, nil
	return out, answers
}

// Flush appends to out what was held back: the output has ended.
func (s *Screen) Flush(out []byte) []byte {
	out = append(append(out, s.held...), s.part...)
	s.held, s.part = s.held[:0], s.part[:0]
	s.maybe = false
	return out
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
