package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/link"
	"github.com/fairlead/fairlead/sandbox-agent/internal/services"
)

// newMetrics returns what GET /sessions/{sid}/metrics serves.
func (s *local) newMetrics() (*services.Metrics, error) {
	return services.NewMetrics(services.MetricsOptions{
		Grant: link.GrantOf, State: s.metricsState, Collectors: []prometheus.Collector{counts{s}, s.registry},
		Workspace: s.agent.cfg.Workspace, Revision: s.agent.cfg.Revision, Started: time.Now(), Log: s.agent.log,
	})
}

func (s *local) metricsState() services.MetricsState {
	state := services.MetricsState{Isolation: string(s.agent.host.Isolation())}
	state.Egress, _ = s.status()
	sessions := map[protocol.SessionID]bool{}
	for _, t := range s.agent.host.Running() {
		sessions[t.Session] = true
		state.Terminals = append(state.Terminals, services.TerminalProcess{Session: t.Session, PTY: t.ID, PID: t.PID, UID: t.UID})
	}
	state.Sessions, state.PTYs = len(sessions), len(state.Terminals)
	return state
}

// uids returns the uids of a session's terminals.
func (s *local) uids(session protocol.SessionID) []int {
	var list []int
	for _, t := range s.agent.host.Running() {
		if t.Session == session {
			list = append(list, t.UID)
		}
	}
	return list
}

// counts shows what the sandbox's services count as Prometheus metrics.
type counts struct{ local *local }

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
)

// Describe implements [prometheus.Collector].
func (counts) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		egressVerdicts, egressConnections, egressWaiting, brokerRequests, brokerRefused, brokerActive, brokerBytes,
		approvalEvents, approvalPending, commandsRefused,
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
	proxy := c.local.proxy.Snapshot()
	for reason, n := range proxy.Reasons {
		counter(egressVerdicts, n, string(reason))
	}
	gauge(egressConnections, int(proxy.Connections))
	gauge(egressWaiting, int(proxy.Holding))
	broker := c.local.broker.Snapshot()
	counter(brokerRequests, broker.Requests)
	for _, reason := range slices.Sorted(maps.Keys(broker.Refused)) {
		counter(brokerRefused, broker.Refused[reason], reason)
	}
	gauge(brokerActive, broker.Active)
	counter(brokerBytes, broker.RequestBytes, "request")
	counter(brokerBytes, broker.ResponseBytes, "response")
	approvals := c.local.approvals.Stats()
	for event, n := range map[string]uint64{
		"asked": approvals.Asked, "coalesced": approvals.Coalesced, "refused": approvals.Refused, "unstored": approvals.Unstored,
		"decided": approvals.Decided, "expired": approvals.Expired, "late": approvals.Late, "lagging": approvals.Lagging,
	} {
		counter(approvalEvents, n, event)
	}
	gauge(approvalPending, approvals.Pending)
	for kind, n := range c.local.rejects() {
		counter(commandsRefused, n, kind.String())
	}
}
