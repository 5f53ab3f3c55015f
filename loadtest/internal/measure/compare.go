package measure

// An Outcome says what a difference between two results means.
type Outcome string

// The outcomes.
const (
	// Better and Worse: neither spread (an interval, or the range of a few
	// blocks) reaches the other.
	Better Outcome = "better"
	Worse  Outcome = "worse"
	// Equal: there is no difference.
	Equal Outcome = "equal"
	// Same: the spreads overlap, so chance may have made the difference.
	Same Outcome = "within the spread"
	// Unclear: but for the error of the clocks the spreads would not overlap.
	Unclear Outcome = "within the clocks' error"
	// Unknown: one of the figures has no interval, or no value.
	Unknown Outcome = "spread unknown"
	// Changed: a difference of which nobody said what is better.
	Changed Outcome = "changed"
)

// A Difference compares one figure of two results.
type Difference struct {
	Name          string
	Unit          string
	Headline      bool
	A, B          *float64  // the medians of the blocks, else the values
	SpreadA       *Interval // nil if not known
	SpreadB       *Interval
	RangeA        int // as [Figure.Ranges] of A
	RangeB        int
	Ratio         *float64  // of B to A
	RatioInterval *Interval // nil if not known; a range when SpreadA or SpreadB is
	Outcome       Outcome
}

// Compare returns the differences of b from a, for every figure that either
// has, in the order of a.
func Compare(a, b *Result) []Difference {
	var all []Difference
	for i := range a.Figures {
		f, g := &a.Figures[i], b.Figure(a.Figures[i].Name)
		d := difference(f, g)
		if (d.Outcome == Better || d.Outcome == Worse || d.Outcome == Changed) && unclear(d, a, f, b, g) {
			d.Outcome = Unclear
		}
		all = append(all, d)
	}
	for i := range b.Figures {
		if a.Figure(b.Figures[i].Name) == nil {
			all = append(all, difference(nil, &b.Figures[i]))
		}
	}
	return all
}

// unclear says whether the spreads of f of a and g of b overlap with the error of
// the clocks.
func unclear(d Difference, a *Result, f *Figure, b *Result, g *Figure) bool {
	if d.SpreadA == nil || d.SpreadB == nil {
		return false
	}
	belowA, aboveA := a.ByClock(f)
	belowB, aboveB := b.ByClock(g)
	return d.SpreadA.Low-belowA <= d.SpreadB.High+aboveB && d.SpreadB.Low-belowB <= d.SpreadA.High+aboveA
}

// difference compares two figures, of which one may be nil.
func difference(a, b *Figure) Difference {
	either := a
	if either == nil {
		either = b
	}
	d := Difference{Name: either.Name, Unit: either.Unit, Headline: either.Headline, Outcome: Unknown}
	var blocksA, blocksB []float64
	if a != nil {
		d.A, d.SpreadA, d.RangeA, blocksA = a.Typical(), a.Interval, a.Ranges(), a.Blocks
	}
	if b != nil {
		d.B, d.SpreadB, d.RangeB, blocksB = b.Typical(), b.Interval, b.Ranges(), b.Blocks
	}
	if d.A == nil || d.B == nil || a.Unit != b.Unit {
		return d
	}
	d.Ratio = optional(*d.B / *d.A, *d.A != 0)
	d.RatioInterval = ratioInterval(blocksB, blocksA)
	d.Outcome = outcome(d, either)
	return d
}

// outcome says what a difference between two values means.
func outcome(d Difference, f *Figure) Outcome {
	less := *d.B < *d.A
	switch {
	case *d.A == *d.B:
		return Equal
	case f.MustBeZero && less:
		return Better
	case f.MustBeZero:
		return Worse
	case d.SpreadA == nil || d.SpreadB == nil:
		return Unknown
	case d.SpreadA.Low <= d.SpreadB.High && d.SpreadB.Low <= d.SpreadA.High:
		return Same
	case !f.Headline && !f.LowerIsBetter:
		return Changed
	case less == f.LowerIsBetter:
		return Better
	}
	return Worse
}

// Typical returns the figure's median over the blocks, else its value.
func (f *Figure) Typical() *float64 {
	if f.Median != nil {
		return f.Median
	}
	return f.Value
}
