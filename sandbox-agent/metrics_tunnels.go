package agent

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

// tunnelMetrics count how relays are reached.
type tunnelMetrics struct {
	dials   *prometheus.CounterVec   // by carrier and outcome
	dial    *prometheus.HistogramVec // by carrier
	climbs  *prometheus.CounterVec   // by outcome
	climb   prometheus.Histogram
	closed  *prometheus.CounterVec // by carrier and kind
	objects *prometheus.CounterVec // by reason
	resets  *prometheus.CounterVec // by reason
}

var agentCarriers = []tunnel.Carrier{tunnel.CarrierQUIC, tunnel.CarrierWebSocket}

func newTunnelMetrics(reg prometheus.Registerer) *tunnelMetrics {
	const prefix = "fairlead_agent_"
	m := &tunnelMetrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "dials_total", Help: "Attempts to connect to a relay, by carrier and how they ended.",
		}, []string{"carrier", "outcome"}),
		dial: instrument.Times(instrument.ShortTimes(prefix+"dial_seconds", "Time that connecting to a relay took where it succeeded, by carrier."),
			"carrier", agentCarriers...),
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
	for _, c := range agentCarriers {
		for _, outcome := range []string{dialOK, dialLost, dialFailed} {
			m.dials.WithLabelValues(string(c), outcome)
		}
		for _, row := range protocol.Kinds {
			m.closed.WithLabelValues(string(c), row.Label)
		}
	}
	reg.MustRegister(m.dials, m.dial, m.climbs, m.climb, m.closed, m.objects, m.resets)
	return m
}

// events has what tunnels do counted.
func (m *tunnelMetrics) events() *tunnel.Events {
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

// tunnelState is a collector of the tunnels that there are.
type tunnelState struct {
	sessions func() (primary *tunnel.Session, all []*tunnel.Session)
}

// tunnelSessions returns the tunnels that there are, and which is primary.
func (a *Agent) tunnelSessions() (primary *tunnel.Session, all []*tunnel.Session) {
	if a.tunnels == nil { // not yet
		return nil, nil
	}
	return a.tunnels.current(), a.tunnels.sessions()
}

var (
	agentTunnels = prometheus.NewDesc("fairlead_agent_tunnels",
		"Tunnels to relays, by carrier and role.", []string{"carrier", "role"}, nil)
	agentRTT = prometheus.NewDesc("fairlead_agent_tunnel_rtt_seconds",
		"Last round trip to the relay of the primary tunnel, 0 while it isn't known.", nil, nil)
	agentStreams = prometheus.NewDesc("fairlead_agent_tunnel_streams", "Open streams of all tunnels.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (*tunnelState) Describe(out chan<- *prometheus.Desc) {
	out <- agentTunnels
	out <- agentRTT
	out <- agentStreams
}

// Collect implements [prometheus.Collector].
func (s *tunnelState) Collect(out chan<- prometheus.Metric) {
	type place struct{ carrier, role string }
	tunnels := map[place]int{}
	for _, c := range agentCarriers {
		tunnels[place{string(c), "primary"}], tunnels[place{string(c), "standby"}] = 0, 0
	}
	var streams int
	var rtt time.Duration
	primary, all := s.sessions()
	for _, session := range all {
		role := "standby"
		stats := session.Stats()
		if session == primary {
			role, rtt = "primary", stats.RTT
		}
		tunnels[place{string(session.Carrier()), role}]++
		streams += stats.Streams
	}
	for at, n := range tunnels {
		out <- prometheus.MustNewConstMetric(agentTunnels, prometheus.GaugeValue, float64(n), at.carrier, at.role)
	}
	out <- prometheus.MustNewConstMetric(agentRTT, prometheus.GaugeValue, rtt.Seconds())
	out <- prometheus.MustNewConstMetric(agentStreams, prometheus.GaugeValue, float64(streams))
}
