package sidebarapi

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what side panels are refused for asking too often.
type Metrics struct {
	Limited prometheus.Counter
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{Limited: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fairlead_sidebar_requests_limited_total", Help: "Requests of side panels that were refused, for their person asks too often.",
	})}
	reg.MustRegister(m.Limited)
	return m
}
