package relay

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/sidebarapi"
	"github.com/fairlead/fairlead/tunnel"
)

// Metrics returns all metrics of a fresh relay, so that metric names can be
// checked against them.
func Metrics() *prometheus.Registry {
	return assemble(Config{Logger: slog.New(slog.DiscardHandler)}).registry
}

// metrics are those of the relay that no package below it has.
type metrics struct {
	gateway  *gateway.Metrics
	dispatch *dispatch.Metrics
	sidebar  *sidebarapi.Metrics

	tunnels    *prometheus.GaugeVec     // by carrier
	handshakes *prometheus.CounterVec   // by carrier and outcome
	handshake  *prometheus.HistogramVec // by carrier
	waited     prometheus.Histogram
	closed     *prometheus.CounterVec   // by carrier and kind
	lived      *prometheus.HistogramVec // by carrier
	sockets    *prometheus.CounterVec   // by outcome
	objections *prometheus.CounterVec   // by reason
	resets     *prometheus.CounterVec   // by reason
	connects   *prometheus.CounterVec   // by outcome

	requests *prometheus.CounterVec   // to the control plane, by what and outcome
	asked    *prometheus.HistogramVec // by what
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{gateway: gateway.NewMetrics(reg), dispatch: dispatch.NewMetrics(), sidebar: sidebarapi.NewMetrics(reg)}
	m.ofTunnels()
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_control_plane_requests_total", Help: "The relay's own requests to the control plane, by what they are for and whether they were answered.",
	}, []string{"what", "outcome"})
	m.asked = instrument.Times(instrument.ShortTimes("fairlead_control_plane_request_seconds",
		"Time until the header of the control plane's answer to a request of the relay's own, by what it is for."), "what", purposes...)
	for _, what := range purposes {
		for _, outcome := range []string{requestOK, requestRefused, requestFailed} {
			m.requests.WithLabelValues(what, outcome)
		}
	}
	reg.MustRegister(m.dispatch, m.tunnels, m.handshakes, m.handshake, m.waited, m.closed, m.lived, m.sockets,
		m.objections, m.resets, m.connects, m.requests, m.asked)
	return m
}

func (m *metrics) ofTunnels() {
	m.tunnels = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "fairlead_tunnels", Help: "Registered tunnels, by carrier."}, []string{"carrier"})
	m.handshakes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_tunnel_handshakes_total", Help: "Connections that wanted to register as a tunnel, by carrier and how that ended.",
	}, []string{"carrier", "outcome"})
	m.handshake = instrument.Times(instrument.ShortTimes("fairlead_tunnel_handshake_seconds",
		"Time that registrations took which succeeded, without the carrier's own handshake, by carrier."), "carrier", tunnel.Carriers()...)
	m.waited = prometheus.NewHistogram(instrument.LongTimes("fairlead_tunnel_registration_wait_seconds",
		"Time that registrations waited for their turn, because there were more than the relay's rate."))
	m.closed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fairlead_tunnels_closed_total", Help: "Registered tunnels that ended, by carrier and the kind of error that ended them.",
	}, []string{"carrier", "kind"})
	m.lived = instrument.Times(instrument.Lives("fairlead_tunnel_life_seconds",
		"How long registered tunnels lasted that ended, by carrier."), "carrier", tunnel.Carriers()...)
	for _, carrier := range tunnel.Carriers() {
		m.tunnels.WithLabelValues(string(carrier))
		for _, outcome := range tunnel.HandshakeOutcomes() {
			m.handshakes.WithLabelValues(string(carrier), string(outcome))
		}
		for _, row := range protocol.Kinds {
			m.closed.WithLabelValues(string(carrier), row.Label)
		}
	}
	m.sockets = instrument.Counters("fairlead_tunnel_sockets_total", "WebSockets for tunnels that were asked for, by what became of them.",
		"outcome", tunnel.SocketOutcomes()...)
	m.objections = instrument.Counters("fairlead_tunnel_objections_total",
		"Tunnels that the guard ended because of what the agent sent, by reason.", "reason", tunnel.Objections()...)
	m.resets = instrument.Counters("fairlead_tunnel_streams_reset_total",
		"Single streams that were ended for the sake of the others, by reason.", "reason", tunnel.Resets()...)
	m.connects = instrument.Counters("fairlead_connects_total",
		"Connections of agents that aren't registered to the control plane, by what became of them.", "outcome", tunnel.ConnectOutcomes()...)
}

// events counts what tunnels do.
func (m *metrics) events() *tunnel.Events {
	return &tunnel.Events{
		Handshake: func(c tunnel.Carrier, outcome tunnel.HandshakeOutcome, took time.Duration) {
			m.handshakes.WithLabelValues(string(c), string(outcome)).Inc()
			if outcome == tunnel.HandshakeRegistered {
				m.handshake.WithLabelValues(string(c)).Observe(took.Seconds())
			}
		},
		Waited: func(d time.Duration) { m.waited.Observe(d.Seconds()) },
		Opened: func(c tunnel.Carrier) { m.tunnels.WithLabelValues(string(c)).Inc() },
		Closed: func(c tunnel.Carrier, why protocol.Kind, lived time.Duration) {
			m.tunnels.WithLabelValues(string(c)).Dec()
			m.closed.WithLabelValues(string(c), why.String()).Inc()
			m.lived.WithLabelValues(string(c)).Observe(lived.Seconds())
		},
		Socket:   func(outcome tunnel.SocketOutcome) { m.sockets.WithLabelValues(string(outcome)).Inc() },
		Objected: func(reason string) { m.objections.WithLabelValues(reason).Inc() },
		Reset:    func(reason string) { m.resets.WithLabelValues(reason).Inc() },
	}
}

// connected counts the outcome for an agent that isn't registered.
func (m *metrics) connected(o tunnel.ConnectOutcome) { m.connects.WithLabelValues(string(o)).Inc() }

// ofState registers gauges of the relay's own state.
func (r *Relay) ofState() {
	yes := func(name, help string, holds func() bool) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			if holds() {
				return 1
			}
			return 0
		})
	}
	r.registry.MustRegister(
		yes("fairlead_relay_ready", "1 while the relay takes traffic.", func() bool { return r.notReady() == nil }),
		yes("fairlead_relay_draining", "1 while the relay is going away.", r.draining.Load),
		yes("fairlead_relay_keys_usable", "1 while the control plane's keys are recent enough to be believed.", r.keys.Usable),
		yes("fairlead_relay_registered", "1 while the control plane knows where this relay is.", r.registered.Load),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fairlead_relay_peers", Help: "Other relays that the control plane knows.",
		}, func() float64 { return float64(len(r.others())) }),
	)
}

// What the relay asks the control plane for, and how that ends: labels of
// metrics.
const (
	forKeys        = "keys"
	forRevocations = "revocations"
	forRegister    = "register"
	forSign        = "sign"
	forCallback    = "callback"
	forOther       = "other"

	requestOK      = "ok"
	requestRefused = "refused" // with an answer that says so
	requestFailed  = "failed"  // no answer, or a 5xx
)

var purposes = []string{forKeys, forRevocations, forRegister, forSign, forCallback, forOther}

// A meteredTransport counts the relay's requests to the control plane.
type meteredTransport struct {
	next    http.RoundTripper
	metrics *metrics
}

// RoundTrip implements [http.RoundTripper].
func (t *meteredTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	what, began := purposeOf(r.URL.Path), time.Now()
	resp, err := t.next.RoundTrip(r)
	outcome := requestOK
	switch {
	case err != nil || resp.StatusCode >= 500:
		outcome = requestFailed
	case resp.StatusCode >= 400:
		outcome = requestRefused
	}
	t.metrics.requests.WithLabelValues(what, outcome).Inc()
	t.metrics.asked.WithLabelValues(what).Observe(time.Since(began).Seconds())
	return resp, err
}

// CloseIdleConnections is for [http.Client].
func (t *meteredTransport) CloseIdleConnections() {
	if idle, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}

func purposeOf(path string) string {
	for _, p := range []struct{ part, what string }{
		{keysPath, forKeys}, {revocationsPath, forRevocations}, {"/internal/relays/", forRegister},
		{"/internal/sign", forSign}, {"/internal/callback", forCallback},
	} {
		if strings.Contains(path, p.part) {
			return p.what
		}
	}
	return forOther
}
