package input

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// longestEcho bounds what counts as the echo of a key: later output has another
// cause.
const longestEcho = 5 * time.Second

// Metrics counts input.
type Metrics struct {
	Bytes   prometheus.Counter
	Refused *prometheus.CounterVec // messages, by reason
	Echo    prometheus.Histogram   // of the first key after the last output
	Acks    prometheus.Histogram   // of messages
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_input_bytes_total", Help: "Keystroke bytes handed to agents.",
		}),
		Refused: instrument.Counters("fairlead_input_refused_total", "Input messages that were not written, by reason.", "reason",
			protocol.RefusedNotController, protocol.RefusedStaleTerm, protocol.RefusedAgentRunning,
			protocol.RefusedBusy, protocol.RefusedEnded, protocol.RefusedWaiting),
		Echo: prometheus.NewHistogram(instrument.ShortTimes("fairlead_echo_seconds",
			"Time from the arrival of a key at the relay until the terminal shows something, up to 5 s, observed for one key at a time.")),
		Acks: prometheus.NewHistogram(instrument.ShortTimes("fairlead_input_ack_seconds",
			"Time from the arrival of input at the relay until the agent says that it was written to the terminal.")),
	}
	reg.MustRegister(m.Bytes, m.Refused, m.Echo, m.Acks)
	return m
}
