package cookies

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// taken is the outcome of an envelope that was answered with 200; the others are kinds
// of errors.
const taken = "taken"

// outcomes of envelopes: labels of a metric.
var outcomes = []string{
	taken, protocol.KindMethod.String(), protocol.KindNotFound.String(), protocol.KindTooLarge.String(), protocol.KindTooMany.String(),
	protocol.KindUnauthenticated.String(), protocol.KindInvalid.String(), protocol.KindConflict.String(), protocol.KindInternal.String(),
	protocol.KindUnavailable.String(), protocol.KindUnsupported.String(),
}

// Fates of cookies: labels of a metric.
const (
	fateWritten   = "written"
	fateDropped   = "dropped" // by the policy
	fateRefused   = "refused" // by Chromium, or for it
	fateDuplicate = "duplicate"
	fateRemoved   = "removed"
)

// Metrics count envelopes and cookies.
type Metrics struct {
	envelopes *prometheus.CounterVec // by outcome
	cookies   *prometheus.CounterVec // by fate
	pairings  prometheus.Gauge
}

// NewMetrics returns Metrics of a Sink at which nothing has happened yet.
func NewMetrics() *Metrics {
	return &Metrics{
		envelopes: instrument.Counters("fairlead_agent_sync_envelopes_total",
			"Envelopes of sealed sync that were answered, by outcome: taken, or a kind of error.", "outcome", outcomes...),
		cookies: instrument.Counters("fairlead_agent_sync_cookies_total",
			"Cookies in envelopes, by what became of them; removed ones were missing in a complete envelope.", "fate",
			fateWritten, fateDropped, fateRefused, fateDuplicate, fateRemoved),
		pairings: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_agent_sync_pairings", Help: "Browsers of people with which sessions are paired.",
		}),
	}
}

// answered counts an envelope.
func (m *Metrics) answered(err error) {
	outcome := taken
	if err != nil {
		outcome = protocol.KindOf(err).String()
	}
	m.envelopes.WithLabelValues(outcome).Inc()
}

// pushed counts the cookies of an envelope.
func (m *Metrics) pushed(r *report) {
	for _, c := range []struct {
		fate string
		n    int
	}{
		{fateWritten, r.written}, {fateDropped, r.dropped}, {fateRefused, r.refused}, {fateDuplicate, r.duplicates}, {fateRemoved, r.removed},
	} {
		m.cookies.WithLabelValues(c.fate).Add(float64(c.n))
	}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	m.envelopes.Describe(out)
	m.cookies.Describe(out)
	m.pairings.Describe(out)
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	m.envelopes.Collect(out)
	m.cookies.Collect(out)
	m.pairings.Collect(out)
}
