package scenario

import (
	"slices"
	"testing"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/measure"
)

// A run that can't tell drift has no bound on it, unless it is asked for.
func TestShortSoakHasNoBoundOnDrift(t *testing.T) {
	drift := measure.SLO{Metric: "echo_drift", Op: "<", Number: 0.1}
	for _, row := range []struct {
		lasts time.Duration
		asked bool
		want  int
	}{
		{30 * time.Second, false, 0}, {30 * time.Second, true, 1},
		{time.Minute, false, 1}, {time.Minute, true, 2},
	} {
		o := soak.Defaults
		o.Duration = row.lasts
		if row.asked {
			o.SLOs = append(slices.Clone(o.SLOs), drift)
		}
		if err := prepareSoak(&o); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range o.SLOs {
			if s.Metric == "echo_drift" {
				n++
			}
		}
		if n != row.want || row.asked && o.SLOs[len(o.SLOs)-1] != drift {
			t.Errorf("%+v: %v", row, o.SLOs)
		}
	}
	if n := len(soak.Defaults.SLOs); n != 4 {
		t.Errorf("the defaults are %d bounds now", n)
	}
}
