package browser

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser/roster"
)

// Reasons for refusals: labels of a metric.
const (
	refusedRules     = "forbidden"   // egress rules, the agent's own ports, private addresses
	refusedUpstream  = "unreachable" // the host, or the egress proxy, doesn't answer
	refusedRequest   = "malformed"
	refusedForeign   = "foreign" // the connection isn't Chromium's
	refusedTooMany   = "too_many"
	refusedElsewhere = "other"
	refusedTab       = "tabs"   // a tab over the limit
	refusedWindow    = "window" // a page opens one without anybody's consent, or several at once
)

// Metrics count refusals. It is a collector, to be registered once; nil
// counts nothing.
type Metrics struct {
	*prometheus.CounterVec // by reason
}

// NewMetrics returns Metrics.
func NewMetrics() *Metrics {
	return &Metrics{instrument.Counters("fairlead_sandbox_browser_refused_total",
		"Connections, requests, tabs and windows of browsers' pages that were refused, by reason.", "reason",
		refusedRules, refusedUpstream, refusedRequest, refusedForeign, refusedTooMany, refusedElsewhere, refusedTab, refusedWindow)}
}

func (m *Metrics) refused(reason string) {
	if m != nil {
		m.WithLabelValues(reason).Inc()
	}
}

// tabRefused counts a tab that wasn't opened for there are too many.
func (m *Metrics) tabRefused(err error) {
	if errors.Is(err, roster.ErrFull) {
		m.refused(refusedTab)
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
