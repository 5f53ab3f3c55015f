package executor

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

var refused = prometheus.NewDesc("fairlead_commands_refused_total", "Commands that were refused before they ran.", []string{"kind"}, nil)

// Metrics show what an executor counts; the zero value shows zeros.
type Metrics struct{ Executor *Executor }

// Describe implements [prometheus.Collector].
func (m Metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements [prometheus.Collector].
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	var now map[protocol.Kind]uint64
	if m.Executor != nil {
		now = m.Executor.Rejects()
	}
	for _, row := range protocol.Kinds {
		instrument.Count(out, refused, now[row.Kind], row.Label)
	}
}
