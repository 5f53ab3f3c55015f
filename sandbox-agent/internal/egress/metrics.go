package egress

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

var (
	verdicts = prometheus.NewDesc("fairlead_egress_verdicts_total",
		"Connections that the egress proxy has let through or not.", []string{"reason"}, nil)
	connections = prometheus.NewDesc("fairlead_egress_connections", "Connections to the egress proxy.", nil, nil)
	waiting     = prometheus.NewDesc("fairlead_egress_waiting", "Connections that wait for somebody's decision.", nil, nil)
)

// Metrics show what a proxy counts; the zero value shows zeros.
type Metrics struct{ Proxy *Proxy }

// Describe implements [prometheus.Collector].
func (m Metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements [prometheus.Collector].
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	var now Snapshot
	if m.Proxy != nil {
		now = m.Proxy.Snapshot()
	}
	for _, reason := range Reasons() {
		instrument.Count(out, verdicts, now.Reasons[reason], string(reason))
	}
	instrument.Gauge(out, connections, now.Connections)
	instrument.Gauge(out, waiting, now.Holding)
}
