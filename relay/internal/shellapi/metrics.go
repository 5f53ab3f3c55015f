package shellapi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
)

// Metrics counts shell sockets, and what became of what they asked for.
type Metrics struct {
	Sockets prometheus.Gauge
	Refused *prometheus.CounterVec // sockets, by kind
	Inits   *prometheus.CounterVec // by outcome
}

// Outcomes of init.
const (
	initStarted  = "started"
	initJoined   = "joined"
	initReplaced = "replaced"
	initRefused  = "refused"
	initMoved    = "moved"
)

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Sockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_shell_sockets", Help: "Open shell sockets.",
		}),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_shell_sockets_refused_total", Help: "Shell sockets refused, by kind of error.",
		}, []string{"kind"}),
		Inits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_shell_inits_total", Help: "Shells that clients asked for: started, joined as they ran or had ended, replaced by new ones, refused, or at another relay.",
		}, []string{"outcome"}),
	}
	for _, row := range protocol.Kinds {
		m.Refused.WithLabelValues(row.Label)
	}
	for _, outcome := range []string{initStarted, initJoined, initReplaced, initRefused, initMoved} {
		m.Inits.WithLabelValues(outcome)
	}
	reg.MustRegister(m.Sockets, m.Refused, m.Inits)
	return m
}
