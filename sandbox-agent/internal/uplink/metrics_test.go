package uplink

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// TestDialsAreCounted: a carrier that merely was slower has not failed.
func TestDialsAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	tunnels := New(Options{})
	registry.MustRegister(tunnels)
	m, events := tunnels.metrics, tunnels.events
	events.Dialled(tunnel.CarrierQUIC, nil, time.Millisecond)
	events.Dialled(tunnel.CarrierWebSocket, context.Canceled, time.Millisecond)
	events.Dialled(tunnel.CarrierWebSocket, errors.New("refused"), time.Millisecond)
	events.Climbed(nil, time.Second)
	events.Climbed(errors.New("timeout"), time.Second)
	events.Closed(tunnel.CarrierQUIC, protocol.KindRestarting, time.Hour)
	for _, tt := range []struct {
		c    prometheus.Collector
		want float64
	}{
		{m.dials.WithLabelValues("quic", dialOK), 1}, {m.dials.WithLabelValues("quic", dialFailed), 0},
		{m.dials.WithLabelValues("websocket", dialLost), 1}, {m.dials.WithLabelValues("websocket", dialFailed), 1},
		{m.climbs.WithLabelValues(dialOK), 1}, {m.climbs.WithLabelValues(dialFailed), 1},
		{m.closed.WithLabelValues("quic", "restarting"), 1},
	} {
		if got := testutil.ToFloat64(tt.c); got != tt.want {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fairlead_agent_climb_seconds" {
			continue
		}
		if took := f.GetMetric()[0].GetHistogram(); took.GetSampleCount() != 1 || took.GetSampleSum() != 1 {
			t.Errorf("%d climbs took %v s", took.GetSampleCount(), took.GetSampleSum())
		}
	}
}
