package dispatch

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Executors of commands, and outcomes: labels of metrics.
const (
	toSandbox = "sandbox"
	toPage    = "page"

	outcomeOK      = "ok"
	outcomeRefused = "refused" // by the executor, which says why
	outcomeExpired = "expired" // its time was over, and nobody had answered
	outcomeLost    = "lost"    // it may or may not have been executed
)

// Metrics counts what a Dispatcher does. It is a collector, to be registered
// once; nil counts nothing.
type Metrics struct {
	seconds  *prometheus.HistogramVec // by executor
	ended    *prometheus.CounterVec   // by executor and outcome
	repeated prometheus.Counter
	resent   prometheus.Counter
	running  prometheus.Gauge
	waiting  prometheus.Gauge
}

// NewMetrics returns Metrics.
func NewMetrics() *Metrics {
	m := &Metrics{
		seconds: instrument.Times(instrument.ShortTimes("fairlead_command_seconds",
			"Time from the arrival of a command until its outcome is known, by who executes it."), "to", toSandbox, toPage),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_commands_total", Help: "Commands whose outcome is known, or that are lost, by who executes them and what became of them.",
		}, []string{"to", "outcome"}),
		repeated: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_commands_repeated_total", Help: "Commands that came again and were answered with what was known."}),
		resent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_commands_resent_total", Help: "Commands that were sent again because their tunnel was lost."}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_commands_under_way", Help: "Commands that were sent to a sandbox and wait for its answer."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_commands_waiting", Help: "Commands that wait for others before they are sent to their sandbox."}),
	}
	for _, to := range []string{toSandbox, toPage} {
		for _, outcome := range []string{outcomeOK, outcomeRefused, outcomeExpired, outcomeLost} {
			m.ended.WithLabelValues(to, outcome)
		}
	}
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.seconds, m.ended, m.repeated, m.resent, m.running, m.waiting}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(descs)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(metrics)
	}
}

// known counts a command that came again.
func (m *Metrics) known() {
	if m != nil {
		m.repeated.Inc()
	}
}

// again counts a command that was sent again.
func (m *Metrics) again() {
	if m != nil {
		m.resent.Inc()
	}
}

// queued adds to the number of waiting commands, and sent to that of running
// ones.
func (m *Metrics) queued(delta int) {
	if m != nil {
		m.waiting.Add(float64(delta))
	}
}

func (m *Metrics) sent(delta int) {
	if m != nil {
		m.running.Add(float64(delta))
	}
}

// done counts a command's outcome after it took so long. refused: its executor
// refused it. err: why the outcome isn't known otherwise.
func (m *Metrics) done(c *jws.Command, took time.Duration, refused bool, err error) {
	if m == nil {
		return
	}
	to := toSandbox
	if c.Audience == jws.AudienceExtension {
		to = toPage
	}
	outcome := outcomeOK
	switch {
	case refused:
		outcome = outcomeRefused
	case err != nil && protocol.KindOf(err) == protocol.KindExpired:
		outcome = outcomeExpired
	case err != nil:
		outcome = outcomeLost
	}
	m.ended.WithLabelValues(to, outcome).Inc()
	m.seconds.WithLabelValues(to).Observe(took.Seconds())
}
