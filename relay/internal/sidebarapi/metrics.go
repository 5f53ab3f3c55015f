package sidebarapi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// What became of an answer to an agent's question: labels of a metric.
const (
	answerApplied = "applied"
	answerLate    = "late" // the question was over
)

// Metrics count what side panels are refused for asking too often, and what people
// answer in them.
type Metrics struct {
	Limited prometheus.Counter
	Answers *prometheus.CounterVec // by what became of them
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_sidebar_requests_limited_total", Help: "Requests of side panels that were refused, for their person asks too often.",
		}),
		Answers: instrument.Counters("fairlead_sidebar_answers_total",
			"Answers of people in side panels to what agents ask, by what became of them.", "outcome", answerApplied, answerLate),
	}
	reg.MustRegister(m.Limited, m.Answers)
	return m
}
