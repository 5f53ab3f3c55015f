package sidebar

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// What became of messages: labels of a metric.
const (
	messageRuns      = "runs"
	messageWaits     = "waits"
	messageFull      = "full"
	messageDismissed = "dismissed"
	messageStopped   = "stopped" // it waited, and was dropped with the rest
	messageClosed    = "closed"  // it waited in a tab that was closed
	messageFailed    = "failed"  // its run couldn't begin
	messageLost      = "lost"    // it waited when the agent was restarted
)

// counts are what panels count.
type counts struct {
	messages *prometheus.CounterVec
	streams  prometheus.Gauge
	refused  prometheus.Counter // streams
}

func newCounts() *counts {
	return &counts{
		messages: instrument.Counters("fairlead_sidebar_messages_total", "Messages to side panels' agents, by what became of them.", "outcome",
			messageRuns, messageWaits, messageFull, messageDismissed, messageStopped, messageClosed, messageFailed, messageLost),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_sidebar_streams", Help: "Streams of side panels' entries and of browsers' activity.",
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_sidebar_streams_refused_total", Help: "Such streams that were refused, for there were too many.",
		}),
	}
}

func (c *counts) message(outcome string, n int) { c.messages.WithLabelValues(outcome).Add(float64(n)) }

var tabsBusy = prometheus.NewDesc("fairlead_sidebar_tabs", "Tabs of side panels in which something runs, by state.", []string{"state"}, nil)
