package plugin

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// Outcomes of a registration: labels of a metric.
const (
	outcomeOK      = "ok"
	outcomeRefused = "refused"
	outcomeTaken   = "taken" // another terminal has the name
)

// metrics count registrations and sockets.
type metrics struct {
	known      *registry
	open       prometheus.Gauge
	ended      *prometheus.CounterVec // sockets, by ending
	registries *prometheus.CounterVec // registrations, by outcome
}

var namesDesc = prometheus.NewDesc("fairlead_plugins", "Registered plugins.", nil, nil)

func newMetrics(known *registry) *metrics {
	return &metrics{
		known: known,
		open:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "fairlead_plugin_connections", Help: "Open connections to plugins."}),
		ended: instrument.Counters("fairlead_plugin_connections_ended_total",
			"Connections to plugins that have ended, by how.", "reason", endings...),
		registries: instrument.Counters("fairlead_plugin_registrations_total",
			"Ports that programs of terminals have registered as plugins, by outcome.", "outcome", outcomeOK, outcomeRefused, outcomeTaken),
	}
}

// registered counts a registration.
func (m *metrics) registered(err error) {
	outcome := outcomeOK
	switch {
	case protocol.KindOf(err) == protocol.KindConflict:
		outcome = outcomeTaken
	case err != nil:
		outcome = outcomeRefused
	}
	m.registries.WithLabelValues(outcome).Inc()
}

// Describe implements [prometheus.Collector].
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	m.ended.Describe(out)
	m.registries.Describe(out)
	m.open.Describe(out)
	out <- namesDesc
}

// Collect implements [prometheus.Collector].
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.ended.Collect(out)
	m.registries.Collect(out)
	m.open.Collect(out)
	instrument.Gauge(out, namesDesc, m.known.count())
}
