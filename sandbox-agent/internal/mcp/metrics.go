package mcp

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// How calls end, as they are counted.
const (
	resultOK      = "ok"
	resultError   = "error"
	resultUnknown = "unknown" // there was no such tool
)

// metrics count what a Server does.
type metrics struct {
	calls   *prometheus.CounterVec // by tool and result
	seconds prometheus.Histogram
	refused *prometheus.CounterVec // by reason
	evicted prometheus.Counter
	pushed  prometheus.Counter
	all     []prometheus.Collector
}

func newMetrics(s *Server) *metrics {
	const prefix = "fairlead_sandbox_mcp_"
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "calls_total", Help: "Calls of tools, by tool and result.",
		}, []string{"tool", "result"}),
		seconds: prometheus.NewHistogram(instrument.ShortTimes(prefix+"call_seconds", "Time that calls of tools took.")),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "refused_total", Help: "Requests that were refused, by reason.",
		}, []string{"reason"}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "evicted_total", Help: "Idle MCP sessions that ended for new ones.",
		}),
		pushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "list_changed_total", Help: "Clients that were told of other tools.",
		}),
	}
	for _, reason := range refusals {
		m.refused.WithLabelValues(reason)
	}
	m.all = []prometheus.Collector{m.calls, m.seconds, m.refused, m.evicted, m.pushed, prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: prefix + "sessions", Help: "MCP sessions that are open."}, s.openSessions)}
	return m
}

// NewMetrics returns the metrics of an idle Server, for checks of metric names.
func NewMetrics() prometheus.Collector { return newMetrics(&Server{}) }

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(out)
	}
}

// called counts a call. The label is bounded by the sets' tools.
func (m *metrics) called(tool, result string, took time.Duration) {
	m.calls.WithLabelValues(tool, result).Inc()
	if result != resultUnknown {
		m.seconds.Observe(took.Seconds())
	}
}

func (s *Server) openSessions() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.sessions)
}
