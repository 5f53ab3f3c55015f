package hub

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what hubs do. Every byte or socket that a hub drops is
// counted here with its reason.
type Metrics struct {
	Viewers      prometheus.Gauge
	Hubs         prometheus.Gauge
	OutputBytes  prometheus.Counter
	InputBytes   prometheus.Counter
	InputRefused *prometheus.CounterVec // by reason
	ViewersCut   *prometheus.CounterVec // by reason
	Resyncs      prometheus.Counter
	LinksLost    prometheus.Counter
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Viewers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_viewers", Help: "Sockets attached to terminals."}),
		Hubs: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_hubs", Help: "Terminals with a hub."}),
		OutputBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_output_bytes_total", Help: "Bytes written to viewers, frames included."}),
		InputBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_input_bytes_total", Help: "Keystroke bytes handed to agents."}),
		InputRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_input_refused_total", Help: "Input messages that were not written, by reason."}, []string{"reason"}),
		ViewersCut: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_viewers_cut_total", Help: "Sockets that the relay ended, by reason."}, []string{"reason"}),
		Resyncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_resyncs_total", Help: "Viewers that fell out of the ring and were moved ahead."}),
		LinksLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_terminal_streams_lost_total", Help: "Terminal streams that ended while they were in use."}),
	}
	reg.MustRegister(m.Viewers, m.Hubs, m.OutputBytes, m.InputBytes, m.InputRefused, m.ViewersCut, m.Resyncs, m.LinksLost)
	return m
}
