package chatapi

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/chatsocket"
)

// Metrics counts what clients of chat ask for and what they are refused.
type Metrics struct {
	SocketsRefused *prometheus.CounterVec // by kind
	Requests       *prometheus.CounterVec // frames, by type
	Refused        *prometheus.CounterVec // frames, by code
	MarksIgnored   prometheus.Counter
	Send           prometheus.Histogram
}

// otherType is the label of frames without a known type.
const otherType = "other"

// types are the types of frames, as labels.
var types = []string{
	chatsocket.TypeSend, chatsocket.TypeAbort, chatsocket.TypeSubscribe, chatsocket.TypePermission, chatsocket.TypeHello,
	chatsocket.TypeRequestControl, chatsocket.TypeGrantControl, chatsocket.TypeRevokeControl, chatsocket.TypeReauth,
}

// codes are the codes of refusals.
var codes = []protocol.ChatCode{
	protocol.ChatSessionIDRequired, protocol.ChatSessionNotFound, protocol.ChatForbidden, protocol.ChatUnsupportedProvider,
	protocol.ChatNotController, protocol.ChatRunInProgress, protocol.ChatTooManyRuns, protocol.ChatUnavailable,
	protocol.ChatNoActiveRun, protocol.ChatUnknownMessageType, protocol.ChatInternalError,
}

// NewMetrics returns Metrics registered with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		SocketsRefused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_chat_sockets_refused_total", Help: "Chat sockets refused, by kind of error.",
		}, []string{"kind"}),
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_chat_requests_total", Help: "Frames of chat clients, by type.",
		}, []string{"type"}),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fairlead_chat_requests_refused_total", Help: "Frames of chat clients that were answered by protocol_error, by its code.",
		}, []string{"code"}),
		MarksIgnored: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_chat_marks_ignored_total", Help: "Entries of chat.subscribe beyond those that one frame may have.",
		}),
		Send: prometheus.NewHistogram(instrument.ShortTimes("fairlead_chat_send_seconds",
			"Time from a chat.send until the sandbox said that its run has begun.")),
	}
	for _, row := range protocol.Kinds {
		m.SocketsRefused.WithLabelValues(row.Label)
	}
	for _, name := range append(types[:len(types):len(types)], otherType) {
		m.Requests.WithLabelValues(name)
	}
	for _, code := range codes {
		m.Refused.WithLabelValues(string(code))
	}
	reg.MustRegister(m.SocketsRefused, m.Requests, m.Refused, m.MarksIgnored, m.Send)
	return m
}

// request counts a frame.
func (m *Metrics) request(name string) {
	for _, known := range types {
		if name == known {
			m.Requests.WithLabelValues(name).Inc()
			return
		}
	}
	m.Requests.WithLabelValues(otherType).Inc()
}
