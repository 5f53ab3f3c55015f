package measure

import (
	"fmt"
	"math"
	"time"
)

// clockNote is what a reader has to know of figures that cross clocks.
const clockNote = "what is timed from when a source's chunk was due crosses from its clock to ours, of which is known that they agree within ± %v: half of the shortest way there and back. Such figures may be wrong by that much"

// crosses says whether a figure of the metric is a time from another clock to
// ours: a count isn't one, and neither is a rate.
func (m Metric) crosses(figure string) bool {
	return m.CrossesClocks && m.Unit == "s" && figure != m.Name+"_count"
}

// crossesClocks says whether any figure that was measured crosses clocks.
func (r *Result) crossesClocks() bool {
	for _, f := range r.Figures {
		if f.CrossesClocks && f.Value != nil {
			return true
		}
	}
	return false
}

// clockErrorText returns the error of the clocks in words, to 10 µs.
func (r *Result) clockErrorText() string {
	return time.Duration(r.ClockError * float64(time.Second)).Round(10 * time.Microsecond).String()
}

// ByClock returns by how much the true value of a figure may be below and above
// the measured one because of [Result.ClockError], in the figure's unit: 0 and 0
// when it doesn't cross clocks. No time is less than 0, so below is at most the
// value. Of a ratio to a baseline that is nearly 0, above may be infinite.
func (r *Result) ByClock(f *Figure) (below, above float64) {
	e := r.ClockError
	if f == nil || !f.CrossesClocks || f.Value == nil || e <= 0 {
		return 0, 0
	}
	v := *f.Value
	own := r.dividend(f)
	if own == nil {
		return min(e, max(v, 0)), e
	}
	base := r.Figure(own.Baseline)
	if own.Value == nil || base == nil || base.Value == nil {
		return v, math.Inf(1)
	}
	// Clocks that are wrong are so by the same time for both, and neither is less
	// than 0. Between those ends the ratio only rises or only falls.
	least, most := -e, e
	for _, side := range []*Figure{own, base} {
		if side.CrossesClocks {
			least = max(least, -max(*side.Value, 0))
		}
	}
	was := shifted(own, base, 0)
	low, high := shifted(own, base, least), shifted(own, base, most)
	return max(0, was-min(low, high)), max(0, max(low, high)-was)
}

// dividend returns the figure whose ratio f is, nil if f is no ratio.
func (r *Result) dividend(f *Figure) *Figure {
	for i := range r.Figures {
		if r.Figures[i].Ratio == f.Name {
			return &r.Figures[i]
		}
	}
	return nil
}

// shifted returns the ratio of two figures if the clocks were so much apart.
func shifted(own, base *Figure, by float64) float64 {
	a, b := *own.Value, *base.Value
	if own.CrossesClocks {
		a = max(0, a+by)
	}
	if base.CrossesClocks {
		b = max(0, b+by)
	}
	switch {
	case b > 0:
		return a / b
	case a > 0:
		return math.Inf(1)
	}
	return 1 // both vanish alike
}

// whyByClock says why a bound is undecided by clock, and what would tell.
func (r *Result) whyByClock() string {
	return fmt.Sprintf("the source's clock and ours are known to agree within ± %s only, which leaves the bound open: more blocks wouldn't tell, but a shorter way between loadtest and the source would, or --local, where both have one clock", r.clockErrorText())
}
