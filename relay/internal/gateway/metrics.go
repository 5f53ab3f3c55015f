package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// Metrics counts whom the gateway turns away, and times how others get in.
type Metrics struct {
	Refused *prometheus.CounterVec // terminal sockets refused before the upgrade, by kind
	Moved   prometheus.Counter     // terminal sockets sent to another relay
	Session prometheus.Histogram   // of POST /pty-session
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_sockets_refused_total",
			Help: "Terminal sockets refused before the upgrade, by kind of error.",
		}, []string{"kind"}),
		Moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_sockets_moved_total",
			Help: "Terminal sockets that were opened at the wrong relay and sent to another.",
		}),
		Session: prometheus.NewHistogram(instrument.ShortTimes("fairlead_pty_session_seconds",
			"Time that POST /pty-session took where it gave a ticket.")),
	}
	for _, row := range protocol.Kinds {
		m.Refused.WithLabelValues(row.Label)
	}
	reg.MustRegister(m.Refused, m.Moved, m.Session)
	return m
}
