package chathub

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/relay/internal/chatring"
)

// Reasons for closing a socket: labels of a metric.
const (
	cutOwn        = "messages" // too many of its own waited for it
	cutExpired    = "grant_expired"
	cutRevoked    = "grant_revoked"
	cutUnanswered = "grant_unanswered"
)

// What of an agent was not passed on: labels of a metric.
const (
	droppedStream = "stream" // with its stream, on which no agent sends it
	droppedEvent  = "event"  // it is nothing that a client may see
	droppedNews   = "news"   // the same
)

// Metrics counts what hubs and sockets of conversations do. All that is dropped is
// counted with its reason.
type Metrics struct {
	Sockets   prometheus.Gauge
	Hubs      prometheus.Gauge
	Followers prometheus.Gauge
	Events    prometheus.Counter
	Bytes     prometheus.Counter
	Reads     prometheus.Counter
	ReadBytes prometheus.Counter

	Gaps           *prometheus.CounterVec // by reason
	SocketsCut     *prometheus.CounterVec // by reason
	Dropped        *prometheus.CounterVec // of agents, by what it is
	FollowsDropped prometheus.Counter
	NewsDropped    prometheus.Counter
	Refused        prometheus.Counter
	Moved          prometheus.Counter
	StreamsLost    prometheus.Counter
	Resume         prometheus.Histogram
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Sockets:   gauge("fairlead_chat_sockets", "Chat sockets."),
		Hubs:      gauge("fairlead_chat_hubs", "Conversations with a hub."),
		Followers: gauge("fairlead_chat_followers", "Conversations that sockets follow, counted once per socket."),
		Events:    counter("fairlead_chat_events_total", "Events of conversations that came from agents."),
		Bytes:     counter("fairlead_chat_output_bytes_total", "Bytes written to chat sockets, frames included."),
		Reads:     counter("fairlead_chat_reads_total", "Reads of conversations' logs for marks older than the ring."),
		ReadBytes: counter("fairlead_chat_read_bytes_total", "Bytes of events that were read for them, frames included."),
		Gaps: instrument.Counters("fairlead_chat_gaps_total", "Times a socket was told that it misses events, by reason.", "reason",
			chatring.GapMark, chatring.GapSlow, chatring.GapReset, chatring.GapResumed, chatring.GapLog),
		SocketsCut: instrument.Counters("fairlead_chat_sockets_cut_total", "Chat sockets that the relay ended, by reason.", "reason",
			cutOwn, cutExpired, cutRevoked, cutUnanswered),
		Dropped: instrument.Counters("fairlead_chat_dropped_total", "What of agents was not passed on, by what it was.", "what",
			droppedStream, droppedEvent, droppedNews),
		FollowsDropped: counter("fairlead_chat_follows_dropped_total", "Idle conversations that gave way to another one of their socket."),
		NewsDropped:    counter("fairlead_chat_news_dropped_total", "News and presence that a slow socket wasn't told."),
		Refused:        counter("fairlead_chat_grants_refused_total", "Sockets that an agent didn't let follow a conversation."),
		Moved:          counter("fairlead_chat_sockets_moved_total", "Chat sockets that were sent to another relay."),
		StreamsLost:    counter("fairlead_chat_streams_lost_total", "Chat streams that ended while they were in use."),
		Resume: prometheus.NewHistogram(instrument.LongTimes("fairlead_chat_resume_seconds",
			"Time that a conversation in use was without a stream to its sandbox.")),
	}
	reg.MustRegister(m.Sockets, m.Hubs, m.Followers, m.Events, m.Bytes, m.Reads, m.ReadBytes, m.Gaps, m.SocketsCut, m.Dropped,
		m.FollowsDropped, m.NewsDropped, m.Refused, m.Moved, m.StreamsLost, m.Resume)
	return m
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}
