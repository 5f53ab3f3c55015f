package terminal

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// A Feature is what the terminals of a host bring along: operations, and counters.
// The zero value shows zeros.
type Feature struct {
	Host     *Host
	Operator Operator // does what commands want done; nil: Host
}

var _ interface {
	feature.Operator
	feature.SessionEnder
	prometheus.Collector
} = Feature{}

// Operations implements [feature.Operator].
func (f Feature) Operations() feature.Operations {
	if f.Operator != nil {
		return Operations(f.Operator)
	}
	return Operations(f.Host)
}

// SessionEnded ends the session's terminals, and returns when they are gone.
func (f Feature) SessionEnded(session protocol.SessionID) error {
	f.Host.CloseSession(session)
	return nil
}

var (
	started  = prometheus.NewDesc("fairlead_agent_terminals_started_total", "Terminals that were begun, those whose program couldn't be started too.", nil, nil)
	ended    = prometheus.NewDesc("fairlead_agent_terminals_ended_total", "Terminals of which nothing runs any more.", nil, nil)
	deserted = prometheus.NewDesc("fairlead_agent_terminals_deserted_total", "Terminals that ended because nobody watched them any more.", nil, nil)
	waiting  = prometheus.NewDesc("fairlead_agent_terminals_waiting", "Terminals whose programs start with the first byte that is typed.", nil, nil)
	output   = prometheus.NewDesc("fairlead_agent_terminal_output_bytes_total", "Output of all terminals, as it was logged.", nil, nil)
	input    = prometheus.NewDesc("fairlead_agent_terminal_input_bytes_total", "Input that was written to the terminals' programs.", nil, nil)
	refused  = prometheus.NewDesc("fairlead_agent_terminal_input_refused_total", "Input that was not written, by reason.", []string{"reason"}, nil)
	attached = prometheus.NewDesc("fairlead_agent_terminal_streams", "Streams of relays that show a terminal.", nil, nil)
	paced    = prometheus.NewDesc("fairlead_agent_terminals_held_back", "Terminals whose programs wait for slow viewers, or for what is being masked.", nil, nil)
)

// refusals are why a terminal takes no input.
var refusals = []protocol.RefusalReason{
	protocol.RefusedNotController, protocol.RefusedStaleTerm, protocol.RefusedAgentRunning,
	protocol.RefusedBusy, protocol.RefusedEnded, protocol.RefusedWaiting,
}

// Describe implements [prometheus.Collector].
func (f Feature) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(f, out) }

// Collect implements [prometheus.Collector].
func (f Feature) Collect(out chan<- prometheus.Metric) {
	var now Counts
	if f.Host != nil {
		now = f.Host.Counts()
	}
	instrument.Count(out, started, now.Started)
	instrument.Count(out, ended, now.Ended)
	instrument.Count(out, deserted, now.Deserted)
	instrument.Count(out, output, now.OutputBytes)
	instrument.Count(out, input, now.InputBytes)
	for _, reason := range refusals {
		instrument.Count(out, refused, now.Refused[reason], string(reason))
	}
	instrument.Gauge(out, attached, now.Attached)
	instrument.Gauge(out, paced, now.Paced)
	instrument.Gauge(out, waiting, now.Waiting)
}
