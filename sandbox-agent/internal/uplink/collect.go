package uplink

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/tunnel"
)

var (
	tunnelsDesc = prometheus.NewDesc("fairlead_agent_tunnels",
		"Tunnels to relays, by carrier and role.", []string{"carrier", "role"}, nil)
	rttDesc = prometheus.NewDesc("fairlead_agent_tunnel_rtt_seconds",
		"Last round trip to the relay of the primary tunnel, 0 while it isn't known.", nil, nil)
	streamsDesc = prometheus.NewDesc("fairlead_agent_tunnel_streams", "Open streams of all tunnels.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (t *Tunnels) Describe(out chan<- *prometheus.Desc) {
	for _, c := range t.metrics.collectors() {
		c.Describe(out)
	}
	out <- tunnelsDesc
	out <- rttDesc
	out <- streamsDesc
}

// Collect implements [prometheus.Collector].
func (t *Tunnels) Collect(out chan<- prometheus.Metric) {
	for _, c := range t.metrics.collectors() {
		c.Collect(out)
	}
	type labels struct{ carrier, role string }
	tunnels := map[labels]int{}
	for _, c := range tunnel.Carriers() {
		tunnels[labels{string(c), "primary"}], tunnels[labels{string(c), "standby"}] = 0, 0
	}
	var streams int
	var rtt time.Duration
	primary := t.Primary()
	for _, session := range t.Sessions() {
		role := "standby"
		stats := session.Stats()
		if session == primary {
			role, rtt = "primary", stats.RTT
		}
		tunnels[labels{string(session.Carrier()), role}]++
		streams += stats.Streams
	}
	for of, n := range tunnels {
		out <- prometheus.MustNewConstMetric(tunnelsDesc, prometheus.GaugeValue, float64(n), of.carrier, of.role)
	}
	out <- prometheus.MustNewConstMetric(rttDesc, prometheus.GaugeValue, rtt.Seconds())
	out <- prometheus.MustNewConstMetric(streamsDesc, prometheus.GaugeValue, float64(streams))
}
