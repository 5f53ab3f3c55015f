package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// maxDots bounds the blocks drawn in a strip.
const maxDots = 60

// A card shows one headline metric in large type.
type card struct {
	Name, Help string
	Value      string
	Detail     []string
	Ratio      string
	State      string // "fail" when it must be 0 and is not
}

// A group is the figures of one metric.
type group struct {
	Name, Help string
	Rows       []figureRow
}

// A figureRow is one figure of a group.
type figureRow struct {
	Name, Value, Median, Interval, Baseline, Ratio, RatioInterval string

	Clock, RatioClock string // by how much they may be wrong, as they cross clocks; "" when they can't

	Few   bool   // samples: the percentile rests on less than ten of them
	Strip *strip // of the blocks, nil without
}

// A strip draws the blocks of a figure, and those of its baseline, as dots on
// one line each.
type strip struct {
	Own, Base   string  // dots
	Left, Width float64 // of the interval, percent
	Median      float64 // percent
	Title       string
}

// isRatio says whether a figure is the ratio of another one, beside which it is
// shown.
func isRatio(r *measure.Result, f *measure.Figure) bool {
	name, ok := strings.CutSuffix(f.Name, "_ratio")
	return ok && r.Figure(name) != nil
}

// groups returns the headline figures and the others, by metric.
func groups(r *measure.Result) (top, others []group) {
	for i := range r.Figures {
		f := &r.Figures[i]
		if isRatio(r, f) {
			continue
		}
		headline := f.Headline || f.MustBeZero || strings.HasSuffix(f.Name, "_count") && isTop(r, f.Metric)
		into := &others
		if headline {
			into = &top
		}
		at := slices.IndexFunc(*into, func(g group) bool { return g.Name == f.Metric })
		if at < 0 {
			at = len(*into)
			*into = append(*into, group{Name: f.Metric, Help: f.Help})
		}
		g := &(*into)[at]
		g.Rows = append(g.Rows, rowOf(r, f))
	}
	return top, others
}

// isTop says whether a metric is a headline.
func isTop(r *measure.Result, metric string) bool {
	return slices.ContainsFunc(r.Figures, func(f measure.Figure) bool { return f.Metric == metric && f.Headline })
}

// rowOf returns the row of a figure.
func rowOf(r *measure.Result, f *measure.Figure) figureRow {
	row := figureRow{
		Name:     strings.TrimPrefix(strings.TrimPrefix(f.Name, f.Metric), "_"),
		Value:    optional(f.Value, f.Unit),
		Clock:    byClock(r, f),
		Interval: ranged(between(f.Interval, f.Unit), f.Ranges()),
		Few:      few(r, f),
	}
	if f.Median != nil {
		row.Median = format(*f.Median, f.Unit)
	}
	base := r.Figure(f.Baseline)
	if base != nil {
		row.Baseline = optional(base.Typical(), base.Unit)
	}
	if q := r.Figure(f.Ratio); q != nil {
		row.RatioClock = byClock(r, q)
		row.Ratio, row.RatioInterval = ratio(q.Value), ranged(ratioBetween(q.Interval), q.Ranges())
	}
	row.Strip = stripOf(f, base)
	return row
}

// few says whether less than ten samples lie beyond a percentile: then it is
// little more than the maximum.
func few(r *measure.Result, f *measure.Figure) bool {
	count := r.Figure(f.Metric + "_count")
	if count == nil || count.Value == nil || f.Value == nil {
		return false
	}
	beyond := map[string]float64{"_p50": 0.5, "_p90": 0.1, "_p99": 0.01, "_p999": 0.001}
	share, ok := beyond[strings.TrimPrefix(f.Name, f.Metric)]
	return ok && *count.Value*share < 10
}

// stripOf draws the blocks of a figure beside those of its baseline.
func stripOf(f, base *measure.Figure) *strip {
	if len(f.Blocks) < 2 {
		return nil
	}
	low, high := slices.Min(f.Blocks), slices.Max(f.Blocks)
	if base != nil && len(base.Blocks) > 0 {
		low, high = min(low, slices.Min(base.Blocks)), max(high, slices.Max(base.Blocks))
	}
	room := (high - low) * 0.06
	if room == 0 {
		room = max(math.Abs(high), 1)
	}
	x := scale{low - room, high + room, false}
	s := &strip{Own: dots(f.Blocks, x, 0.7), Median: 100 * x.at(*f.Median)}
	s.Title = fmt.Sprintf("%d blocks from %s to %s", len(f.Blocks), format(slices.Min(f.Blocks), f.Unit), format(slices.Max(f.Blocks), f.Unit))
	if base != nil && len(base.Blocks) > 0 {
		s.Base = dots(base.Blocks, x, 0.25)
		s.Title += fmt.Sprintf("; baseline from %s to %s", format(slices.Min(base.Blocks), base.Unit), format(slices.Max(base.Blocks), base.Unit))
	}
	if f.Interval != nil {
		s.Left = 100 * x.at(f.Interval.Low)
		s.Width = 100*x.at(f.Interval.High) - s.Left
	}
	return s
}

// dots draws values at one height: strokes without length, whose round ends are
// seen.
func dots(values []float64, x scale, y float64) string {
	var p path
	for _, v := range values[:min(len(values), maxDots)] {
		p.move(x.at(v), y)
		p.to(x.at(v), y)
	}
	return p.b.String()
}

// cards returns one card for each headline metric, of a latency for its p99, and
// one for all that must be 0.
func cards(r *measure.Result) []card {
	var all []card
	zero := card{Name: "must be 0", Value: "all are"}
	for i := range r.Figures {
		f := &r.Figures[i]
		switch latency := f.Name != f.Metric; {
		case isRatio(r, f):
		case f.MustBeZero:
			zero.Detail = append(zero.Detail, f.Name+" "+optional(f.Value, f.Unit))
			if f.Value == nil || *f.Value != 0 {
				zero.State, zero.Value = "fail", "not all are"
			}
		case f.Headline && (!latency || f.Name == f.Metric+"_p99"):
			all = append(all, cardOf(r, f, latency))
		}
	}
	if len(zero.Detail) > 0 {
		all = append(all, zero)
	}
	return all
}

// cardOf returns the card of a figure.
func cardOf(r *measure.Result, f *measure.Figure, latency bool) card {
	c := card{Name: f.Metric, Help: f.Help, Value: optional(f.Value, f.Unit)}
	if latency {
		c.Name += " p99"
		if p50 := r.Figure(f.Metric + "_p50"); p50 != nil && p50.Value != nil {
			c.Detail = append(c.Detail, "p50 "+format(*p50.Value, "s"))
		}
	}
	if text := saidByClock(r, f); text != "" {
		c.Detail = append(c.Detail, strings.TrimSpace(text))
	}
	if f.Interval != nil {
		c.Detail = append(c.Detail, fmt.Sprintf("median of %d blocks %s", len(f.Blocks), format(*f.Median, f.Unit)))
	}
	if q := r.Figure(f.Ratio); q != nil && q.Value != nil {
		c.Ratio = ratio(q.Value) + " the baseline"
		if q.Interval != nil {
			c.Ratio += ", block by block"
		}
	}
	return c
}

// processTable returns what each process used in all.
func processTable(r *measure.Result) grid {
	g := grid{Head: []string{"process", "CPU, mean", "CPU, peak", "memory at first", "peak", "at last", "descriptors", "goroutines"}}
	for _, p := range inOrder(r.Processes) {
		if len(p.Points) == 0 {
			continue
		}
		first, last := p.Points[0], p.Points[len(p.Points)-1]
		var work, length, peakCPU float64
		var peak int64
		for i, pt := range p.Points {
			peak = max(peak, pt.RSSBytes)
			if i > 0 && pt.CPU >= 0 {
				d := pt.Seconds - p.Points[i-1].Seconds
				work, length, peakCPU = work+pt.CPU*d, length+d, max(peakCPU, pt.CPU)
			}
		}
		mean := none
		if length > 0 {
			mean = number(work / length)
		}
		g.Rows = append(g.Rows, []string{
			p.Name, mean, number(peakCPU),
			format(float64(first.RSSBytes), "B"), format(float64(peak), "B"), format(float64(last.RSSBytes), "B"),
			growth(first.FDs, last.FDs), growth(first.Goroutines, last.Goroutines),
		})
	}
	return g
}

// growth formats a count at the beginning and at the end.
func growth(first, last int) string {
	if first == 0 && last == 0 {
		return none
	}
	return number(float64(first)) + " → " + number(float64(last))
}
