package approval

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

var (
	eventsTotal = prometheus.NewDesc("fairlead_approvals_total", "What became of approvals.", []string{"event"}, nil)
	pendingNow  = prometheus.NewDesc("fairlead_approvals_pending", "Approvals that wait for somebody's decision.", nil, nil)
)

// Metrics show what a log counts; the zero value shows zeros.
type Metrics struct{ Log *Log }

// Describe implements [prometheus.Collector].
func (m Metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements [prometheus.Collector].
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	var now Stats
	if m.Log != nil {
		now = m.Log.Stats()
	}
	for event, n := range map[string]uint64{
		"asked": now.Asked, "coalesced": now.Coalesced, "refused": now.Refused, "unstored": now.Unstored,
		"decided": now.Decided, "expired": now.Expired, "cancelled": now.Cancelled, "late": now.Late, "lagging": now.Lagging,
	} {
		instrument.Count(out, eventsTotal, n, event)
	}
	instrument.Gauge(out, pendingNow, now.Pending)
}
