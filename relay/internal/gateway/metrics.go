package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// Metrics counts refused sockets, and times admissions.
type Metrics struct {
	Refused *prometheus.CounterVec // terminal sockets refused, by kind
	Moved   prometheus.Counter     // terminal sockets sent to another relay
	TooMany prometheus.Counter     // terminal sockets beyond one person's limit
	Stolen  prometheus.Counter     // cookies that two clients had
	Session prometheus.Histogram   // of POST /pty-session
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_sockets_refused_total",
			Help: "Terminal sockets refused, by kind of error.",
		}, []string{"kind"}),
		Moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_sockets_moved_total",
			Help: "Terminal sockets that were opened at the wrong relay and sent to another.",
		}),
		TooMany: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_sockets_over_person_limit_total",
			Help: "Terminal sockets that were closed at once because their person had as many as one may have.",
		}),
		Stolen: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_cookies_replayed_total",
			Help: "Cookies of terminal sockets that were presented again long after their use: what came after them was voided, its socket closed.",
		}),
		Session: prometheus.NewHistogram(instrument.ShortTimes("fairlead_pty_session_seconds",
			"Time that POST /pty-session took where it gave a ticket.")),
	}
	for _, row := range protocol.Kinds {
		m.Refused.WithLabelValues(row.Label)
	}
	reg.MustRegister(m.Refused, m.Moved, m.TooMany, m.Stolen, m.Session)
	return m
}
