package controlplane

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
)

// Metrics returns all metrics of a control plane at which nothing has happened
// yet, so that whoever asks for some by name can be checked.
func Metrics() *prometheus.Registry {
	s := &Server{metrics: newMetrics()}
	return s.registry()
}

// Whose requests are measured together: labels of a metric.
const (
	ofPeople   = "people"
	ofCommands = "commands" // they wait for a sandbox
	ofSigning  = "signing"  // a relay asks, and somebody waits
	ofRelays   = "relays"
	ofAgents   = "agents"
	ofProbes   = "probes"
)

// What is signed: labels of a metric.
const (
	signedCommand     = "command"
	signedGrant       = "grant"
	signedCertificate = "certificate"
)

// What somebody may have so many of: labels of a metric.
const (
	boundGrants      = "grants"
	boundInvitations = "invitations"
	boundSignIns     = "sign_ins"
)

// metrics count what a Server does.
type metrics struct {
	requests  *prometheus.CounterVec   // by route and class
	seconds   *prometheus.HistogramVec // by whose
	underWay  prometheus.Gauge
	signed    *prometheus.CounterVec // by what
	outcomes  *prometheus.CounterVec // by outcome
	command   prometheus.Histogram
	offers    *prometheus.CounterVec // by delivery
	settled   *prometheus.CounterVec // by outcome
	lists     *prometheus.CounterVec // by outcome
	told      *prometheus.CounterVec // by outcome
	gateway   *prometheus.CounterVec // by decision
	renewals  prometheus.Counter
	bounds    *prometheus.CounterVec // by what of
	collected []prometheus.Collector
}

func newMetrics() *metrics {
	const prefix = "fairlead_controlplane_"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "requests_total", Help: "Requests that were answered, by route and class of status.",
		}, []string{"route", "class"}),
		seconds: instrument.Times(instrument.ShortTimes(prefix+"request_seconds", "Time until requests were answered, by whose they were."),
			"of", ofPeople, ofCommands, ofSigning, ofRelays, ofAgents, ofProbes),
		underWay: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "requests_under_way", Help: "Requests that are being answered."}),
		signed: instrument.Counters(prefix+"signed_total", "What was signed, by its sort.", "what",
			signedCommand, signedGrant, signedCertificate),
		outcomes: instrument.Counters(prefix+"commands_total", "First outcomes of commands, by status.", "outcome",
			protocol.StatusOK, protocol.StatusError, protocol.StatusUnknown, store.StatusUndelivered),
		command: prometheus.NewHistogram(instrument.LongTimes(prefix+"command_seconds",
			"Time from a person's request for a command until its outcome is stored.")),
		offers: instrument.Counters(prefix+"relay_offers_total", "Offers of a command to one relay, by what became of it.", "outcome",
			answered.String(), refused.String(), elsewhere.String(), lost.String()),
		settled: instrument.Counters(prefix+"settled_total", "Relays told how a command for pages was answered, by what became of that.", "outcome",
			settleTold, settleUnknown, settleFailed, settleDropped),
		lists: instrument.Counters(prefix+"revocation_lists_total", "Revocation lists sent to a relay, by whether it took it.", "outcome", "ok", "failed"),
		told:  instrument.Counters(prefix+"revocation_commands_total", "Sandboxes told of void grants, by whether they heard it.", "outcome", "ok", "failed"),
		gateway: instrument.Counters(prefix+"gateway_calls_total", "Requests of sandboxes to integrations, by what the policy said.", "decision",
			protocol.GatewayAllowed, protocol.GatewayDenied, protocol.GatewayFiltered),
		renewals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "renewals_refused_total", Help: "Renewals of certificates that were refused because there were too many."}),
		bounds: instrument.Counters(prefix+"bounds_total", "Requests refused, or what was given up for them, because one person or address had as many as they may, by what of.",
			"of", boundGrants, boundInvitations, boundSignIns),
	}
	m.collected = []prometheus.Collector{
		m.requests, m.seconds, m.underWay, m.signed, m.outcomes, m.command, m.offers, m.settled, m.lists, m.told, m.gateway, m.renewals, m.bounds,
	}
	return m
}

// String returns the delivery as a label.
func (d delivery) String() string {
	return [...]string{answered: "answered", refused: "refused", elsewhere: "elsewhere", lost: "lost"}[d]
}

// registry returns everything that the admin listener serves.
func (s *Server) registry() *prometheus.Registry {
	registry := instrument.NewRegistry("fairlead_controlplane_info", s.revision)
	registry.MustRegister(s.metrics.collected...)
	registry.MustRegister(&state{s})
	for _, rt := range spelledOut(append(s.routes(), s.agentRoutes()...)) {
		s.metrics.show(rt.method + " " + rt.path)
	}
	s.metrics.show(otherRoute)
	return registry
}

// otherRoute is the label of requests to what is no route.
const otherRoute = "other"

var classes = [...]string{"2xx", "3xx", "4xx", "5xx"}

// whose returns whose requests those of a route are, of the listener for agents
// or the other one.
func whose(agents bool, route string) string {
	_, path, _ := strings.Cut(route, " ")
	switch {
	case agents:
		return ofAgents
	case route == "POST /commands":
		return ofCommands
	case path == "/internal/sign":
		return ofSigning
	case strings.HasPrefix(path, "/internal/"), strings.HasPrefix(path, "/.well-known/"):
		return ofRelays
	case path == "/healthz":
		return ofProbes
	}
	return ofPeople
}

// show has a route's counters there from the start.
func (m *metrics) show(route string) {
	for _, class := range classes {
		m.requests.WithLabelValues(route, class)
	}
}

func classOf(status int) string { return classes[min(max(status/100, 2), 5)-2] }

// measured counts what serve answers, as requests to route.
func (m *metrics) measured(route, of string, serve http.HandlerFunc) http.HandlerFunc {
	byClass := m.requests.MustCurryWith(prometheus.Labels{"route": route})
	m.show(route)
	seconds := m.seconds.WithLabelValues(of)
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
