package hub

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/input"
)

// Reasons for closing a socket: labels of a metric.
const (
	cutNotices    = "notices" // too many messages waited for it
	cutExpired    = "grant_expired"
	cutRefused    = "grant_refused" // by the agent
	cutRevoked    = "grant_revoked"
	cutUnanswered = "grant_unanswered"
)

// What a hub may be unable to handle: labels of a metric. Its own events are
// not among them, since one without a handler doesn't compile.
const (
	unhandledAgent  = "agent_message"
	unhandledClient = "client_message"
	unhandledTurn   = "turn_effect"
	unhandledRoster = "roster_effect"
)

// Metrics counts what hubs do. Every byte or socket that a hub drops is
// counted here with its reason.
type Metrics struct {
	Feeds  *feed.Metrics
	Typing *input.Metrics

	Viewers     prometheus.Gauge
	Hubs        prometheus.Gauge
	OutputBytes prometheus.Counter
	ViewersCut  *prometheus.CounterVec // by reason
	Resyncs     *prometheus.CounterVec // by reason
	Skipped     prometheus.Counter     // bytes, by resyncs
	Attached    *prometheus.CounterVec // by mode
	Moved       prometheus.Counter
	LinksLost   prometheus.Counter
	Unhandled   *prometheus.CounterVec // by its source

	KeyframesWanted prometheus.Counter
	KeyframesSent   prometheus.Counter
	BackfillBytes   prometheus.Counter
	PaceSetters     prometheus.Gauge
	Acks            prometheus.Counter

	// Times. Nothing is observed per viewer and chunk: only on that path would it
	// cost something.
	Deferred prometheus.Counter       // offers that a socket didn't take at once
	Calls    prometheus.Counter       // of the kernel, that offer output to many
	Join     *prometheus.HistogramVec // by mode
	Resume   prometheus.Histogram     // of terminals
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Feeds:       feed.NewMetrics(reg),
		Typing:      input.NewMetrics(reg),
		Viewers:     gauge("fairlead_viewers", "Sockets attached to terminals."),
		Hubs:        gauge("fairlead_hubs", "Terminals with a hub."),
		OutputBytes: counter("fairlead_output_bytes_total", "Bytes written to viewers, frames included."),
		ViewersCut: instrument.Counters("fairlead_viewers_cut_total", "Sockets that the relay ended, by reason.", "reason",
			cutNotices, cutExpired, cutRefused, cutRevoked, cutUnanswered),
		Resyncs: instrument.Counters("fairlead_resyncs_total", "Times a viewer was moved ahead, by reason.", "reason",
			feed.ResyncRing, feed.ResyncUnacked, feed.ResyncLog, feed.ResyncReset),
		Skipped: counter("fairlead_resync_skipped_bytes_total",
			"Output bytes that viewers never got because they were moved ahead, where their log went on."),
		Attached: instrument.Counters("fairlead_viewers_attached_total", "Viewers that were greeted, by mode.", "mode",
			protocol.ModeResume, protocol.ModeKeyframe, protocol.ModeGap),
		Moved:           counter("fairlead_viewers_moved_total", "Viewers that were sent to another relay."),
		LinksLost:       counter("fairlead_terminal_streams_lost_total", "Terminal streams that ended while they were in use."),
		KeyframesWanted: counter("fairlead_keyframes_requested_total", "Keyframes that agents were asked for."),
		KeyframesSent:   counter("fairlead_keyframes_sent_total", "Keyframes that viewers were sent."),
		BackfillBytes:   counter("fairlead_backfill_bytes_total", "Output read from agents' logs for viewers older than the ring."),
		PaceSetters:     gauge("fairlead_pace_setters", "Viewers who hold a terminal back."),
		Acks:            counter("fairlead_output_acks_total", "Acknowledgements of output by viewers."),
		Deferred: counter("fairlead_deliveries_deferred_total",
			"Deliveries to a viewer that its socket didn't take at once, so that they wait for a writer of its own."),
		Calls: counter("fairlead_output_calls_total",
			"System calls that sent output to viewers who keep up: with io_uring one for up to 64 of them."),
	}
	m.times()
	m.Unhandled = instrument.Counters("fairlead_hub_unhandled_total",
		"What reached a hub that has no use for it, by what it is. Anything but 0 is a bug.", "what",
		unhandledAgent, unhandledClient, unhandledTurn, unhandledRoster)
	reg.MustRegister(m.Unhandled, m.Viewers, m.Hubs, m.OutputBytes, m.ViewersCut, m.Resyncs, m.Skipped, m.LinksLost,
		m.Attached, m.Moved, m.KeyframesWanted, m.KeyframesSent, m.BackfillBytes, m.PaceSetters, m.Acks,
		m.Deferred, m.Calls, m.Join, m.Resume)
	return m
}

// times makes the histograms.
func (m *Metrics) times() {
	m.Join = instrument.Times(instrument.ShortTimes("fairlead_join_seconds",
		"Time from a viewer's request until its first frames are on their way, by mode."), "mode",
		protocol.ModeResume, protocol.ModeKeyframe, protocol.ModeGap)
	m.Resume = prometheus.NewHistogram(instrument.LongTimes("fairlead_resume_seconds",
		"Time that a terminal in use was without a stream to its sandbox."))
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}
