package agent

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/broker"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mcp"
	"github.com/fairlead/fairlead/sandbox-agent/internal/metrics"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/uplink"
)

// newMetrics returns what GET /sessions/{sid}/metrics serves.
func (s *local) newMetrics() (*metrics.Metrics, error) {
	return metrics.New(metrics.Options{
		Terminals: s.agent.host, Egress: s, Collectors: []prometheus.Collector{counts{s.seen}, s.agent.health(), s.registry},
		Workspace: s.agent.cfg.Workspace, Revision: s.agent.cfg.Revision, Started: time.Now(), Log: s.agent.log,
	})
}

// Metrics returns all metrics of an agent at which nothing has happened yet, so
// that whoever asks for some by name can be checked.
func Metrics() (*prometheus.Registry, error) {
	late := prometheus.NewRegistry()
	late.MustRegister(uplink.New(uplink.Options{}), browser.NewMetrics())
	mcp.RegisterMetrics(late)
	m, err := metrics.New(metrics.Options{
		Collectors: []prometheus.Collector{
			counts{func() seen { return seen{} }}, &healthState{func() Status { return Status{} }}, late,
		},
		Workspace: "/", Started: time.Now(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return m.Registry(), nil
}

// seen is how the counters of the sandbox's services stand.
type seen struct {
	proxy     egress.Snapshot
	broker    broker.Snapshot
	approvals approval.Stats
	rejects   map[protocol.Kind]uint64
	terminals terminal.Counts
}

func (s *local) seen() seen {
	return seen{s.proxy.Snapshot(), s.broker.Snapshot(), s.approvals.Stats(), s.rejects(), s.agent.host.Counts()}
}

// counts shows what the sandbox's services count as Prometheus metrics.
type counts struct{ seen func() seen }

var (
	egressVerdicts = prometheus.NewDesc("fairlead_egress_verdicts_total",
		"Connections that the egress proxy has let through or not.", []string{"reason"}, nil)
	egressConnections = prometheus.NewDesc("fairlead_egress_connections", "Connections to the egress proxy.", nil, nil)
	egressWaiting     = prometheus.NewDesc("fairlead_egress_waiting", "Connections that wait for somebody's decision.", nil, nil)
	brokerRequests    = prometheus.NewDesc("fairlead_broker_requests_total", "Requests of known terminals to the broker.", nil, nil)
	brokerRefused     = prometheus.NewDesc("fairlead_broker_refused_total", "Requests that the broker has refused.", []string{"reason"}, nil)
	brokerActive      = prometheus.NewDesc("fairlead_broker_active", "Requests of the broker that are under way.", nil, nil)
	brokerBytes       = prometheus.NewDesc("fairlead_broker_bytes_total", "Bytes of bodies through the broker.", []string{"direction"}, nil)
	approvalEvents    = prometheus.NewDesc("fairlead_approvals_total", "What became of approvals.", []string{"event"}, nil)
	approvalPending   = prometheus.NewDesc("fairlead_approvals_pending", "Approvals that wait for somebody's decision.", nil, nil)
	commandsRefused   = prometheus.NewDesc("fairlead_commands_refused_total", "Commands that were refused before they ran.", []string{"kind"}, nil)

	terminalsStarted  = prometheus.NewDesc("fairlead_agent_terminals_started_total", "Terminals that were begun, those whose program couldn't be started too.", nil, nil)
	terminalsEnded    = prometheus.NewDesc("fairlead_agent_terminals_ended_total", "Terminals of which nothing runs any more.", nil, nil)
	terminalOutput    = prometheus.NewDesc("fairlead_agent_terminal_output_bytes_total", "Output of all terminals, as it was logged.", nil, nil)
	terminalInput     = prometheus.NewDesc("fairlead_agent_terminal_input_bytes_total", "Input that was written to the terminals' programs.", nil, nil)
	terminalRefused   = prometheus.NewDesc("fairlead_agent_terminal_input_refused_total", "Input that was not written, by reason.", []string{"reason"}, nil)
	terminalsAttached = prometheus.NewDesc("fairlead_agent_terminal_streams", "Streams of relays that show a terminal.", nil, nil)
	terminalsPaced    = prometheus.NewDesc("fairlead_agent_terminals_held_back", "Terminals whose programs wait for slow viewers, or for what is being masked.", nil, nil)
)

// refusals are why a terminal takes no input.
var refusals = []protocol.RefusalReason{
	protocol.RefusedNotController, protocol.RefusedStaleTerm, protocol.RefusedAgentRunning,
	protocol.RefusedBusy, protocol.RefusedEnded, protocol.RefusedWaiting,
}

// Describe implements [prometheus.Collector].
func (counts) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		egressVerdicts, egressConnections, egressWaiting, brokerRequests, brokerRefused, brokerActive, brokerBytes,
		approvalEvents, approvalPending, commandsRefused,
		terminalsStarted, terminalsEnded, terminalOutput, terminalInput, terminalRefused, terminalsAttached, terminalsPaced,
	} {
		out <- desc
	}
}

// Collect implements [prometheus.Collector].
func (c counts) Collect(out chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(desc *prometheus.Desc, n int) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(n))
	}
	now := c.seen()
	for _, reason := range egress.Reasons() {
		counter(egressVerdicts, now.proxy.Reasons[reason], string(reason))
	}
	gauge(egressConnections, int(now.proxy.Connections))
	gauge(egressWaiting, int(now.proxy.Holding))
	counter(brokerRequests, now.broker.Requests)
	for _, reason := range broker.Refusals() {
		counter(brokerRefused, now.broker.Refused[reason], reason)
	}
	gauge(brokerActive, now.broker.Active)
	counter(brokerBytes, now.broker.RequestBytes, "request")
	counter(brokerBytes, now.broker.ResponseBytes, "response")
	approvals := now.approvals
	for event, n := range map[string]uint64{
		"asked": approvals.Asked, "coalesced": approvals.Coalesced, "refused": approvals.Refused, "unstored": approvals.Unstored,
		"decided": approvals.Decided, "expired": approvals.Expired, "late": approvals.Late, "lagging": approvals.Lagging,
	} {
		counter(approvalEvents, n, event)
	}
	gauge(approvalPending, approvals.Pending)
	for _, row := range protocol.Kinds {
		counter(commandsRefused, now.rejects[row.Kind], row.Label)
	}
	counter(terminalsStarted, now.terminals.Started)
	counter(terminalsEnded, now.terminals.Ended)
	counter(terminalOutput, now.terminals.OutputBytes)
	counter(terminalInput, now.terminals.InputBytes)
	for _, reason := range refusals {
		counter(terminalRefused, now.terminals.Refused[reason], string(reason))
	}
	gauge(terminalsAttached, now.terminals.Attached)
	gauge(terminalsPaced, now.terminals.Paced)
}

// healthState is a collector of what the agent says of itself.
type healthState struct{ state func() Status }

var (
	agentReady    = prometheus.NewDesc("fairlead_agent_ready", "1 while relays send commands here, and they are executed.", nil, nil)
	agentProblems = prometheus.NewDesc("fairlead_agent_problems", "1 for each problem that the agent has, by its name.", []string{"problem"}, nil)
	agentExpires  = prometheus.NewDesc("fairlead_agent_certificate_expires_timestamp_seconds", "When the agent's certificate expires, Unix time; 0: it isn't known.", nil, nil)
)

// health returns a collector of the agent's own state.
func (a *Agent) health() prometheus.Collector {
	return &healthState{func() Status { return a.state(time.Now()) }}
}

// Describe implements [prometheus.Collector].
func (*healthState) Describe(out chan<- *prometheus.Desc) {
	out <- agentReady
	out <- agentProblems
	out <- agentExpires
}

// Collect implements [prometheus.Collector].
func (h *healthState) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	s := h.state()
	ready, expires := 0., 0.
	if s.Ready {
		ready = 1
	}
	if !s.CertificateExpiresAt.IsZero() {
		expires = float64(s.CertificateExpiresAt.Unix())
	}
	problems := map[string]float64{
		protocol.ProblemLedger: 0, protocol.ProblemAudit: 0, protocol.ProblemKeys: 0, protocol.ProblemCertificate: 0,
	}
	for _, p := range s.Problems {
		problems[p.Name] = 1 // the names are the agent's own
	}
	gauge(agentReady, ready)
	for name, v := range problems {
		gauge(agentProblems, v, name)
	}
	gauge(agentExpires, expires)
}
