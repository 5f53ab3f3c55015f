package chat

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

// Labels of metrics.
const (
	runSuccess = "success"
	runFailed  = "failed"
	runAborted = "aborted"
	runLost    = "lost" // open when the agent was killed

	questionByRule  = "rule"
	questionRefused = "refused"
)

var (
	chatLogBytes   = prometheus.NewDesc("fairlead_chat_log_bytes", "Bytes of all conversations' logs on disk.", nil, nil)
	chatDropped    = prometheus.NewDesc("fairlead_chat_log_dropped_bytes_total", "Bytes of conversations' logs that were dropped for newer ones.", nil, nil)
	chatCut        = prometheus.NewDesc("fairlead_chat_events_cut_total", "Events with texts that were cut, for they were too long.", nil, nil)
	chatDamaged    = prometheus.NewDesc("fairlead_chat_log_damaged_total", "Segments of conversations' logs that were put aside, for they were damaged.", nil, nil)
	chatNoSpace    = prometheus.NewDesc("fairlead_chat_log_no_space_total", "Events that weren't stored at once, for there was no room on the disk.", nil, nil)
	chatRunning    = prometheus.NewDesc("fairlead_chat_runs", "Runs of coding agents that are under way.", nil, nil)
	chatWarm       = prometheus.NewDesc("fairlead_chat_processes_warm", "Processes of coding agents that wait for another message.", nil, nil)
	chatInUse      = prometheus.NewDesc("fairlead_chat_conversations", "Conversations that are in use.", nil, nil)
	chatCollectors = []*prometheus.Desc{chatLogBytes, chatDropped, chatCut, chatDamaged, chatNoSpace, chatRunning, chatWarm, chatInUse}
)

// storedKinds are the kinds of events that are stored.
var storedKinds = []protocol.ChatKind{
	protocol.ChatText, protocol.ChatStreamDelta, protocol.ChatStreamEnd, protocol.ChatThinking, protocol.ChatToolUse, protocol.ChatToolResult,
	protocol.ChatError, protocol.ChatStatus, protocol.ChatPermissionRequest, protocol.ChatPermissionCancelled, protocol.ChatComplete,
}

// counts are what conversations count.
type counts struct {
	runs, events, questions, refusals *prometheus.CounterVec
	stored                            map[protocol.ChatKind]prometheus.Counter // those of events, found faster
	lateEvents                        prometheus.Counter
	processes                         prometheus.Gauge
}

func newCounts() *counts {
	c := &counts{
		runs: instrument.Counters("fairlead_chat_runs_total", "Runs of coding agents that are complete, by what became of them.", "outcome",
			runSuccess, runFailed, runAborted, runLost),
		events: instrument.Counters("fairlead_chat_events_stored_total", "Events of conversations that were stored, by kind.", "kind", storedKinds...),
		stored: map[protocol.ChatKind]prometheus.Counter{},
		questions: instrument.Counters("fairlead_chat_questions_total", "Questions of coding agents about tools, by what became of them.", "outcome",
			protocol.CancelledDecided, protocol.CancelledTimeout, protocol.CancelledWith, questionByRule, questionRefused),
		refusals: instrument.Counters("fairlead_chat_refused_total", "Messages and aborts that were refused, by code.", "code",
			protocol.ChatSessionNotFound, protocol.ChatForbidden, protocol.ChatUnsupportedProvider, protocol.ChatNotController,
			protocol.ChatRunInProgress, protocol.ChatTooManyRuns, protocol.ChatUnavailable, protocol.ChatNoActiveRun, protocol.ChatInternalError),
		lateEvents: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "fairlead_chat_events_late_total", Help: "Events that came behind the end of their run, and were dropped.",
		}),
		processes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fairlead_chat_processes", Help: "Processes of coding agents that run for conversations.",
		}),
	}
	for _, kind := range storedKinds {
		c.stored[kind] = c.events.WithLabelValues(string(kind))
	}
	return c
}

func (c *counts) run(outcome string) { c.runs.WithLabelValues(outcome).Inc() }

func (c *counts) event(kind protocol.ChatKind) { c.stored[kind].Inc() }

func (c *counts) question(outcome string) { c.questions.WithLabelValues(outcome).Inc() }

func (c *counts) late(n int) { c.lateEvents.Add(float64(n)) }

func (c *counts) process(change int) { c.processes.Add(float64(change)) }

// refused counts an error by the code that it begins with.
func (c *counts) refused(err error) {
	code, _, ok := strings.Cut(protocol.AsError(err).Message, ": ")
	if !ok || strings.ToUpper(code) != code {
		code = string(protocol.ChatInternalError)
	}
	c.refusals.WithLabelValues(code).Inc()
}

// Metrics show what conversations count; the zero value shows zeros.
type Metrics struct{ Chats *Chats }

// collectors are the counters of m.
func (m Metrics) collectors() []prometheus.Collector {
	by := newCounts()
	if m.Chats != nil {
		by = m.Chats.counts
	}
	return []prometheus.Collector{by.runs, by.events, by.questions, by.refusals, by.lateEvents, by.processes}
}

// Describe implements [prometheus.Collector].
func (m Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range chatCollectors {
		out <- desc
	}
	for _, c := range m.collectors() {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (m Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
	var runs, warm, used int
	var log chatlog.Counts
	if c := m.Chats; c != nil {
		log = c.logs.Counts()
		c.mu.Lock()
		runs, warm, used = c.runs, len(c.warm), len(c.owners)
		c.mu.Unlock()
	}
	instrument.Gauge(out, chatLogBytes, log.Bytes)
	instrument.Count(out, chatDropped, log.DroppedBytes)
	instrument.Count(out, chatCut, log.EventsCut)
	instrument.Count(out, chatDamaged, log.Damaged)
	instrument.Count(out, chatNoSpace, log.NoSpace)
	instrument.Gauge(out, chatRunning, runs)
	instrument.Gauge(out, chatWarm, warm)
	instrument.Gauge(out, chatInUse, used)
}
