package panelapi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
)

// Where an answer of the sandbox comes from: labels of a metric.
const (
	probeAsked = "sandbox"
	probeKept  = "memory"
)

// Metrics counts what side panels do.
type Metrics struct {
	Sockets       prometheus.Gauge
	Refused       *prometheus.CounterVec // by kind
	Ignored       prometheus.Counter     // text frames
	PassesDropped prometheus.Counter     // unused ones that gave way
	Probes        *prometheus.CounterVec // by where the answer came from
	TabsSkipped   prometheus.Counter
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Sockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_panel_sockets", Help: "Terminal sockets of side panels.",
		}),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_panel_sockets_refused_total", Help: "Terminal sockets of side panels that were refused, by kind of error.",
		}, []string{"kind"}),
		Ignored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_panel_frames_ignored_total", Help: "Text frames of side panels that mean nothing to the relay.",
		}),
		PassesDropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_panel_passes_dropped_total",
			Help: "Unused cookies of side panels that gave way to newer ones of the same person.",
		}),
		Probes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_panel_probes_total", Help: "Questions of side panels whether claude is there and how it stands, by where the answer came from.",
		}, []string{"from"}),
		TabsSkipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_panel_tabs_skipped_total",
			Help: "Browser tabs that side panels showed too briefly to be told to the sandbox.",
		}),
	}
	for _, row := range protocol.Kinds {
		m.Refused.WithLabelValues(row.Label)
	}
	for _, from := range []string{probeAsked, probeKept} {
		m.Probes.WithLabelValues(from)
	}
	reg.MustRegister(m.Sockets, m.Refused, m.Ignored, m.PassesDropped, m.Probes, m.TabsSkipped)
	return m
}
