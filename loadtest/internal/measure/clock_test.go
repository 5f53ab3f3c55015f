package measure

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"
)

// A bound on what crosses clocks holds or is broken only if that is so however
// far the clocks are apart.
func TestJudgeByClock(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	const ok, broken, statistics, clock = "ok", "broken", "statistics", "clock"
	r := &Result{ClockError: 0.1, Figures: []Figure{
		{Metric: "d", Name: "d_p50", Unit: "s", Value: v(0.107), CrossesClocks: true, Baseline: "base_p50", Ratio: "d_p50_ratio"},
		{Metric: "d", Name: "d_p50_ratio", Value: v(10.7), CrossesClocks: true},
		{Metric: "d", Name: "d_count", Value: v(40)},
		{Metric: "base", Name: "base_p50", Unit: "s", Value: v(0.010)},
		{Metric: "low", Name: "low_p99", Unit: "s", Value: v(0.020), CrossesClocks: true},
		{Metric: "w", Name: "w_p99", Unit: "s", Value: v(0.5), Interval: &Interval{0.4, 0.6}, CrossesClocks: true},
		{Metric: "n", Name: "n_p99", Unit: "s", Value: v(0.5), Interval: &Interval{0.49, 0.51}, CrossesClocks: true},
		{Metric: "m", Name: "m_p99", Unit: "s", Value: v(0.5), Interval: &Interval{1.49, 1.51}, CrossesClocks: true},
		{Metric: "echo", Name: "echo_p50", Unit: "s", Value: v(0.107), Interval: &Interval{0.1, 0.11}},
	}}
	for _, tt := range []struct{ expr, want string }{
		{"d_p50<=150ms", clock}, // 7 ms to 207 ms
		{"d_p50<=210ms", ok},
		{"d_p50<=6ms", broken},
		{"d_p50>=6ms", ok},
		{"d_p50>=150ms", clock},
		{"d_p50>=210ms", broken},
		{"d_p50==150ms", clock},
		{"d_p50==300ms", broken},
		{"d_p50!=150ms", clock},
		{"d_p50!=300ms", ok},
		{"d_count>=40", ok},
		{"low_p99>=0", ok}, // no time is less
		{"low_p99<0", broken},
		// The ratio is wrong by 100 ms in 10 ms.
		{"d_p50_ratio<=15", clock},
		{"d_p50_ratio<=21", ok},
		{"d_p50_ratio<=0.5", broken},
		{"d_p50_ratio>=0.5", ok},
		// The blocks are spread wider than the clocks are apart, or not.
		{"w_p99<=500ms", statistics},
		{"w_p99<=650ms", statistics}, // with 100 ms more
		{"w_p99<=750ms", ok},
		{"w_p99<=290ms", broken},
		{"n_p99<=500ms", clock}, // more blocks would not tell
		{"n_p99<=550ms", clock},
		{"n_p99<=650ms", ok},
		{"n_p99<=605ms", statistics}, // but for 10 ms of spread it holds
		{"n_p99<=380ms", broken},
		{"m_p99<=1300ms", broken}, // by the median of the blocks
		{"m_p99<=1500ms", clock},
		{"echo_p50<=105ms", statistics}, // crosses no clocks
		{"echo_p50<=150ms", ok},
	} {
		s, err := ParseSLO(tt.expr)
		if err != nil {
			t.Fatal(err)
		}
		got := Judge(r, []SLO{s})[0]
		as := broken
		switch {
		case got.OK && !got.Undecided && !got.ByClock:
			as = ok
		case got.Undecided && !got.OK && !got.ByClock:
			as = statistics
		case got.ByClock && !got.OK && !got.Undecided:
			as = clock
		}
		if as != tt.want || (got.Why == "") != got.OK {
			t.Errorf("Judge(%s): %s, want %s (%+v)", tt.expr, as, tt.want, got)
		}
		if as == clock && (!strings.Contains(got.Why, "± 100ms") || !strings.Contains(got.Why, "--local")) {
			t.Errorf("Judge(%s) says %q: neither how far the clocks are apart nor what would tell", tt.expr, got.Why)
		}
		alone := *r
		alone.ClockError = 0
		if got := Judge(&alone, []SLO{s})[0]; got.ByClock {
			t.Errorf("Judge(%s) with one clock: %+v", tt.expr, got)
		}
	}
}

// Where the baseline crosses the same clocks both are wrong by the same time.
func TestRatioOfWhatCrossesBoth(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	for _, tt := range []struct{ own, base, low, high float64 }{
		{0.3, 0.2, 0.4 / 0.3, 2},
		{0.2, 0.3, 0.5, 0.3 / 0.4},
		{0.2, 0.2, 1, 1},
		{0.3, 0.05, 0.4 / 0.15, math.Inf(1)}, // the baseline may be nothing
		{0.05, 0.3, 0, 0.15 / 0.4},
	} {
		r := &Result{ClockError: 0.1, Figures: []Figure{
			{Name: "d_p50", Unit: "s", Value: v(tt.own), CrossesClocks: true, Baseline: "alone_p50", Ratio: "d_p50_ratio"},
			{Name: "d_p50_ratio", Value: v(tt.own / tt.base), CrossesClocks: true},
			{Name: "alone_p50", Unit: "s", Value: v(tt.base), CrossesClocks: true},
		}}
		below, above := r.ByClock(r.Figure("d_p50_ratio"))
		low, high := tt.own/tt.base-below, tt.own/tt.base+above
		if math.Abs(low-tt.low) > 1e-9 || high != tt.high && math.Abs(high-tt.high) > 1e-9 {
			t.Errorf("%v to %v is from %v to %v, want %v to %v", tt.own, tt.base, low, high, tt.low, tt.high)
		}
	}
}

// Only what is left open by the clock is undecided by it.
func TestOnlyByClock(t *testing.T) {
	open, held, broken, straddled := Verdict{ByClock: true}, Verdict{OK: true}, Verdict{}, Verdict{Undecided: true}
	for _, tt := range []struct {
		verdicts []Verdict
		failure  string
		want     bool
	}{
		{nil, "", false},
		{[]Verdict{held}, "", false},
		{[]Verdict{open, held}, "", true},
		{[]Verdict{open, broken}, "", false},
		{[]Verdict{open, straddled}, "", false},
		{[]Verdict{open}, "the relay did not start", false},
	} {
		r := &Result{Verdicts: tt.verdicts, Info: Info{Failure: tt.failure}}
		if got := r.OnlyByClock(); got != tt.want {
			t.Errorf("%+v %q: %t, want %t", tt.verdicts, tt.failure, got, tt.want)
		}
	}
}

// A collection says which figures cross clocks, how far those are apart at most,
// and that a reader has to know it.
func TestCollectionCrossesClocks(t *testing.T) {
	metrics := []Metric{
		{Name: "delivery", Kind: KindLatency, Baseline: "bare", CrossesClocks: true},
		{Name: "beside", Kind: KindLatency, Baseline: "delivery"},
		{Name: "echo", Kind: KindLatency},
	}
	c := NewCollection(metrics)
	for _, name := range []string{"delivery", "bare", "beside", "echo"} {
		c.Merge("run", 0, snap(0, latencies(name, 10)))
	}
	if !c.CrossesClocks() || NewCollection(declared).CrossesClocks() {
		t.Error("whether metrics cross clocks isn't known")
	}
	if r := c.Result(Info{Start: epoch}); r.ClockError != 0 || len(r.Notes) != 0 {
		t.Errorf("one clock is wrong by %v s; notes %q", r.ClockError, r.Notes)
	}
	c.ClockError(30 * time.Millisecond)
	c.ClockError(20 * time.Millisecond)
	r := c.Result(Info{Start: epoch})
	if r.ClockError != 0.03 || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], "± 30ms") {
		t.Errorf("the clocks are wrong by %v s; notes %q", r.ClockError, r.Notes)
	}
	for name, want := range map[string]bool{
		"delivery_p50": true, "delivery_max": true, "delivery_count": false, "delivery_p99_ratio": true,
		"bare_p50": false, "beside_p50": false, "beside_p50_ratio": true, "echo_p99": false,
	} {
		if f := r.Figure(name); f == nil || f.CrossesClocks != want {
			t.Errorf("%s: %+v, want that it crosses clocks: %t", name, f, want)
		}
	}
	var b bytes.Buffer
	if err := r.Encode(&b); err != nil {
		t.Fatal(err)
	}
	if again, err := Decode(&b); err != nil || again.ClockError != r.ClockError || !again.Figure("delivery_p99").CrossesClocks {
		t.Errorf("read again: %v", err)
	}
	r.ClockError = -1
	b.Reset()
	if err := r.Encode(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(&b); err == nil {
		t.Error("clocks agree within less than nothing")
	}
}

// A difference that the clocks may have made is none that anybody knows of.
func TestCompareByClock(t *testing.T) {
	result := func(ms, clock float64) *Result {
		f := Figure{Name: "d_p50", Unit: "s", LowerIsBetter: true, CrossesClocks: true}
		value := ms / 1000
		f.Value = &value
		f.spread([]float64{value, value * 1.01, value * 1.02, value, value, value * 1.01})
		return &Result{ClockError: clock, Figures: []Figure{f}}
	}
	for _, tt := range []struct {
		a, b *Result
		want Outcome
	}{
		{result(100, 0), result(150, 0), Worse},
		{result(100, 0.02), result(150, 0), Worse},
		{result(100, 0.02), result(150, 0.04), Unclear},
		{result(150, 0.06), result(100, 0), Unclear},
		{result(100, 0.1), result(100, 0), Equal},
	} {
		if got := Compare(tt.a, tt.b)[0].Outcome; got != tt.want {
			t.Errorf("%v ± %v beside %v ± %v: %s, want %s", *tt.a.Figures[0].Value, tt.a.ClockError, *tt.b.Figures[0].Value, tt.b.ClockError, got, tt.want)
		}
	}
}
