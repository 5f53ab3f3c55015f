package input

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// observed returns how often a histogram was.
func observed(t *testing.T, h prometheus.Collector) (n uint64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(h)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range families[0].GetMetric() {
		n += series.GetHistogram().GetSampleCount()
	}
	return n
}

// TestLateOutputIsNoEcho: what comes long after a key isn't taken for its echo.
func TestLateOutputIsNoEcho(t *testing.T) {
	metrics := NewMetrics(prometheus.NewRegistry())
	in := New(t.Context(), metrics)
	in.typedAt.Store(time.Now().Add(-longestEcho - time.Second).UnixNano())
	in.Shown()
	in.typedAt.Store(time.Now().Add(time.Hour).UnixNano()) // the clock has jumped
	in.Shown()
	if n := observed(t, metrics.Echo); n != 0 {
		t.Errorf("%d echoes", n)
	}
	in.typedAt.Store(time.Now().Add(-time.Second).UnixNano())
	in.Shown()
	in.Shown()
	if n := observed(t, metrics.Echo); n != 1 {
		t.Errorf("%d echoes", n)
	}
}
