package fleet

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// A Status describes one connected sandbox.
type Status struct {
	SandboxID   protocol.SandboxID `json:"sandbox_id"`
	ConnectedAt int64              `json:"connected_at"` // Unix milliseconds
	InstanceID  string             `json:"instance_id"`
	Generation  uint64             `json:"generation"`
	Revision    string             `json:"revision"`
	Isolation   string             `json:"isolation"`
	Carrier     tunnel.Carrier     `json:"carrier"` // what the tunnel runs over
	Role        string             `json:"role"`    // primary, standby, or empty: not said yet
	Primary     bool               `json:"primary"`
	Problems    []protocol.Problem `json:"problems"` // what the agent last said
}

func (m *member) status() Status {
	role := m.roleName()
	reported, _, _ := m.session.Status()
	s := Status{
		SandboxID: m.hello.SandboxID, ConnectedAt: m.since.UnixMilli(), InstanceID: m.hello.InstanceID,
		Generation: m.hello.Generation, Revision: m.hello.Revision, Isolation: m.hello.Isolation,
		Carrier: m.session.Carrier(), Role: role, Primary: role == rolePrimary, Problems: slices.Clone(reported.Problems),
	}
	if s.Problems == nil {
		s.Problems = []protocol.Problem{} // [], not null
	}
	return s
}

// List returns the connected sandboxes, ordered by id.
func (f *Fleet) List() []Status {
	f.mu.Lock()
	members := f.list()
	f.mu.Unlock()
	list := make([]Status, 0, len(members))
	for _, m := range members {
		list = append(list, m.status())
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(string(a.SandboxID), string(b.SandboxID)) })
	return list
}

var (
	sandboxesDesc = prometheus.NewDesc("fairlead_sandboxes",
		"Connected sandboxes, by the role of their tunnel.", []string{"role"}, nil)
	problemsDesc = prometheus.NewDesc("fairlead_sandbox_problems",
		"Connected sandboxes that report a problem, by its name.", []string{"problem"}, nil)
)

// knownProblems are the names that may become labels: a sandbox must not make
// up others.
var knownProblems = []string{
	protocol.ProblemLedger, protocol.ProblemAudit, protocol.ProblemKeys, protocol.ProblemCertificate,
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(descs chan<- *prometheus.Desc) {
	descs <- sandboxesDesc
	descs <- problemsDesc
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) {
	roles := map[string]int{rolePrimary: 0, roleStandby: 0, "unknown": 0}
	problems := map[string]int{"other": 0}
	for _, name := range knownProblems {
		problems[name] = 0
	}
	for _, s := range f.List() {
		if s.Role == "" {
			s.Role = "unknown"
		}
		roles[s.Role]++
		named := map[string]bool{} // a problem counts once for each sandbox
		for _, p := range s.Problems {
			if !slices.Contains(knownProblems, p.Name) {
				p.Name = "other"
			}
			named[p.Name] = true
		}
		for name := range named {
			problems[name]++
		}
	}
	for role, n := range roles {
		metrics <- prometheus.MustNewConstMetric(sandboxesDesc, prometheus.GaugeValue, float64(n), role)
	}
	for problem, n := range problems {
		metrics <- prometheus.MustNewConstMetric(problemsDesc, prometheus.GaugeValue, float64(n), problem)
	}
}
