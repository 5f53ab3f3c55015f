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
	Resyncs      *prometheus.CounterVec // by reason
	Attached     *prometheus.CounterVec // by mode
	Moved        prometheus.Counter
	LinksLost    prometheus.Counter

	KeyframesWanted prometheus.Counter
	KeyframesSent   prometheus.Counter
	BackfillBytes   prometheus.Counter
	PaceSetters     prometheus.Gauge
	Acks            prometheus.Counter
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
		Resyncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_resyncs_total", Help: "Times a viewer was moved ahead, by reason."}, []string{"reason"}),
		Attached: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_viewers_attached_total", Help: "Viewers that were greeted, by mode."}, []string{"mode"}),
		Moved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_viewers_moved_total", Help: "Viewers that were sent to another relay."}),
		LinksLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_terminal_streams_lost_total", Help: "Terminal streams that ended while they were in use."}),
		KeyframesWanted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_keyframes_requested_total", Help: "Keyframes that agents were asked for."}),
		KeyframesSent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_keyframes_sent_total", Help: "Keyframes that viewers were sent."}),
		BackfillBytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_backfill_bytes_total", Help: "Output read from agents' logs for viewers older than the ring."}),
		PaceSetters: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_pace_setters", Help: "Viewers who hold a terminal back."}),
		Acks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_output_acks_total", Help: "Acknowledgements of output by viewers."}),
	}
	reg.MustRegister(m.Viewers, m.Hubs, m.OutputBytes, m.InputBytes, m.InputRefused, m.ViewersCut, m.Resyncs, m.LinksLost,
		m.Attached, m.Moved, m.KeyframesWanted, m.KeyframesSent, m.BackfillBytes, m.PaceSetters, m.Acks)
	return m
}
