package uplink

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// How an attempt to reach a relay ends: labels of metrics.
const (
	dialOK     = "ok"
	dialLost   = "overtaken" // the other carrier was faster
	dialFailed = "failed"
)

// metrics count how relays are reached.
type metrics struct {
	dials   *prometheus.CounterVec   // by carrier and outcome
	dial    *prometheus.HistogramVec // by carrier
	climbs  *prometheus.CounterVec   // by outcome
	climb   prometheus.Histogram
	closed  *prometheus.CounterVec // by carrier and kind
	objects *prometheus.CounterVec // by reason
	resets  *prometheus.CounterVec // by reason
}

func newMetrics() *metrics {
	const prefix = "fairlead_agent_"
	m := &metrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "dials_total", Help: "Attempts to connect to a relay, by carrier and how they ended.",
		}, []string{"carrier", "outcome"}),
		dial: instrument.Times(instrument.ShortTimes(prefix+"dial_seconds", "Time that connecting to a relay took where it succeeded, by carrier."),
			"carrier", tunnel.Carriers()...),
		climbs: instrument.Counters(prefix+"climbs_total", "Registrations over QUIC in place of a tunnel over WebSocket, by how they ended.",
			"outcome", dialOK, dialFailed),
		climb: prometheus.NewHistogram(instrument.LongTimes(prefix+"climb_seconds",
			"Time from when QUIC was first seen to get through until a tunnel over it had replaced one over WebSocket.")),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "tunnels_closed_total", Help: "Registered tunnels that ended, by carrier and the kind of error that ended them.",
		}, []string{"carrier", "kind"}),
		objects: instrument.Counters(prefix+"tunnel_objections_total", "Tunnels that the guard ended because of what the relay sent, by reason.",
			"reason", tunnel.Objections()...),
		resets: instrument.Counters(prefix+"tunnel_streams_reset_total", "Single streams that were ended for the sake of the others, by reason.",
			"reason", tunnel.Resets()...),
	}
	for _, c := range tunnel.Carriers() {
		for _, outcome := range []string{dialOK, dialLost, dialFailed} {
			m.dials.WithLabelValues(string(c), outcome)
		}
		for _, row := range protocol.Kinds {
			m.closed.WithLabelValues(string(c), row.Label)
		}
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.dials, m.dial, m.climbs, m.climb, m.closed, m.objects, m.resets}
}

// events has what tunnels do counted.
func (m *metrics) events() *tunnel.Events {
	return &tunnel.Events{
		Dialled: func(c tunnel.Carrier, err error, took time.Duration) {
			outcome := dialOK
			switch {
			case errors.Is(err, context.Canceled):
				outcome = dialLost
			case err != nil:
				outcome = dialFailed
			default:
				m.dial.WithLabelValues(string(c)).Observe(took.Seconds())
			}
			m.dials.WithLabelValues(string(c), outcome).Inc()
		},
		Climbed: func(err error, took time.Duration) {
			outcome := dialOK
			if err != nil {
				outcome = dialFailed
			} else {
				m.climb.Observe(took.Seconds())
			}
			m.climbs.WithLabelValues(outcome).Inc()
		},
		Closed: func(c tunnel.Carrier, why protocol.Kind, _ time.Duration) {
			m.closed.WithLabelValues(string(c), why.String()).Inc()
		},
		Objected: func(reason string) { m.objects.WithLabelValues(reason).Inc() },
		Reset:    func(reason string) { m.resets.WithLabelValues(reason).Inc() },
	}
}
