package syncdoor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
)

// Metrics count pushes. nil counts nothing.
type Metrics struct {
	pushes  *prometheus.CounterVec
	seconds prometheus.Histogram
}

// answered is the outcome of a push that its sandbox has answered, whatever it said.
const answered = "answered"

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		pushes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_sync_pushes_total", Help: "Sealed bodies that laptops have pushed, by outcome: answered by the sandbox, or the kind of error here.",
		}, []string{"outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "fairlead_sync_push_seconds", Help: "Time from the header of a push to the sandbox's answer.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 8),
		}),
	}
	for _, row := range protocol.Kinds {
		m.pushes.WithLabelValues(row.Label)
	}
	m.pushes.WithLabelValues(answered)
	reg.MustRegister(m.pushes, m.seconds)
	return m
}

// pushed counts a push that has ended with err.
func (m *Metrics) pushed(err error, took time.Duration) {
	if m == nil {
		return
	}
	outcome := answered
	if err != nil {
		outcome = protocol.AsError(err).Kind.String()
	} else {
		m.seconds.Observe(took.Seconds())
	}
	m.pushes.WithLabelValues(outcome).Inc()
}
