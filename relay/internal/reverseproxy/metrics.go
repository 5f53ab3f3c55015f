package reverseproxy

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// Destinations of requests: labels of metrics.
const (
	API     = "api"     // the agent: files, tools, what it tells of the sandbox
	Preview = "preview" // a program in the sandbox that serves HTTP
)

// Outcomes of requests: labels of a metric.
const (
	answered2xx = "2xx"
	answered3xx = "3xx"
	answered4xx = "4xx"
	answered5xx = "5xx"
	upgraded    = "upgraded"
	unreached   = "unreached" // the sandbox gave no answer, or its request ended first
)

// Why the relay ends requests: labels of a metric.
const (
	cutExpired = "expired"
	cutRevoked = "revoked"
	cutClosing = "closing"
	cutStalled = "stalled" // the client sent nothing of the body for too long, or too little
)

// metrics count requests.
type metrics struct {
	cut     *prometheus.CounterVec   // by reason
	bytes   *prometheus.CounterVec   // by what, and direction
	answers *prometheus.CounterVec   // by what, and outcome
	seconds *prometheus.HistogramVec // by what
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		cut: instrument.Counters("fairlead_passages_cut_total",
			"Requests to sandboxes and streams of events that the relay ended, by reason.", "reason", cutExpired, cutRevoked, cutClosing, cutStalled),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_passage_bytes_total",
			Help: "Bytes of bodies to sandboxes (up) and from them (down), by what the requests are to. What follows an upgrade isn't counted.",
		}, []string{"what", "direction"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_passages_total", Help: "Requests to sandboxes, by what they are to and what became of them.",
		}, []string{"what", "outcome"}),
		seconds: instrument.Times(instrument.ShortTimes("fairlead_passage_answer_seconds",
			"Time from the arrival of a request to a sandbox until the header of the sandbox's answer, by what it is to."), "what", API, Preview),
	}
	for _, what := range []string{API, Preview} {
		for _, direction := range []string{"up", "down"} {
			m.bytes.WithLabelValues(what, direction)
		}
		for _, outcome := range []string{answered2xx, answered3xx, answered4xx, answered5xx, upgraded, unreached} {
			m.answers.WithLabelValues(what, outcome)
		}
	}
	reg.MustRegister(m.cut, m.bytes, m.answers, m.seconds)
	return m
}

// A tally counts the traffic of one Proxy.
type tally struct {
	up, down prometheus.Counter
	stalled  prometheus.Counter
	seconds  prometheus.Observer
	answers  *prometheus.CounterVec // by outcome
}

func (m *metrics) tally(what string) tally {
	if what == "" {
		what = API
	}
	return tally{
		up: m.bytes.WithLabelValues(what, "up"), down: m.bytes.WithLabelValues(what, "down"),
		stalled: m.cut.WithLabelValues(cutStalled),
		seconds: m.seconds.WithLabelValues(what), answers: m.answers.MustCurryWith(prometheus.Labels{"what": what}),
	}
}

// answered counts an answer by its header.
func (t *tally) answered(status int, began time.Time) {
	outcome := answered2xx
	switch {
	case status == http.StatusSwitchingProtocols:
		outcome = upgraded
	case status >= 500:
		outcome = answered5xx
	case status >= 400:
		outcome = answered4xx
	case status >= 300:
		outcome = answered3xx
	}
	t.answers.WithLabelValues(outcome).Inc()
	t.seconds.Observe(time.Since(began).Seconds())
}

// failed counts a request without an answer.
func (t *tally) failed() { t.answers.WithLabelValues(unreached).Inc() }
