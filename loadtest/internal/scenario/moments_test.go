package scenario

import (
	"testing"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/growth"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

func TestPeakIsOfAnyWindow(t *testing.T) {
	ms := func(all ...int) (out []time.Duration) {
		for _, m := range all {
			out = append(out, time.Duration(m)*time.Millisecond)
		}
		return out
	}
	for _, test := range []struct {
		moments []time.Duration
		want    int
	}{
		{nil, 0},
		{ms(5), 1},
		{ms(0, 999, 1000), 2},
		{ms(0, 900, 1100, 1800, 1899), 4},
		{ms(0, 2000, 4000), 1},
	} {
		if got := peak(test.moments, time.Second); got != test.want {
			t.Errorf("peak of %v is %d, want %d", test.moments, got, test.want)
		}
	}
}

func TestSilenceCountsFromTheMomentItBegan(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	g := &gapWatch{}
	g.Output(nil, at(0))
	g.Output(nil, at(900)) // before anything was done
	g.from = at(1000)
	for ms := 920; ms <= 1040; ms += 20 { // what was on its way
		g.Output(nil, at(ms))
	}
	if g.longest != 0 {
		t.Errorf("output without a pause has one of %v", g.longest)
	}
	g.Output(nil, at(2540))
	if g.longest != 1500*time.Millisecond {
		t.Errorf("silence of %v, want 1.5s", g.longest)
	}
	late := &gapWatch{from: at(1000), last: at(400)}
	late.Output(nil, at(1700))
	if late.longest != 700*time.Millisecond {
		t.Errorf("silence of %v that began before, want 700ms", late.longest)
	}
}

func TestProcessIsAsBefore(t *testing.T) {
	before := map[string]measure.Resource{"relay": {Goroutines: 100, FDs: 20, HeapBytes: 30 << 20}}
	for name, now := range map[string]measure.Resource{
		"goroutines":  {Goroutines: 111, FDs: 20, HeapBytes: 30 << 20},
		"descriptors": {Goroutines: 100, FDs: 26, HeapBytes: 30 << 20},
		"heap":        {Goroutines: 100, FDs: 20, HeapBytes: 36 << 20},
	} {
		if growth.Settled(before, map[string]measure.Resource{"relay": now}) {
			t.Errorf("a process with more %s is as before", name)
		}
	}
	if !growth.Settled(before, map[string]measure.Resource{"relay": {Goroutines: 109, FDs: 24, HeapBytes: 33 << 20}}) {
		t.Error("a process with a little more isn't as before")
	}
}
