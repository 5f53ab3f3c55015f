package measure

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// snap returns a snapshot of the second after epoch with that number, of what
// do records.
func snap(second int, do func(*Recorder)) Snapshot {
	r := begun()
	do(r)
	s := r.Snapshot()
	s.From = epoch.Add(time.Duration(second) * time.Second)
	s.To = s.From.Add(time.Second)
	return s
}

// latencies records durations in milliseconds.
func latencies(name string, ms ...float64) func(*Recorder) {
	return func(r *Recorder) {
		for _, v := range ms {
			r.Latency(name).RecordDuration(epoch, time.Duration(v*float64(time.Millisecond)))
		}
	}
}

// want fails the test unless the figure has that value, to a thousandth.
func want(t *testing.T, r *Result, name string, value float64) {
	t.Helper()
	f := r.Figure(name)
	if f == nil || f.Value == nil {
		t.Errorf("%s has no value, want %v", name, value)
	} else if math.Abs(*f.Value-value) > 0.001*math.Abs(value) {
		t.Errorf("%s = %v, want %v", name, *f.Value, value)
	}
}

// TestMergeIsExact splits samples over processes and seconds: the figures are
// those of one histogram of all.
func TestMergeIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := NewCollection([]Metric{{Name: "echo", Kind: KindLatency}})
	all := newHistogram()
	for second := range 20 {
		for range 4 {
			c.Merge("run", -1, snap(second, func(r *Recorder) {
				for range 250 {
					d := time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond))
					record(all, d)
					r.Latency("echo").RecordDuration(epoch, d)
				}
			}))
		}
	}
	r := c.Result(Info{Start: epoch})
	for _, s := range statistics {
		v, _ := s.value(all)
		if got := r.Figure("echo_" + s.suffix); *got.Value != v {
			t.Errorf("%s = %v, want exactly %v", got.Name, *got.Value, v)
		}
	}
	h, err := r.Latencies[0].Distribution()
	if err != nil || !h.Equals(all) {
		t.Errorf("the histogram differs from that of all samples (%v)", err)
	}
	if n := len(r.Latencies[0].Points); n != 20 {
		t.Errorf("%d points, want one for each of 20 seconds", n)
	}
}

func TestSeries(t *testing.T) {
	c := NewCollection(nil)
	for second := range 30 {
		c.Merge("run", -1, snap(second, latencies("echo", float64(second+1))))
	}
	// A snapshot that comes when its second is long closed.
	c.Merge("run", -1, snap(3, latencies("echo", 500)))
	// One that is late, but not too late for its percentiles.
	c.Merge("run", -1, snap(28, latencies("echo", 100, 100)))
	s := c.Result(Info{Start: epoch}).Latencies[0]
	if len(s.Points) != 30 || s.Count != 33 {
		t.Fatalf("%d points, %d samples; want 30 and 33", len(s.Points), s.Count)
	}
	if p := s.Points[3]; p.Second != 3 || p.Count != 2 || p.Max < 0.5 || p.P50 > 0.0041 {
		t.Errorf("point of the closed second = %+v", p)
	}
	if p := s.Points[28]; p.Count != 3 || p.P50 < 0.1 {
		t.Errorf("point of the open second = %+v", p)
	}
	if len(c.latencies["echo"].open) > openSeconds {
		t.Errorf("%d seconds are open", len(c.latencies["echo"].open))
	}
}

func TestBlocksAndRatios(t *testing.T) {
	c := NewCollection([]Metric{
		{Name: "echo", Kind: KindLatency, Baseline: "direct", Headline: true},
		{Name: "cpu", Unit: "s", Baseline: "bare_cpu"},
	})
	for b := range 9 {
		slow := float64(b + 1) // The machine gets slower; the ratio stays.
		c.Merge("fairlead", b, snap(2*b, latencies("echo", 2*slow, 3*slow, 4*slow)))
		c.Merge("direct", b, snap(2*b+1, latencies("direct", 1*slow, 1.5*slow, 2*slow)))
		c.Block("cpu", 3*slow)
		c.BlockAt("bare_cpu", b, 2*slow)
	}
	r := c.Result(Info{Start: epoch})
	want(t, r, "echo_p50_ratio", 2)
	want(t, r, "cpu_ratio", 1.5)
	want(t, r, "cpu", 15)
	want(t, r, "echo_max", 0.036)
	f := r.Figure("echo_p50")
	if len(f.Blocks) != 9 || f.Baseline != "direct_p50" || f.Ratio != "echo_p50_ratio" || f.Interval == nil {
		t.Errorf("echo_p50 = %+v", f)
	}
	if math.Abs(*f.Median-0.015) > 1e-5 {
		t.Errorf("median of blocks = %v, want 15 ms", *f.Median)
	}
	if q := r.Figure("echo_p50_ratio").Interval; q.High-q.Low > 0.01 {
		t.Errorf("interval of the ratio = %v, want hardly any: it is the same in every block", *q)
	}
	if f := r.Figure("echo_count"); f.Baseline != "" || f.Median != nil {
		t.Errorf("echo_count = %+v, want neither baseline nor median", f)
	}
	if got := c.Blocks("echo_p50"); len(got) != 9 || math.Abs(got[8]-0.027) > 1e-4 {
		t.Errorf("Blocks = %v", got)
	}
	var names []string
	for _, f := range r.Figures {
		names = append(names, f.Name)
	}
	if want := Figures(c.declared); !slices.Equal(names, want) {
		t.Errorf("figures are %v, want those that were declared: %v", names, want)
	}
}

// TestRatioIsOfTheSameBlock leaves out a block of the baseline.
func TestRatioIsOfTheSameBlock(t *testing.T) {
	c := NewCollection(nil)
	for b, v := range []float64{10, 20, 30} {
		c.BlockAt("a", b, v)
	}
	c.BlockAt("b", 0, 1)
	c.BlockAt("b", 2, 3)
	c.Block("b", math.NaN()) // the fourth; it could not be computed
	c.Ratio("a", "b")
	r := c.Result(Info{Start: epoch})
	want(t, r, "a_ratio", 10)
	want(t, r, "b", 2)
	if len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "b could not be computed in block 4") {
		t.Errorf("notes = %q", r.Notes)
	}
	c.Ratio("a", "a_ratio") // A ratio to a ratio of itself has no end.
	if f := c.Result(Info{Start: epoch}).Figure("a"); f.Ratio != "" {
		t.Errorf("a has the ratio %q", f.Ratio)
	}
}

// TestRatioWithoutBlocks divides what was measured in all.
func TestRatioWithoutBlocks(t *testing.T) {
	c := NewCollection([]Metric{{Name: "echo", Kind: KindLatency, Baseline: "direct"}})
	c.Merge("", -1, snap(0, latencies("echo", 6)))
	c.Merge("", -1, snap(1, latencies("direct", 2)))
	r := c.Result(Info{Start: epoch})
	want(t, r, "echo_p50_ratio", 3)
	if f := r.Figure("echo_p50_ratio"); f.Interval != nil || f.Median != nil {
		t.Errorf("ratio without blocks = %+v", f)
	}
}

func TestNotMeasuredIsNotZero(t *testing.T) {
	c := NewCollection([]Metric{
		{Name: "echo", Kind: KindLatency},
		{Name: "lost_bytes", Kind: KindCounter, Unit: "B"},
		{Name: "memory", Unit: "B"},
	})
	for _, f := range c.Result(Info{Start: epoch}).Figures {
		if f.Value != nil {
			t.Errorf("%s = %v, want no value", f.Name, *f.Value)
		}
	}
	c.Value("memory", math.Inf(1))
	c.Merge("", 0, snap(0, func(r *Recorder) { r.Counter("lost_bytes") }))
	r := c.Result(Info{Start: epoch})
	want(t, r, "lost_bytes", 0)
	if f := r.Figure("memory"); f.Value != nil {
		t.Errorf("memory = %v, want no value", *f.Value)
	}
}

func TestCounterRates(t *testing.T) {
	c := NewCollection(nil)
	// Half a second of the first, all of the second, half of the third.
	s := snap(0, func(r *Recorder) { r.Counter("bytes").Add(200) })
	s.From, s.To = epoch.Add(500*time.Millisecond), epoch.Add(2500*time.Millisecond)
	c.Merge("run", 0, s)
	c.Merge("run", 1, snap(1, func(r *Recorder) { r.Counter("bytes").Add(11) }))
	r := c.Result(Info{Start: epoch})
	if want := []RatePoint{{0, 50}, {1, 111}, {2, 50}}; !slices.Equal(r.Counters[0].Points, want) {
		t.Errorf("points = %v, want %v", r.Counters[0].Points, want)
	}
	if c.Count("bytes", 0) != 200 || c.Count("bytes", 1) != 11 || c.Count("bytes", -1) != 211 || c.Count("none", 0) != 0 {
		t.Errorf("counts = %d, %d, %d", c.Count("bytes", 0), c.Count("bytes", 1), c.Count("bytes", -1))
	}
}

func TestProcessesAndGenerator(t *testing.T) {
	c := NewCollection(nil)
	for i := range 20 {
		at := epoch.Add(time.Duration(i) * time.Second)
		res := Resource{CPUSeconds: 0.5 * float64(i), Started: 7, RSSBytes: 1000}
		if i >= 10 { // restarted
			res = Resource{CPUSeconds: 0.25 * float64(i-10), Started: 9, RSSBytes: 500}
		}
		c.Resource("relay 1", at, res)
	}
	points := c.Usage("relay 1", epoch)
	for i, want := range map[int]float64{0: -1, 1: 0.5, 9: 0.5, 10: -1, 11: 0.25} {
		if points[i].CPU != want {
			t.Errorf("CPU at %d = %v, want %v", i, points[i].CPU, want)
		}
	}
	if c.Usage("relay 2", epoch) != nil {
		t.Error("an unknown process has been used")
	}
	c.Resource("relay 1", epoch, Resource{}) // Time does not run backwards.
	if n := len(c.Usage("relay 1", epoch)); n != 20 {
		t.Errorf("%d points, want 20", n)
	}
}

func TestSaturation(t *testing.T) {
	type load struct {
		cpu  func(second int) float64 // cores used
		lag  float64                  // milliseconds
		echo float64
	}
	half := func(int) float64 { return 0.5 }
	for name, tt := range map[string]struct {
		load load
		want bool
	}{
		"idle":                  {load{half, 0.1, 10}, false},
		"busy for a moment":     {load{func(s int) float64 { return map[bool]float64{true: 2, false: 0.5}[s == 5] }, 0.1, 10}, false},
		"busy for five seconds": {load{func(s int) float64 { return map[bool]float64{true: 1.9, false: 0.1}[s >= 5 && s < 11] }, 0.1, 10}, true},
		"late":                  {load{half, 25, 200}, true},
		"late, but much slower": {load{half, 25, 300}, false},
		"a third of what it is": {load{half, 6, 18}, true},
		"a fifth of what it is": {load{half, 6, 30}, false},
		"less than five late":   {load{half, 4, 10}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCollection([]Metric{{Name: "echo", Kind: KindLatency, Headline: true}})
			used := 0.0
			for i := range 20 {
				s := snap(i, func(r *Recorder) {
					latencies("echo", tt.load.echo)(r)
					latencies(LagName, tt.load.lag)(r)
				})
				s.Process = &ProcessSnapshot{"generator 1", 2, Resource{CPUSeconds: used}}
				used += tt.load.cpu(i)
				c.Merge("", -1, s)
			}
			g := c.Result(Info{Start: epoch}).Generator
			if g.Saturated != tt.want || len(g.Why) > 0 != tt.want || g.Processes != 1 || g.LagP99 == nil {
				t.Errorf("generator = %+v, want saturated %t", g, tt.want)
			}
		})
	}
}

func TestPhasesEventsFailures(t *testing.T) {
	c := NewCollection(nil)
	something := func(r *Recorder) { r.Counter("keys").Add(1) }
	for second, phase := range []string{"alone", "alone", "bulk", "bulk", "alone"} {
		c.Merge(phase, second/2, snap(second, something))
		// The generators of the other phase have nothing to do, and say so.
		c.Merge("alone", second/2, snap(second, func(r *Recorder) {
			r.Counter("keys")
			latencies(LagName, 1)(r)
		}))
	}
	c.Event(epoch.Add(3*time.Second), "relay 2\x1b[2J killed")
	c.Event(epoch.Add(time.Second), "relay 1 killed")
	c.Fail("rare", errors.New("x"))
	for range 3 {
		c.Fail("frequent", nil)
	}
	r := c.Result(Info{Start: epoch})
	if want := []Phase{{"alone", 0, 0, 2}, {"bulk", 1, 2, 4}, {"alone", 2, 4, 5}}; !slices.Equal(r.Phases, want) {
		t.Errorf("phases = %v, want %v", r.Phases, want)
	}
	if want := []Event{{1, "relay 1 killed"}, {3, "relay 2 [2J killed"}}; !slices.Equal(r.Events, want) {
		t.Errorf("events = %v, want %v", r.Events, want)
	}
	if len(r.Failures) != 2 || r.Failures[0].Reason != "frequent" || r.Failures[0].Count != 3 {
		t.Errorf("failures = %v", r.Failures)
	}
}

func TestLive(t *testing.T) {
	c := NewCollection([]Metric{
		{Name: "lost_bytes", Kind: KindCounter, Unit: "B", MustBeZero: true},
		{Name: "echo", Kind: KindLatency},
		{Name: "bytes", Kind: KindCounter, Unit: "B"},
	})
	if l := c.Live(epoch); l.Latency != "echo" || l.P50 != nil || l.Counter != "bytes" || l.Rate != 0 {
		t.Errorf("Live at first = %+v", l)
	}
	for second := range 10 {
		c.Merge("", -1, snap(second, func(r *Recorder) {
			latencies("echo", float64(second))(r)
			r.Counter("bytes").Add(int64(100 * second))
			r.Counter("another_bytes").Add(1) // nobody declared it
			r.Fail("refused", nil)
		}))
	}
	l := c.Live(epoch.Add(10 * time.Second))
	if l.P50 == nil || *l.P50 < 0.006 || *l.P50 > 0.0085 || l.Failures != 10 || l.Rate != 700 {
		t.Errorf("Live = %+v (p50 %v)", l, l.P50)
	}
}

// Progress shows what a scenario declared, and nothing else.
func TestLiveIsOfDeclared(t *testing.T) {
	c := NewCollection([]Metric{{Name: "command", Kind: KindLatency}})
	c.Merge("", -1, snap(0, func(r *Recorder) { r.Counter("corrupt_files") }))
	if l := c.Live(epoch); l.Counter != "" {
		t.Errorf("Live = %+v", l)
	}
}

func TestCollectionIsBounded(t *testing.T) {
	c := NewCollection(nil)
	for i := range maxNames + 10 {
		c.Value(fmt.Sprintf("value_%d", i), 1)
		c.Block(fmt.Sprintf("block_%d", i), 1)
	}
	for range maxEvents + 10 {
		c.Event(epoch, strings.Repeat("x", 1000))
	}
	for i := range 2 * maxNotes {
		c.Note(fmt.Sprint(i))
	}
	r := c.Result(Info{Start: epoch})
	if len(c.values) != maxNames || len(c.blocks) != maxNames || len(r.Events) != maxEvents || len(r.Notes) != maxNotes {
		t.Errorf("%d values, %d blocks, %d events, %d notes", len(c.values), len(c.blocks), len(r.Events), len(r.Notes))
	}
	if len(r.Events[0].Text) > maxEventBytes {
		t.Errorf("event of %d bytes", len(r.Events[0].Text))
	}
	s := snap(0, func(*Recorder) {})
	s.Latencies = map[string]LatencySnapshot{"echo": {Histogram: "not one"}}
	c = NewCollection(nil)
	c.Merge("", 0, s)
	if r := c.Result(Info{}); len(r.Notes) != 1 || len(r.Latencies) != 0 {
		t.Errorf("an unreadable snapshot left the notes %q", r.Notes)
	}
}
