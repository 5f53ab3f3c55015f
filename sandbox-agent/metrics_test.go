package agent

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
	registry := prometheus.NewRegistry()
	m := newTunnelMetrics(registry)
	events := m.events()
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

// TestHealthIsShown: problems, and when the certificate is over.
func TestHealthIsShown(t *testing.T) {
	expires := time.Unix(1_800_000_000, 0)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&healthState{func() Status {
		return Status{
			Ready: true, CertificateExpiresAt: expires, Problems: []protocol.Problem{{Name: protocol.ProblemAudit}, {Name: protocol.ProblemAudit}},
		}
	}})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			name := f.GetName()
			for _, label := range series.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = series.GetGauge().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"fairlead_agent_ready": 1, "fairlead_agent_problems audit": 1, "fairlead_agent_problems keys": 0,
		"fairlead_agent_certificate_expires_timestamp_seconds": float64(expires.Unix()),
	} {
		if v, shown := got[name]; !shown || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// TestMetricsOfNothing: an agent at which nothing has happened shows all it has.
func TestMetricsOfNothing(t *testing.T) {
	registry, err := Metrics()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry); err != nil || n < 100 {
		t.Errorf("%d series, %v", n, err)
	}
}
