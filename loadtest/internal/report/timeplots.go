package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

const (
	// maxLines bounds the lines of one plot.
	maxLines = colors
	// maxLatencyPlots bounds the latencies that are plotted.
	maxLatencyPlots = 12
	// maxBands and maxMarks bound the phases and events drawn in a plot.
	maxBands = 200
	maxMarks = 60
	// shades is how many classes of phases the style sheet has.
	shades = 5
	// markRoom is the percent of the axis that a number covers.
	markRoom = 4
	// tableRows is about how many rows the table beside a plot has.
	tableRows = 24
)

// A plotter draws the plots of one result.
type plotter struct {
	r      *measure.Result
	end    float64 // of the time axis, seconds after the start
	width  float64 // of a column in seconds
	x      scale
	ticks  []tick
	names  []string // of the phases, in the order in which they first came
	phases []phaseBand
	marks  []mark
}

// shadeClass returns the class of the phase whose name came n-th.
func shadeClass(n int) string { return "shade" + strconv.Itoa((n-1)%shades+1) }

func newPlotter(r *measure.Result) *plotter {
	p := &plotter{r: r, end: r.Info.End.Sub(r.Info.Start).Seconds()}
	for _, s := range r.Latencies {
		for _, pt := range s.Points {
			p.end = max(p.end, float64(pt.Second+1))
		}
	}
	for _, ph := range r.Phases {
		p.end = max(p.end, ph.End)
	}
	p.width = columnWidth(p.end)
	p.x, p.ticks = timeScale(p.end)
	p.names = phaseNames(r.Phases)
	for _, ph := range r.Phases {
		shade := slices.Index(p.names, ph.Name)
		if shade <= 0 || len(p.phases) >= maxBands {
			continue // The first one is the ground on which the others are seen.
		}
		left := 100 * max(p.x.at(ph.Start), 0)
		p.phases = append(p.phases, phaseBand{
			Left: left, Width: max(100*min(p.x.at(ph.End), 1)-left, 0), Class: shadeClass(shade),
			Title: fmt.Sprintf("%s, %s to %s", ph.Name, elapsed(ph.Start), elapsed(ph.End)),
		})
	}
	p.marks = marksOf(r.Events[:min(len(r.Events), maxMarks)], p.x)
	return p
}

// phaseNames returns the names of the phases: first that of the longest which is
// no baseline, then the others in the order in which they came.
func phaseNames(phases []measure.Phase) []string {
	length := make(map[string]float64)
	var names []string
	for _, ph := range phases {
		if ph.Name == "" {
			continue
		}
		if _, ok := length[ph.Name]; !ok {
			names = append(names, ph.Name)
		}
		length[ph.Name] += ph.End - ph.Start
	}
	rank := func(name string) float64 {
		if strings.Contains(name, "baseline") {
			return -1
		}
		return length[name]
	}
	if len(names) > 0 {
		ground := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
		at := slices.Index(names, ground)
		names = slices.Insert(slices.Delete(names, at, at+1), 0, ground)
	}
	return names
}

// marksOf returns a mark for each event. Those whose numbers would cover one
// another share one.
func marksOf(events []measure.Event, x scale) []mark {
	var marks []mark
	first := 0 // the index of the mark that has the last number
	for i, e := range events {
		m := mark{At: min(max(100*x.at(e.Seconds), 0), 100), Title: fmt.Sprintf("%d: %s", i+1, e.Text)}
		if i > 0 && m.At-marks[first].At < markRoom {
			marks[first].Number = fmt.Sprintf("%d–%d", first+1, i+1)
		} else {
			m.Number, first = strconv.Itoa(i+1), i
		}
		marks = append(marks, m)
	}
	return marks
}

// baselinesOf returns the metrics that others are compared to.
func baselinesOf(r *measure.Result) map[string]bool {
	names := make(map[string]bool)
	for _, f := range r.Figures {
		if base := r.Figure(f.Baseline); base != nil {
			names[base.Metric] = true
		}
	}
	return names
}

// baselineOf returns the latency that the named one is compared to, nil if none.
func (p *plotter) baselineOf(name string) *measure.Series {
	f := p.r.Figure(name + "_p50")
	if f == nil {
		return nil
	}
	if base := p.r.Figure(f.Baseline); base != nil {
		return p.series(base.Metric)
	}
	return nil
}

// series returns the latency of that name, nil if it was not measured.
func (p *plotter) series(name string) *measure.Series {
	for i := range p.r.Latencies {
		if p.r.Latencies[i].Name == name {
			return &p.r.Latencies[i]
		}
	}
	return nil
}

// latencies returns the names of those that have plots: the headlines first,
// baselines only beside what is compared to them.
func (p *plotter) latencies() []string {
	baselines := baselinesOf(p.r)
	var first, others []string
	for _, s := range p.r.Latencies {
		switch f := p.r.Figure(s.Name + "_p50"); {
		case s.Name == measure.LagName || baselines[s.Name]:
		case f != nil && f.Headline:
			first = append(first, s.Name)
		default:
			others = append(others, s.Name)
		}
	}
	all := append(first, others...)
	return all[:min(len(all), maxLatencyPlots)]
}

// moment returns the middle of a whole second of the clock, in seconds after the
// start: runs do not start on the second.
func (p *plotter) moment(second int64) float64 {
	return float64(second) + 0.5 - float64(p.r.Info.Start.Nanosecond())/1e9
}

// points returns one value of each point of a latency.
func (p *plotter) points(s *measure.Series, value func(measure.Point) float64) []sample {
	all := make([]sample, len(s.Points))
	for i, pt := range s.Points {
		all[i] = sample{p.moment(pt.Second), value(pt)}
	}
	return all
}

func p50(p measure.Point) float64     { return p.P50 }
func p99(p measure.Point) float64     { return p.P99 }
func highest(p measure.Point) float64 { return p.Max }

// latency plots a latency over time.
func (p *plotter) latency(name string) chart {
	s, base := p.series(name), p.baselineOf(name)
	c := p.chart(name + " over time")
	type curveOf struct {
		label, class string
		samples      []sample
		value        func(column) float64
		band         bool
	}
	curves := []curveOf{
		{"p50", "c1", p.points(s, p50), midOf, true},
		{"p99", "c2", p.points(s, p99), midOf, true},
		{"max", "peak", p.points(s, highest), highOf, false},
	}
	if base != nil {
		curves = append(curves,
			curveOf{base.Name + " p50", "base", p.points(base, p50), midOf, false},
			curveOf{base.Name + " p99", "base dashed", p.points(base, p99), midOf, false})
	}
	var samples []sample
	for _, v := range curves {
		samples = append(samples, v.samples...)
	}
	y := logScale(positive(samples))
	c.Y = y.logTicks("s")
	for _, v := range curves {
		runs := columns(v.samples, p.width, 1)
		l := line{Label: v.label, Class: v.class}
		l.Path, l.Dots = curve(runs, p.x, y, v.value)
		if v.band && p.width > 1 {
			l.Band = area(runs, p.x, y, lowOf, highOf)
		}
		c.Lines = append(c.Lines, l)
	}
	c.Caption = covers(p.width) + " The scale is logarithmic."
	c.Summary = fmt.Sprintf("%s in each second: p50 %s, p99 %s, maximum %s.", name,
		rangeOf(p.points(s, p50), "s"), rangeOf(p.points(s, p99), "s"), rangeOf(p.points(s, highest), "s"))
	c.Table = p.table("s", []string{"p50", "p99", "max"},
		p.points(s, p50), p.points(s, p99), p.points(s, highest))
	return c
}

// chart returns a chart over the time of the run.
func (p *plotter) chart(title string) chart {
	return chart{Title: title, X: p.ticks, Phases: p.phases, Marks: p.marks}
}

// positive returns the least and the most of the samples that a logarithmic
// scale can hold.
func positive(samples []sample) (low, high float64) {
	low, high = math.Inf(1), 0
	for _, s := range samples {
		if s.v > 0 {
			low, high = min(low, s.v), max(high, s.v)
		}
	}
	if high == 0 {
		return 1e-6, 1e-5
	}
	return low, high
}

// rangeOf says from where to where samples reach.
func rangeOf(samples []sample, unit string) string {
	if len(samples) == 0 {
		return "not measured"
	}
	least := slices.MinFunc(samples, func(a, b sample) int { return cmp.Compare(a.v, b.v) })
	most := slices.MaxFunc(samples, func(a, b sample) int { return cmp.Compare(a.v, b.v) })
	return format(least.v, unit) + " to " + format(most.v, unit)
}

// linearGap is how many columns may be empty within a line of a plot of what is
// looked at about once a second.
const linearGap = 3

// spread says whether any column holds different values.
func spread(runs [][]column) bool {
	return slices.ContainsFunc(flatten(runs), func(c column) bool { return c.high > c.low })
}

// table returns the numbers of some lines, put together to few rows: the most of
// each stretch.
func (p *plotter) table(unit string, names []string, lines ...[]sample) grid {
	width := 1.0
	for _, t := range timeTicks {
		if width = t.Seconds(); p.end/width <= tableRows {
			break
		}
	}
	g := grid{Head: append([]string{"from"}, names...)}
	cells := make(map[float64][]string)
	for i, samples := range lines {
		for _, c := range flatten(columns(samples, width, 1)) {
			if cells[c.t] == nil {
				cells[c.t] = slices.Repeat([]string{none}, len(lines))
			}
			cells[c.t][i] = format(c.high, unit)
		}
	}
	times := make([]float64, 0, len(cells))
	for t := range cells {
		times = append(times, t)
	}
	slices.Sort(times)
	for _, t := range times {
		g.Rows = append(g.Rows, append([]string{elapsed(t - width/2)}, cells[t]...))
	}
	return g
}

// A named is a line of a plot with a linear scale.
type named struct {
	name    string
	color   int // index of its class
	samples []sample
}

// linear plots lines over time from 0 on. Those with the highest peaks are kept
// when there are too many.
func (p *plotter) linear(title, unit string, lines []named) chart {
	c := p.chart(title)
	peak := func(n named) float64 {
		if len(n.samples) == 0 {
			return 0
		}
		return slices.MaxFunc(n.samples, func(a, b sample) int { return cmp.Compare(a.v, b.v) }).v
	}
	left := 0
	if len(lines) > maxLines {
		slices.SortStableFunc(lines, func(a, b named) int { return cmp.Compare(peak(b), peak(a)) })
		left = len(lines) - maxLines
		lines = lines[:maxLines]
		for i := range lines {
			lines[i].color = i // No two that are left have the same.
		}
	}
	most := 0.0
	for _, l := range lines {
		most = max(most, peak(l))
	}
	y, step := linearScale(most, unit == "B" || unit == "B/s")
	c.Y = y.linearTicks(step, unit)
	var names, said []string
	var all [][]sample
	for _, l := range lines {
		runs := columns(l.samples, p.width, linearGap)
		drawn := line{Label: l.name, Class: class(l.color), Note: "peak " + format(peak(l), unit)}
		drawn.Path, drawn.Dots = curve(runs, p.x, y, midOf)
		if spread(runs) {
			drawn.Band = area(runs, p.x, y, lowOf, highOf)
		}
		if len(lines) == 1 {
			drawn.Area = area(runs, p.x, y, zero, midOf)
		}
		c.Lines = append(c.Lines, drawn)
		names, all = append(names, l.name), append(all, l.samples)
		said = append(said, l.name+" "+rangeOf(l.samples, unit))
	}
	c.Caption = covers(p.width)
	if left > 0 {
		c.Caption += " " + strconv.Itoa(left) + " lines with lower peaks are left out."
	}
	c.Summary = title + ": " + strings.Join(said, ", ") + "."
	c.Table = p.table(unit, names, all...)
	return c
}

// throughput plots the counters, those of one unit together.
func (p *plotter) throughput() []chart {
	byUnit := make(map[string][]named)
	var units []string
	for _, rate := range p.r.Counters {
		if rate.Total == 0 {
			continue // A flat line would say less than the figure.
		}
		n := named{name: rate.Name}
		for _, pt := range rate.Points {
			n.samples = append(n.samples, sample{p.moment(pt.Second), pt.Value})
		}
		if byUnit[rate.Unit] == nil {
			units = append(units, rate.Unit)
		}
		n.color = len(byUnit[rate.Unit])
		byUnit[rate.Unit] = append(byUnit[rate.Unit], n)
	}
	var charts []chart
	for _, unit := range units {
		title, per := "Throughput", unit+"/s"
		if unit != "B" {
			title, per = or(unit, "counts")+" per second", "1/s"
			title = strings.ToUpper(title[:1]) + title[1:]
		}
		charts = append(charts, p.linear(title, per, byUnit[unit]))
	}
	return charts
}

// processes plots what processes use, each resource that is known.
func (p *plotter) processes() []chart {
	resources := []struct {
		title, unit string
		value       func(measure.ResourcePoint) (float64, bool)
	}{
		{"CPU by process, in cores", "", func(r measure.ResourcePoint) (float64, bool) { return r.CPU, r.CPU >= 0 }},
		{"Memory by process (resident)", "B", func(r measure.ResourcePoint) (float64, bool) { return float64(r.RSSBytes), r.RSSBytes > 0 }},
		{"Heap in use", "B", func(r measure.ResourcePoint) (float64, bool) { return float64(r.HeapBytes), r.HeapBytes > 0 }},
		{"Goroutines", "", func(r measure.ResourcePoint) (float64, bool) { return float64(r.Goroutines), r.Goroutines > 0 }},
		{"Open descriptors", "", func(r measure.ResourcePoint) (float64, bool) { return float64(r.FDs), r.FDs > 0 }},
	}
	var charts []chart
	processes := inOrder(p.r.Processes)
	for _, res := range resources {
		var lines []named
		for i, proc := range processes {
			n := named{name: proc.Name, color: i} // the same in every plot
			for _, pt := range proc.Points {
				if v, ok := res.value(pt); ok {
					n.samples = append(n.samples, sample{pt.Seconds, v})
				}
			}
			if len(n.samples) > 0 {
				lines = append(lines, n)
			}
		}
		if len(lines) > 0 {
			charts = append(charts, p.linear(res.title, res.unit, lines))
		}
	}
	return charts
}

// inOrder returns processes with the relays first and the generators last.
func inOrder(processes []measure.Process) []measure.Process {
	rank := func(p measure.Process) int {
		switch {
		case strings.HasPrefix(p.Name, "relay"):
			return 0
		case strings.HasPrefix(p.Name, "generator"):
			return 2
		}
		return 1
	}
	processes = slices.Clone(processes)
	slices.SortStableFunc(processes, func(a, b measure.Process) int { return cmp.Compare(rank(a), rank(b)) })
	return processes
}
