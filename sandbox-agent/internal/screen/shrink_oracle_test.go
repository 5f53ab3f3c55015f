package screen_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// shrinkBudget bounds how many smaller scripts are tried.
const shrinkBudget = 600

// String is Go source.
func (s *script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "&script{Cols: %d, Rows: %d, Chunk: %d, Cuts: %#v, Junk: %d, Plain: %t, Steps: []step{", s.Cols, s.Rows, s.Chunk, s.Cuts, s.Junk, s.Plain)
	for i, step := range s.Steps {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(step.String())
	}
	b.WriteString("}}")
	return b.String()
}

// A shrinker looks for a smaller script with a difference.
type shrinker struct {
	fails func(*script) string
	left  int
	best  *script
	why   string
}

// shrink is a small script that still differs, and how.
func (s *script) shrink(t testing.TB, o *oracle, newGrid func(cols, rows int) grid, why string) (*script, string) {
	t.Helper()
	z := &shrinker{left: shrinkBudget, best: s, why: why}
	z.fails = func(s *script) string {
		return s.check(t, o, newGrid).difference
	}
	for before := -1; before != z.size() && z.left > 0; {
		before = z.size()
		z.dropCuts()
		z.dropSteps()
		z.dropBytes()
	}
	return z.best, z.why
}

func (z *shrinker) size() int { return z.best.length() + len(z.best.Steps) + len(z.best.Cuts) }

// try takes s if it differs too.
func (z *shrinker) try(s *script) bool {
	if z.left--; z.left < 0 {
		return false
	}
	why := z.fails(s)
	if why == "" {
		return false
	}
	z.best, z.why = s, why
	return true
}

func (z *shrinker) dropCuts() {
	for i := len(z.best.Cuts) - 1; i >= 0; i-- {
		s := *z.best
		s.Cuts = slices.Delete(slices.Clone(s.Cuts), i, i+1)
		z.try(&s)
	}
	if z.best.Chunk != 0 {
		s := *z.best
		s.Chunk = 0
		z.try(&s)
	}
}

// without is the script without some of its steps; cuts stay between the steps
// that they were between.
func (s *script) without(from, to int) *script {
	prefix := &script{Steps: s.Steps[:from]}
	gone := &script{Steps: s.Steps[from:to]}
	c := *s
	c.Steps = slices.Delete(slices.Clone(s.Steps), from, to)
	return c.moved(s, prefix.length(), gone.length())
}

// moved is s with the cuts of whole, of which n positions from at on were taken
// out.
func (s *script) moved(whole *script, at, n int) *script {
	moved := *s
	moved.Cuts = nil
	for _, cut := range whole.Cuts {
		if cut > at {
			cut = max(at, cut-n)
		}
		moved.Cuts = append(moved.Cuts, cut)
	}
	return &moved
}

func (z *shrinker) dropSteps() {
	for n := max(1, len(z.best.Steps)/2); n > 0; n /= 2 {
		for from := len(z.best.Steps) - n; from >= 0; from -= n {
			z.try(z.best.without(from, min(from+n, len(z.best.Steps))))
			from = min(from, len(z.best.Steps))
		}
	}
}

// dropBytes drops characters of outputs.
func (z *shrinker) dropBytes() {
	at := z.best.length()
	for i := len(z.best.Steps) - 1; i >= 0; i-- {
		output := z.best.Steps[i].Output
		at -= max(1, len(output))
		if len(output) < 2 {
			continue
		}
		for n := len(output) / 2; n > 0; n /= 2 {
			for from := len(output) - n; from >= 0; from -= n {
				s := *z.best
				s.Steps = slices.Clone(s.Steps)
				s.Steps[i].Output = output[:from] + output[from+n:]
				if s.Steps[i].Output != "" && z.try(s.moved(z.best, at+from, n)) {
					output = z.best.Steps[i].Output
					from = min(from, len(output))
				}
			}
		}
	}
}
