package input

import (
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound22Gate: what opens the gate, what doesn't, and what shuts it.
func TestFound22Gate(t *testing.T) {
	const busy, waiting, stale = protocol.RefusedBusy, protocol.RefusedWaiting, protocol.RefusedStaleTerm
	for name, c := range map[string]struct {
		do   func(g *gate)
		shut uint64 // the last that may pass; 0: all may
	}{
		"nothing was refused":         {func(*gate) {}, 0},
		"refused for the moment":      {func(g *gate) { g.refused(3, waiting) }, 3},
		"refused for good":            {func(g *gate) { g.refused(3, stale) }, 0},
		"what is behind changes none": {func(g *gate) { g.refused(3, busy); g.refused(4, waiting); g.refused(5, stale) }, 3},
		"an earlier one shuts it":     {func(g *gate) { g.refused(3, busy); g.refused(2, busy) }, 2},
		"again, for the moment":       {func(g *gate) { g.refused(3, waiting); g.refused(3, busy) }, 3},
		"again, for good":             {func(g *gate) { g.refused(3, waiting); g.refused(3, stale) }, 0},
		"again, passed":               {func(g *gate) { g.refused(3, waiting); g.passed(3) }, 0},
		"an older one passed":         {func(g *gate) { g.refused(3, waiting); g.passed(2) }, 3},
		"written meanwhile":           {func(g *gate) { g.refused(3, waiting); g.written(3) }, 0},
		"an older one written":        {func(g *gate) { g.refused(3, waiting); g.written(2) }, 3},
		"a copy of what is settled":   {func(g *gate) { g.refused(3, stale); g.refused(3, waiting) }, 0},
		"a copy of what was written":  {func(g *gate) { g.written(3); g.refused(2, waiting) }, 0},
		"a copy while it is shut":     {func(g *gate) { g.refused(2, stale); g.refused(3, waiting); g.refused(2, waiting) }, 3},
		"input without a number":      {func(g *gate) { g.refused(0, busy) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var g gate
			c.do(&g)
			for seq := uint64(1); seq < 7; seq++ {
				if want := c.shut > 0 && seq > c.shut; g.behind(seq) != want {
					t.Errorf("%d is held back: %t, want %t: %+v", seq, g.behind(seq), want, g)
				}
			}
		})
	}
}
