package gateway

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the gateway refuses.
type Metrics struct {
	Refused *prometheus.CounterVec // terminal sockets refused before the upgrade, by kind
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_sockets_refused_total",
		Help: "Terminal sockets refused before the upgrade, by kind of error.",
	}, []string{"kind"})}
	reg.MustRegister(m.Refused)
	return m
}
