package feed

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// Reasons for dropping a keyframe: labels of a metric.
const (
	DroppedUnasked = "unasked" // nobody has asked the agent for it
	DroppedMemory  = "memory"  // there is no room
)

// Metrics counts what feeds do. Nothing is counted per reader and chunk: only
// on that path would it cost something.
type Metrics struct {
	TerminalBytes    prometheus.Counter     // from agents, once however many viewers
	Delivery         prometheus.Histogram   // of chunks
	KeyframesDropped *prometheus.CounterVec // by reason
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		TerminalBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_terminal_output_bytes_total", Help: "Output bytes that agents sent, once however many watch.",
		}),
		Delivery: prometheus.NewHistogram(instrument.ShortTimes("fairlead_delivery_seconds",
			"Time from the arrival of output at the relay until it was written to all viewers who keep up, observed once for all of them.")),
		KeyframesDropped: instrument.Counters("fairlead_keyframes_dropped_total", "Keyframes that came and were not kept, by reason.", "reason",
			DroppedUnasked, DroppedMemory),
	}
	reg.MustRegister(m.TerminalBytes, m.Delivery, m.KeyframesDropped)
	return m
}
