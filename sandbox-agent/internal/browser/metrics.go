package browser

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// Reasons for a guard's refusals: labels of a metric.
const (
	refusedRules     = "forbidden"   // egress rules, the agent's own ports, private addresses
	refusedUpstream  = "unreachable" // the host, or the egress proxy, doesn't answer
	refusedRequest   = "malformed"
	refusedForeign   = "foreign" // the connection isn't Chromium's
	refusedTooMany   = "too_many"
	refusedElsewhere = "other"
)

// Metrics count guards' refusals. It is a collector, to be registered once; nil
// counts nothing.
type Metrics struct {
	*prometheus.CounterVec // by reason
}

// NewMetrics returns Metrics.
func NewMetrics() *Metrics {
	return &Metrics{instrument.Counters("fairlead_sandbox_browser_refused_total",
		"Connections and requests of browsers' pages that were refused, by reason.", "reason",
		refusedRules, refusedUpstream, refusedRequest, refusedForeign, refusedTooMany, refusedElsewhere)}
}

func (m *Metrics) refused(reason string) {
	if m != nil {
		m.WithLabelValues(reason).Inc()
	}
}

// reasonOf returns the metric's label for a refusal.
func reasonOf(err error) string {
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return refusedUpstream
	}
	switch e.Kind {
	case protocol.KindForbidden:
		return refusedRules
	case protocol.KindUpstream, protocol.KindUnavailable, protocol.KindNotFound:
		return refusedUpstream
	case protocol.KindInvalid, protocol.KindTooLarge, protocol.KindUnsupported:
		return refusedRequest
	}
	return refusedElsewhere
}
