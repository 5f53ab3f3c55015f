package report

import (
	"math"
	"testing"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

func TestFormat(t *testing.T) {
	for _, tt := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "s", "0 s"},
		{0.000001, "s", "1 µs"},
		{0.0000005, "s", "0.500 µs"},
		{0.00183, "s", "1.83 ms"},
		{0.0999996, "s", "100 ms"},
		{0.99996, "s", "1.00 s"},
		{59.94, "s", "59.9 s"},
		{90, "s", "1.50 min"},
		{7200, "s", "2 h"},
		{-0.002, "s", "-2 ms"},
		{0, "B", "0 B"},
		{1023, "B", "1,023 B"},
		{1024, "B", "1 KiB"},
		{1536, "B/s", "1.50 KiB/s"},
		{1 << 40, "B", "1 TiB"},
		{12.34, "%", "12.3 %"},
		{1234567, "", "1,234,567"},
		{-1234, "", "-1,234"},
		{1.005, "", "1.00"},
		{0.0421, "", "0.0421"},
		{1e-9, "", "1e-09"},
		{42, "1/s", "42/s"},
		{42, "chunks/s", "42 chunks/s"},
		{math.NaN(), "", none},
		{math.Inf(1), "s", none + " h"},
	} {
		if got := format(tt.v, tt.unit); got != tt.want {
			t.Errorf("format(%v, %q) = %q, want %q", tt.v, tt.unit, got, tt.want)
		}
	}
}

func TestBetween(t *testing.T) {
	for _, tt := range []struct {
		i    *measure.Interval
		want string
	}{
		{nil, ""},
		{&measure.Interval{Low: 0.001, High: 0.0025}, "1 … 2.50 ms"},
		{&measure.Interval{Low: 0.0009, High: 0.0025}, "900 µs … 2.50 ms"},
	} {
		if got := between(tt.i, "s"); got != tt.want {
			t.Errorf("between(%v) = %q, want %q", tt.i, got, tt.want)
		}
	}
}

func TestElapsed(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 30: "30 s", 60: "1 min", 90: "1 min 30 s", 3600: "1 h", 5400: "1 h 30 min", 14400: "4 h",
	} {
		if got := elapsed(v); got != want {
			t.Errorf("elapsed(%v) = %q, want %q", v, got, want)
		}
	}
	if got := clock(3*time.Hour + 4*time.Minute + 5*time.Second); got != "3:04:05" {
		t.Errorf("clock = %q", got)
	}
}

func TestLogScale(t *testing.T) {
	for _, tt := range []struct{ low, high float64 }{
		{0.0011, 0.8}, {0.002, 0.002}, {1e-6, 1e-6}, {1e-6, 600}, {0.999, 1.001}, {0.1, 0.2},
	} {
		s := logScale(tt.low, tt.high)
		if s.low > tt.low*(1+1e-9) || s.high < tt.high*(1-1e-9) || s.high/s.low < 9.99 {
			t.Errorf("logScale(%v, %v) = %+v", tt.low, tt.high, s)
		}
		ticks := s.logTicks("s")
		if len(ticks) < 2 || len(ticks) > 12 {
			t.Errorf("logScale(%v, %v) has %d ticks", tt.low, tt.high, len(ticks))
		}
		for i, k := range ticks {
			if k.At < -0.01 || k.At > 100.01 || i > 0 && k.At <= ticks[i-1].At {
				t.Errorf("logScale(%v, %v): tick %+v", tt.low, tt.high, k)
			}
		}
	}
}

func TestLinearScale(t *testing.T) {
	for _, high := range []float64{0, 1e-9, 0.46, 1, 5, 99, 100, 101, 1 << 20, 1e12} {
		for _, binary := range []bool{false, true} {
			s, step := linearScale(high, binary)
			ticks := s.linearTicks(step, "")
			if s.high < high || len(ticks) < 2 || len(ticks) > 7 {
				t.Errorf("linearScale(%v, %t) = %+v with %d ticks", high, binary, s, len(ticks))
			}
		}
	}
	if got := tickLabel(0.1+0.2, "s"); got != "300 ms" {
		t.Errorf("tickLabel = %q", got)
	}
	if got := tickLabel(0.5, ""); got != "0.5" {
		t.Errorf("tickLabel = %q", got)
	}
}

func TestColumns(t *testing.T) {
	samples := []sample{{0.5, 3}, {1.5, 1}, {2.5, 8}, {9.5, 5}, {10.5, 7}}
	runs := columns(samples, 5, 1)
	// Nothing was measured from 3 to 9, but no stretch of five seconds is empty.
	if len(runs) != 1 || len(runs[0]) != 3 {
		t.Fatalf("columns = %v", runs)
	}
	if c := runs[0][0]; c != (column{2.5, 1, 3, 8}) {
		t.Errorf("first column = %+v", c)
	}
	// Second by second the gap is seen.
	if runs := columns(samples, 1, 1); len(runs) != 2 || len(runs[0]) != 3 || len(runs[1]) != 2 {
		t.Errorf("columns = %v", runs)
	}
	if runs := columns(samples, 1, 7); len(runs) != 1 {
		t.Errorf("columns = %v, want the gap left out", runs)
	}
	if runs := columns(nil, 1, 1); runs != nil {
		t.Errorf("columns of nothing = %v", runs)
	}
	if w := columnWidth(4 * 3600); 4*3600/w > maxColumns {
		t.Errorf("four hours have %v columns", 4*3600/w)
	}
	if w := columnWidth(1e9); 1e9/w > maxColumns {
		t.Errorf("thirty years have %v columns", 1e9/w)
	}
}

func TestShell(t *testing.T) {
	words := []string{"loadtest", "run", "--slo", "echo_p99<20ms", "it's", "", "a=b", "-v"}
	if got, want := shell(words), `loadtest run --slo 'echo_p99<20ms' 'it'\''s' '' a=b -v`; got != want {
		t.Errorf("shell = %s, want %s", got, want)
	}
}
