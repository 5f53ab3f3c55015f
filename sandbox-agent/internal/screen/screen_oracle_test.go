package screen_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
)

// A screenGrid is the grid that all this is about.
type screenGrid struct{ *screen.Screen }

func newScreenGrid(cols, rows int) grid { return screenGrid{screen.New(cols, rows)} }

func (g screenGrid) state() *state {
	cols, rows := g.Size()
	y, x := g.Cursor()
	s := &state{Cols: cols, Rows: rows, X: x, Y: y, Title: g.Title(), Mouse: g.MouseMode(), Modes: g.Modes()}
	for row := range rows {
		l := line{Wrapped: g.Wrapped(row)}
		for col := range cols {
			i := g.Cell(row, col)
			l.Cells = append(l.Cells, cell{i.Text, i.Width, look{Fg: int(i.Fg), Bg: int(i.Bg), Flags: int(i.Flags), Link: i.Link}})
		}
		l.trim()
		s.Screen = append(s.Screen, l)
	}
	for i := range g.HistoryLines() {
		s.History = append(s.History, line{Cells: []cell{{Text: g.HistoryLine(i)}}})
	}
	return s
}

// A tally counts what became of random streams.
type tally struct {
	mu                     sync.Mutex
	unsteady, different    int
	failed, exempt, spared map[string]int
}

// add reports whether enough is known.
func (y *tally) add(v verdict) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if v.failed != "" {
		y.failed[v.failed]++
	}
	if v.unsteady {
		y.unsteady++
	}
	if v.difference != "" {
		y.different++
	}
	for _, why := range v.exempt {
		y.exempt[why]++
	}
	for _, why := range v.spared {
		y.spared[why]++
	}
	return y.different > 5
}

// TestRandomStreams compares a Screen, and terminals that join late with its
// keyframes, with a terminal that has seen the whole of a random stream.
func TestRandomStreams(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	const workers = 2
	y := tally{failed: map[string]int{}, exempt: map[string]int{}, spared: map[string]int{}}
	t.Run("streams", func(t *testing.T) {
		for worker := range workers {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				o := startOracle(t)
				for n := worker; n < *oracleStreams; n += workers {
					s := newScript(seed, uint64(n), 60)
					if *oraclePlain && !s.Plain {
						continue
					}
					v := s.check(t, o, newScreenGrid)
					enough := y.add(v)
					if v.difference != "" {
						s, why := s.shrink(t, o, newScreenGrid, v.difference)
						t.Errorf("stream %d: %s\n%s", n, why, s)
					}
					if enough {
						return
					}
				}
			})
		}
	})
	t.Logf("%d streams; xterm.js failed before their end: %v; it wasn't sure of %d; keyframes that can't tell all: %v; viewers were spared: %v", *oracleStreams, y.failed, y.unsteady, y.exempt, y.spared)
}

// seedOf chooses and prints the seed of a test's random streams.
func seedOf(t *testing.T) uint64 {
	seed := *oracleSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -oracle.seed=%d", seed)
	return seed
}
