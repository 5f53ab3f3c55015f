package agent

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/deploy/program/instrument"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/approval"
	"github.com/fairlead/fairlead/sandbox-agent/internal/broker"
	"github.com/fairlead/fairlead/sandbox-agent/internal/browser"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/cookies"
	"github.com/fairlead/fairlead/sandbox-agent/internal/egress"
	"github.com/fairlead/fairlead/sandbox-agent/internal/executor"
	"github.com/fairlead/fairlead/sandbox-agent/internal/history"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mcp"
	"github.com/fairlead/fairlead/sandbox-agent/internal/metrics"
	"github.com/fairlead/fairlead/sandbox-agent/internal/plugin"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/sandbox-agent/internal/uplink"
)

// Metrics returns all metrics of an agent at which nothing has happened yet, so
// that whoever asks for some by name can be checked.
func Metrics() (*prometheus.Registry, error) {
	m, err := metrics.New(metrics.Options{
		Collectors: []prometheus.Collector{
			terminal.Feature{}, egress.Metrics{}, broker.Metrics{}, approval.Metrics{}, executor.Metrics{}, browser.NewMetrics(), mcp.NewMetrics(),
			uplink.New(uplink.Options{}), chat.Metrics{}, history.Metrics{}, cookies.NewMetrics(), plugin.New(plugin.Options{}), sidebar.Metrics(), healthMetrics{Status{}},
		},
		Workspace: "/", Started: time.Now(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	return m.Registry(), nil
}

// A stater says how the agent is.
type stater interface{ status(now time.Time) Status }

// status implements [stater] for an agent that stays as it is.
func (s Status) status(time.Time) Status { return s }

// healthMetrics show what the agent says of itself.
type healthMetrics struct{ of stater }

var (
	agentReady    = prometheus.NewDesc("fairlead_agent_ready", "1 while relays send commands here, and they are executed.", nil, nil)
	agentProblems = prometheus.NewDesc("fairlead_agent_problems", "1 for each problem that the agent has, by its name.", []string{"problem"}, nil)
	agentExpires  = prometheus.NewDesc("fairlead_agent_certificate_expires_timestamp_seconds", "When the agent's certificate expires, Unix time; 0: it isn't known.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (h healthMetrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(h, out) }

// Collect implements [prometheus.Collector].
func (h healthMetrics) Collect(out chan<- prometheus.Metric) {
	s := h.of.status(time.Now())
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
	instrument.Gauge(out, agentReady, ready)
	for name, v := range problems {
		instrument.Gauge(out, agentProblems, v, name)
	}
	instrument.Gauge(out, agentExpires, expires)
}
