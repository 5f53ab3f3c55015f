package measure

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestParseSLO(t *testing.T) {
	for _, tt := range []struct {
		expr string
		want SLO
	}{
		{"echo_p99<20ms", SLO{"echo_p99", "<", 20, "ms"}},
		{"lost_bytes==0", SLO{"lost_bytes", "==", 0, ""}},
		{" throughput >= 1.5 MiB ", SLO{"throughput", ">=", 1.5, "MiB"}},
		{"a!=1e3", SLO{"a", "!=", 1000, ""}},
		{"a<=-2.5%", SLO{"a", "<=", -2.5, "%"}},
		{"a>1µs", SLO{"a", ">", 1, "µs"}},
		{"a>1m", SLO{"a", ">", 1, "m"}},
	} {
		got, err := ParseSLO(tt.expr)
		if err != nil || got != tt.want {
			t.Errorf("ParseSLO(%q) = %+v, %v; want %+v", tt.expr, got, err, tt.want)
		}
	}
	for _, expr := range []string{
		"", "echo", "<5", "echo<", "echo=5", "echo<5parsecs", "echo<ms", "echo<<5", "echo<5<6", "Echo<5",
		"echo p99<5", "echo<NaN", "echo<Inf", "echo<1e999", "echo<0x10", "echo<1_000", "echo==", "echo!5",
		strings.Repeat("a", 300) + "<5", "echo<\x1b[31m5",
	} {
		if got, err := ParseSLO(expr); err == nil {
			t.Errorf("ParseSLO(%q) = %+v, want an error", expr, got)
		} else if strings.Contains(err.Error(), "\x1b") {
			t.Errorf("error %q holds a control character", err)
		}
	}
}

func FuzzParseSLO(f *testing.F) {
	for _, expr := range []string{"echo_p99<20ms", "lost_bytes==0", "a>=1e-3 GiB", "a!=5%", "a<<", "a=1", "µ<1µs", "a<1e"} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		s, err := ParseSLO(expr)
		if err != nil {
			return
		}
		if s.Metric == "" || !slices.Contains(operators, s.Op) || math.IsNaN(s.Number) || math.IsInf(s.Number, 0) {
			t.Fatalf("ParseSLO(%q) = %+v", expr, s)
		}
		again, err := ParseSLO(s.String())
		if err != nil || again != s {
			t.Fatalf("ParseSLO(%q) = %+v, %v; want %+v", s.String(), again, err, s)
		}
	})
}

var declared = []Metric{
	{Name: "echo", Kind: KindLatency, Headline: true, Baseline: "direct"},
	{Name: "lost_bytes", Kind: KindCounter, Unit: "B", MustBeZero: true},
	{Name: "throughput", Unit: "B/s", Headline: true},
	{Name: "memory_ratio"},
	{Name: "busy", Unit: "%"},
}

func TestCheck(t *testing.T) {
	for _, expr := range []string{
		"echo_p50<1ms", "echo_p999<1", "echo_count>100", "echo_max<5m", "direct_p99<1s", "echo_p99_ratio<1.5",
		"generator_lag_p99<5ms", "lost_bytes==0B", "throughput>10MiB", "memory_ratio<85%", "busy<90%", "busy<90",
	} {
		s, err := ParseSLO(expr)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(declared); err != nil {
			t.Errorf("Check(%s) = %v", expr, err)
		}
	}
	for _, expr := range []string{"echo_p50<1MB", "lost_bytes<1ms", "echo_count<1s", "echo_p99_ratio<1ms", "memory_ratio<5B"} {
		s, _ := ParseSLO(expr)
		if err := s.Check(declared); err == nil {
			t.Errorf("Check(%s) = nil, want an error", expr)
		}
	}
	s, _ := ParseSLO("echo<1ms")
	var unknown *NameError
	if err := s.Check(declared); !errors.As(err, &unknown) || !slices.Contains(unknown.Known, "echo_p99") {
		t.Errorf("Check(%s) = %v, want a NameError with the names there are", s, err)
	}
}

func TestJudge(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	r := &Result{Figures: []Figure{
		{Metric: "echo", Name: "echo_p50", Unit: "s", Value: v(0.010), Interval: &Interval{0.008, 0.012}},
		{Metric: "echo", Name: "echo_p99", Unit: "s", Value: v(0.020)},
		{Metric: "join", Name: "join_p99", Unit: "s"},
		{Metric: "lost_bytes", Name: "lost_bytes", Unit: "B", Value: v(3), MustBeZero: true},
		{Metric: "ratio", Name: "ratio", Value: v(0.9), Interval: &Interval{1.1, 1.2}},
	}}
	for _, tt := range []struct {
		expr          string
		ok, undecided bool
	}{
		{"echo_p50<20ms", true, false},
		{"echo_p50<11ms", false, true},
		{"echo_p50<9ms", false, true}, // the value breaks it, but one end of the interval does not
		{"echo_p50<5ms", false, false},
		{"echo_p50==10ms", true, false},
		{"echo_p99<20ms", false, false},
		{"echo_p99<=20ms", true, false},
		{"echo_p99>=0.02", true, false},
		{"echo_p99!=20ms", false, false},
		{"join_p99<1s", false, false},
		{"join_p99>=0", false, false}, // nothing was measured
		{"absent<1", false, false},
		{"lost_bytes<=3B", true, false},
		{"lost_bytes<1KiB", true, false},
		{"ratio<1", false, false}, // the median of the blocks breaks it
		{"ratio<130%", true, false},
	} {
		s, err := ParseSLO(tt.expr)
		if err != nil {
			t.Fatal(err)
		}
		got := Judge(r, []SLO{s})[0]
		if got.OK != tt.ok || got.Undecided != tt.undecided || (got.Why == "") != tt.ok {
			t.Errorf("Judge(%s) = %+v, want ok %t, undecided %t", tt.expr, got, tt.ok, tt.undecided)
		}
	}
	// What must be 0 breaks the run though nobody asked.
	r.Verdicts = Judge(r, nil)
	if ok, why := r.OK(); ok || len(why) != 1 || !strings.Contains(why[0], "lost_bytes") {
		t.Errorf("OK() = %t, %q", ok, why)
	}
	// Who asks decides.
	s, _ := ParseSLO("lost_bytes<10")
	r.Verdicts = Judge(r, []SLO{s})
	if ok, why := r.OK(); !ok {
		t.Errorf("OK() = %t, %q", ok, why)
	}
}

// TestSaturatedObjects has a generator that was late: that matters for times,
// not for counts.
func TestSaturatedObjects(t *testing.T) {
	c := NewCollection(declared)
	c.Merge("", 0, snap(0, func(r *Recorder) {
		latencies("echo", 10)(r)
		r.Counter("lost_bytes")
	}))
	r := c.Result(Info{Start: epoch})
	r.Generator.Saturated = true
	count, latency := SLO{"lost_bytes", "==", 0, ""}, SLO{"echo_p99", "<", 1, "s"}
	for _, tt := range []struct {
		slos []SLO
		ok   bool
	}{{nil, false}, {[]SLO{count}, true}, {[]SLO{latency}, false}, {[]SLO{count, latency}, false}} {
		r.Verdicts = Judge(r, tt.slos)
		if ok, why := r.OK(); ok != tt.ok {
			t.Errorf("with the bounds %v: OK() = %t, %q", tt.slos, ok, why)
		}
	}
	r.Info.Interrupted, r.Info.Failure = true, "the relay did not start"
	if ok, why := r.OK(); ok || len(why) != 3 {
		t.Errorf("OK() = %t, %q; want three objections", ok, why)
	}
}
