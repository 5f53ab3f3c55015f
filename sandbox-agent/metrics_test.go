package agent

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
)

// TestHealthIsShown: problems, and when the certificate is over.
func TestHealthIsShown(t *testing.T) {
	expires := time.Unix(1_800_000_000, 0)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(healthMetrics{Status{
		Ready: true, CertificateExpiresAt: expires, Problems: []protocol.Problem{{Name: protocol.ProblemAudit}, {Name: protocol.ProblemAudit}},
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
