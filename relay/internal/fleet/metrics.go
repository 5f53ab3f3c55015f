package fleet

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/tunnel"
)

// A traffic adds up what tunnels carry: those that are up, and those that were.
// It is a collector, apart from Fleet's own, and asks the tunnels only when it
// is asked itself.
type traffic struct {
	// Guarded by mu.
	mu    sync.Mutex
	live  map[*tunnel.Session]struct{}
	ended paths            // sums of the tunnels that are over
	told  tunnel.PathStats // of QUIC, by the last Collect: a packet that was thought lost may come after all, but a counter doesn't go back
}

// paths are sums of what tunnels carried, by carrier.
type paths map[tunnel.Carrier]tunnel.PathStats

func newTraffic() *traffic { return &traffic{live: map[*tunnel.Session]struct{}{}, ended: paths{}} }

// begin counts s from now on; end must follow.
func (t *traffic) begin(s *tunnel.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.live[s] = struct{}{}
}

// end keeps what s, which is over, has carried.
func (t *traffic) end(s *tunnel.Session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, there := t.live[s]; there {
		delete(t.live, s)
		t.ended[s.Carrier()] = sum(t.ended[s.Carrier()], s.Stats().Path)
	}
}

func sum(a, b tunnel.PathStats) tunnel.PathStats {
	return tunnel.PathStats{
		PacketsSent: a.PacketsSent + b.PacketsSent, PacketsReceived: a.PacketsReceived + b.PacketsReceived,
		PacketsLost: a.PacketsLost + b.PacketsLost,
		BytesSent:   a.BytesSent + b.BytesSent, BytesReceived: a.BytesReceived + b.BytesReceived,
		BytesLost: a.BytesLost + b.BytesLost,
	}
}

// read returns the sums of what all tunnels carried, and what those that are up
// do.
func (t *traffic) read() (all paths, lanes, streams int, rtts []time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = maps.Clone(t.ended)
	for s := range t.live {
		stats := s.Stats()
		all[s.Carrier()] = sum(all[s.Carrier()], stats.Path)
		lanes += stats.Lanes
		streams += stats.Streams
		if stats.RTT > 0 {
			rtts = append(rtts, stats.RTT)
		}
	}
	quic := all[tunnel.CarrierQUIC]
	quic.PacketsLost = max(quic.PacketsLost, t.told.PacketsLost)
	quic.BytesLost = max(quic.BytesLost, t.told.BytesLost)
	t.told, all[tunnel.CarrierQUIC] = quic, quic
	return all, lanes, streams, rtts
}

var (
	packetsDesc = prometheus.NewDesc("fairlead_quic_packets_total",
		"QUIC packets of tunnels, by what became of them at this end.", []string{"event"}, nil)
	bytesDesc = prometheus.NewDesc("fairlead_quic_bytes_total",
		"Bytes of tunnels' QUIC packets, by what became of them at this end.", []string{"event"}, nil)
	tunnelBytesDesc = prometheus.NewDesc("fairlead_tunnel_bytes_total",
		"Bytes that tunnels carried, by carrier and direction: of QUIC those of its packets, of WebSockets those inside TLS.",
		[]string{"carrier", "direction"}, nil)
	lanesDesc   = prometheus.NewDesc("fairlead_tunnel_lanes", "Open lanes of all tunnels.", nil, nil)
	streamsDesc = prometheus.NewDesc("fairlead_tunnel_streams", "Open streams of all tunnels.", nil, nil)
	rttDesc     = prometheus.NewDesc("fairlead_tunnel_rtt_seconds",
		"Last round trips of the tunnels that are up: of half of them it is no longer than the median, of nine of ten no longer than p90.",
		[]string{"of"}, nil)
)

// Traffic returns a collector of what the tunnels carry.
func (f *Fleet) Traffic() prometheus.Collector { return f.traffic }

// Describe implements [prometheus.Collector].
func (t *traffic) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{packetsDesc, bytesDesc, tunnelBytesDesc, lanesDesc, streamsDesc, rttDesc} {
		descs <- desc
	}
}

// Collect implements [prometheus.Collector].
func (t *traffic) Collect(metrics chan<- prometheus.Metric) {
	all, lanes, streams, rtts := t.read()
	count := func(desc *prometheus.Desc, n uint64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	path := all[tunnel.CarrierQUIC]
	count(packetsDesc, path.PacketsSent, "sent")
	count(packetsDesc, path.PacketsReceived, "received")
	count(packetsDesc, path.PacketsLost, "lost")
	count(bytesDesc, path.BytesSent, "sent")
	count(bytesDesc, path.BytesReceived, "received")
	count(bytesDesc, path.BytesLost, "lost")
	for _, c := range tunnel.Carriers() {
		count(tunnelBytesDesc, all[c].BytesSent, string(c), "sent")
		count(tunnelBytesDesc, all[c].BytesReceived, string(c), "received")
	}
	gauge(lanesDesc, float64(lanes))
	gauge(streamsDesc, float64(streams))
	slices.Sort(rtts)
	gauge(rttDesc, quantile(rtts, 0.5), "median")
	gauge(rttDesc, quantile(rtts, 0.9), "p90")
	gauge(rttDesc, quantile(rtts, 1), "max")
}

// quantile returns the q-quantile of what is sorted, in seconds, 0 of nothing.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)].Seconds()
}
