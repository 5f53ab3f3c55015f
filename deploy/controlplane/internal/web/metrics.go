package web

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
)

// A Caller says whose requests are measured together: the label of a metric.
type Caller string

// The callers.
const (
	People   Caller = "people"
	Commands Caller = "commands" // they wait for a sandbox
	Signing  Caller = "signing"  // a relay asks, and somebody waits
	Relays   Caller = "relays"
	Agents   Caller = "agents"
	Probes   Caller = "probes"
)

// or returns other unless that is empty.
func (c Caller) or(other Caller) Caller {
	if other != "" {
		return other
	}
	return c
}

// metrics count what a Server answers.
type metrics struct {
	requests *prometheus.CounterVec   // by route and class
	seconds  *prometheus.HistogramVec // by caller
	underWay prometheus.Gauge
}

func newMetrics() *metrics {
	const prefix = "fairlead_controlplane_"
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "requests_total", Help: "Requests that were answered, by route and class of status.",
		}, []string{"route", "class"}),
		seconds: instrument.Times(instrument.ShortTimes(prefix+"request_seconds", "Time until requests were answered, by whose they were."),
			"of", string(People), string(Commands), string(Signing), string(Relays), string(Agents), string(Probes)),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "requests_under_way", Help: "Requests that are being answered."}),
	}
}

// otherRoute is the label of requests to what is no route.
const otherRoute = "other"

var classes = [...]string{"2xx", "3xx", "4xx", "5xx"}

// show has a route's counters there from the start.
func (m *metrics) show(route string) {
	for _, class := range classes {
		m.requests.WithLabelValues(route, class)
	}
}

func classOf(status int) string { return classes[min(max(status/100, 2), 5)-2] }

// measured counts what serve answers, as requests to route.
func (m *metrics) measured(route string, caller Caller, serve http.HandlerFunc) http.HandlerFunc {
	byClass := m.requests.MustCurryWith(prometheus.Labels{"route": route})
	m.show(route)
	seconds := m.seconds.WithLabelValues(string(caller))
	return func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		m.underWay.Inc()
		defer m.underWay.Dec()
		seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
		serve(seen, r)
		byClass.WithLabelValues(classOf(seen.status)).Inc()
		seconds.Observe(time.Since(began).Seconds())
	}
}

// A statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
