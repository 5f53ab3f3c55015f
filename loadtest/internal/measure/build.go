package measure

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// liveSeconds is how far back Live looks.
const liveSeconds = 5

// busyLoad is the load per core before the start from which on a result says so.
const busyLoad = 0.5

// Live is how a run goes at the moment.
type Live struct {
	Latency  string   // the name of the latency, "" if none is declared
	P50, P99 *float64 // of the last seconds, in seconds; nil without samples
	Counter  string   // the name of the counter, "" if none is declared
	Rate     float64  // of the counter per second, over the last seconds
	Unit     string   // of the counter
	Failures int64    // in all
}

// Live returns how the run went in the last seconds before now: the first
// latency, and the first counter of bytes, else the first counter, in the order
// of their declaration.
func (c *Collection) Live(now time.Time) Live {
	c.mu.Lock()
	defer c.mu.Unlock()
	var live Live
	if m := c.first(func(m Metric) bool { return m.Kind == KindLatency && m.Name != LagName }); m != nil {
		live.Latency = m.Name
		if s := c.latencies[m.Name]; s != nil {
			h := s.last(now.Unix() - liveSeconds)
			live.P50, live.P99 = optional(quantile(h, 50)), optional(quantile(h, 99))
		}
	}
	counter := c.first(func(m Metric) bool { return c.counts(m) && m.Unit == "B" })
	if counter == nil {
		counter = c.first(c.counts)
	}
	if counter != nil {
		live.Counter, live.Unit = counter.Name, counter.Unit
		if s := c.counters[counter.Name]; s != nil {
			live.Rate = s.rate(now.Unix())
		}
	}
	for _, f := range c.failures {
		live.Failures += f.count
	}
	return live
}

// first returns the first declared metric that is as it should be, nil if none
// is.
func (c *Collection) first(ok func(Metric) bool) *Metric {
	if i := slices.IndexFunc(c.declared, ok); i >= 0 {
		return &c.declared[i]
	}
	return nil
}

// counts says whether a metric counts what is done: neither losses nor what a
// baseline does.
func (c *Collection) counts(m Metric) bool {
	return m.Kind == KindCounter && !m.MustBeZero && !strings.HasPrefix(m.Name, "baseline")
}

// rate returns the growth per second in the last whole seconds before now, of
// those in which anything was reported.
func (s *counterSeries) rate(now int64) float64 {
	var sum, n float64
	for t := now - liveSeconds; t < now; t++ {
		if v, ok := s.rates[t]; ok {
			sum += v
			n++
		}
	}
	return sum / max(n, 1)
}

// Result returns everything measured so far. Info must say when the run
// started: that is where the plots begin.
func (c *Collection) Result(info Info) *Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &Result{
		Version: Version, Info: info,
		Failures:   failuresOf(c.failures),
		ClockError: c.clockError.Seconds(),
		Notes:      slices.Clone(c.notes),
	}
	metrics := c.metrics()
	for _, m := range metrics {
		r.Figures = append(r.Figures, c.figures(m)...)
	}
	if r.ClockError > 0 && r.crossesClocks() {
		r.Notes = append(r.Notes, fmt.Sprintf(clockNote, r.clockErrorText()))
	}
	if m := info.Machine; m.Load > busyLoad*float64(m.Cores) {
		r.Notes = append(r.Notes, fmt.Sprintf("the machine was not idle when the run began: its load was %.1f with %d cores", m.Load, m.Cores))
	}
	start := info.Start
	for _, m := range metrics {
		if s := c.latencies[m.Name]; s != nil && s.total.TotalCount() > 0 {
			r.Latencies = append(r.Latencies, s.series(m, start))
			r.Notes = append(r.Notes, s.notes(m.Name)...)
		}
		if s := c.counters[m.Name]; s != nil {
			r.Counters = append(r.Counters, s.series(m, start))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.processes)) {
		p := c.processes[name]
		r.Processes = append(r.Processes, Process{name, p.cores, p.since(start)})
	}
	for _, s := range c.phases {
		r.Phases = append(r.Phases, Phase{s.name, s.block, millis(s.from.Sub(start)), millis(s.to.Sub(start))})
	}
	slices.SortStableFunc(r.Phases, func(a, b Phase) int { return order(a.Start, b.Start) })
	for _, e := range c.events {
		r.Events = append(r.Events, Event{millis(e.at.Sub(start)), e.text})
	}
	slices.SortStableFunc(r.Events, func(a, b Event) int { return order(a.Seconds, b.Seconds) })
	r.Generator = generatorOf(r)
	return r
}

// metrics returns what was declared, then what was recorded all the same. The
// caller holds mu.
func (c *Collection) metrics() []Metric {
	all := slices.Clone(c.declared)
	extra := make(map[string]Metric)
	for name := range c.latencies {
		extra[name] = Metric{Name: name, Kind: KindLatency, Unit: "s", LowerIsBetter: true}
	}
	for name := range c.counters {
		extra[name] = Metric{Name: name, Kind: KindCounter, Unit: unitOf(name)}
	}
	for name := range c.blocks {
		extra[name] = Metric{Name: name, Unit: unitOf(name)}
	}
	for name := range c.values {
		extra[name] = Metric{Name: name, Unit: unitOf(name)}
	}
	for _, m := range all {
		delete(extra, m.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(extra)) {
		all = append(all, extra[name])
	}
	return all
}

// unitOf returns the unit that a name tells of what nobody declared.
func unitOf(name string) string {
	switch {
	case strings.HasSuffix(name, "_bytes"):
		return "B"
	case strings.HasSuffix(name, "_seconds"):
		return "s"
	}
	return ""
}

// figures returns the figures of a metric, each followed by its ratio. The
// caller holds mu.
func (c *Collection) figures(m Metric) []Figure {
	var figures []Figure
	for _, name := range m.figures() {
		f := Figure{
			Metric: m.Name, Name: name, Unit: m.Unit, Help: m.Help,
			Headline: m.Headline, LowerIsBetter: m.LowerIsBetter, MustBeZero: m.MustBeZero,
		}
		count := m.Kind == KindLatency && strings.HasSuffix(name, "_count")
		f.CrossesClocks = m.crosses(name)
		f.Exact = count || m.Kind == KindCounter || m.MustBeZero
		if count {
			f.Unit, f.Headline, f.LowerIsBetter = "", false, false
		}
		f.Value = optional(c.value(name))
		if m.Kind != KindCounter && !count {
			f.spread(inOrder(c.blockValues(name)))
		}
		f.Baseline = c.baseline(m, name)
		if f.Baseline == "" || count {
			f.Baseline = ""
			figures = append(figures, f)
			continue
		}
		f.Ratio = name + ratioSuffix
		ratio := Figure{
			Metric: m.Name, Name: f.Ratio, Headline: m.Headline, LowerIsBetter: m.LowerIsBetter,
			Help:          fmt.Sprintf("%s divided by %s", name, f.Baseline),
			CrossesClocks: f.CrossesClocks || c.crosses(f.Baseline),
		}
		ratio.spread(inOrder(c.blockValues(f.Ratio)))
		ratio.Value = optional(c.value(f.Ratio))
		figures = append(figures, f, ratio)
	}
	return figures
}

// crosses says whether the figure of that name crosses clocks.
func (c *Collection) crosses(figure string) bool {
	return slices.ContainsFunc(c.declared, func(m Metric) bool {
		return slices.Contains(m.figures(), figure) && m.crosses(figure)
	})
}

// spread sets what is known of the blocks.
func (f *Figure) spread(blocks []float64) {
	if len(blocks) < 2 {
		return
	}
	f.Blocks = blocks
	m := median(blocks)
	f.Median, f.Interval = &m, interval(blocks)
	if f.Interval != nil && confident(len(blocks)) {
		f.Confidence = confidence
	}
}

// baseline returns the name of the figure that a metric's figure is divided by,
// "" if there is none. It is never a ratio, so that looking one up has an end.
// The caller holds mu.
func (c *Collection) baseline(m Metric, figure string) string {
	name := c.divided[figure]
	if name == "" {
		base := m.Baseline
		if b := c.divided[m.Name]; b != "" {
			base = b
		}
		if base != "" {
			name = base + strings.TrimPrefix(figure, m.Name)
		}
	}
	if strings.HasSuffix(name, ratioSuffix) {
		return ""
	}
	return name
}

// value returns a figure over everything measured, false if nothing was. The
// caller holds mu.
func (c *Collection) value(figure string) (float64, bool) {
	if v, ok := c.values[figure]; ok {
		return v, true
	}
	if blocks := inOrder(c.blockValues(figure)); len(blocks) > 0 && c.medianOnly(figure) {
		return median(blocks), true
	}
	if name, ok := strings.CutSuffix(figure, ratioSuffix); ok {
		a, okA := c.value(name)
		b, okB := c.value(c.baselineOf(name))
		return a / b, okA && okB && b != 0
	}
	if s := c.counters[figure]; s != nil {
		return float64(s.total), true
	}
	if s, stat := c.statistic(figure); s != nil && s.total.TotalCount() > 0 {
		return stat.value(s.total)
	}
	return 0, false
}

// medianOnly says that a figure has no value but the median of its blocks. The
// caller holds mu.
func (c *Collection) medianOnly(figure string) bool {
	_, latency := c.statistic(figure)
	return c.blocks[figure] != nil || (latency == nil && c.counters[figure] == nil)
}

// statistic returns the latency that a figure is made of, and how. The caller
// holds mu.
func (c *Collection) statistic(figure string) (*latencySeries, *statistic) {
	for i, s := range statistics {
		if name, ok := strings.CutSuffix(figure, "_"+s.suffix); ok && c.latencies[name] != nil {
			return c.latencies[name], &statistics[i]
		}
	}
	return nil, nil
}

// baselineOf returns the name of the figure that the given one is divided by.
// The caller holds mu.
func (c *Collection) baselineOf(figure string) string {
	for _, m := range c.metrics() {
		if slices.Contains(m.figures(), figure) {
			return c.baseline(m, figure)
		}
	}
	return ""
}

// blockValues returns the values that a figure has in the blocks. The caller
// holds mu.
func (c *Collection) blockValues(figure string) map[int]float64 {
	values := make(map[int]float64)
	if set := c.blocks[figure]; set != nil {
		for b, v := range set {
			if finite(v) {
				values[b] = v
			}
		}
		return values
	}
	if name, ok := strings.CutSuffix(figure, ratioSuffix); ok {
		if base := c.baselineOf(name); base != "" {
			return ratios(c.blockValues(name), c.blockValues(base))
		}
	}
	if s := c.counters[figure]; s != nil {
		for b, n := range s.blocks {
			if b >= 0 {
				values[b] = float64(n)
			}
		}
		return values
	}
	if s, stat := c.statistic(figure); s != nil {
		for b, p := range s.blocks {
			if v, ok := stat.value(p.read()); ok {
				values[b] = v
			}
		}
	}
	return values
}

// series returns the latency as it stands in a result.
func (s *latencySeries) series(m Metric, start time.Time) Series {
	points := s.all()
	for i := range points {
		points[i].Second -= start.Unix()
	}
	return Series{
		Name: m.Name, Help: m.Help, Histogram: encodeHistogram(s.total),
		Count: s.total.TotalCount(), Tally: s.tally, Points: points,
	}
}

// notes returns what a reader of the latency has to know.
func (s *latencySeries) notes(name string) []string {
	var notes []string
	if s.tally.Clamped > 0 {
		notes = append(notes, fmt.Sprintf("%d samples of %s were longer than 10 minutes and count as 10", s.tally.Clamped, name))
	}
	if s.tally.Early > 0 {
		notes = append(notes, fmt.Sprintf("%d samples of %s came before they were due and count as 0", s.tally.Early, name))
	}
	if s.full {
		notes = append(notes, fmt.Sprintf("%s is plotted for its first %d seconds only", name, maxPoints))
	}
	return notes
}

// series returns the counter as it stands in a result.
func (s *counterSeries) series(m Metric, start time.Time) Rate {
	points := s.all()
	for i := range points {
		points[i].Second -= start.Unix()
	}
	return Rate{Name: m.Name, Unit: m.Unit, Help: m.Help, Total: s.total, Points: points}
}

// optional returns a pointer to v if there is one.
func optional(v float64, ok bool) *float64 {
	if !ok || !finite(v) {
		return nil
	}
	return &v
}

func order(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
