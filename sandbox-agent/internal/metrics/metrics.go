// Package metrics shows what the parts of a sandbox count, and how the agent and
// its machine stand.
package metrics

import (
	"cmp"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

const (
	// maxTopProcesses bounds the processes that are told of.
	maxTopProcesses = 10
	// maxScrapes bounds the scrapes at a time; further ones get 503.
	maxScrapes = 2
	// measureEvery is the least time between two looks at /proc; who asks sooner
	// gets what was seen then.
	measureEvery = 500 * time.Millisecond
)

// Terminals are those of the sandbox. [terminal.Host] has them.
type Terminals interface {
	Running() []terminal.Running
	Isolation() terminal.Isolation
}

// Egress says how far terminals are kept to the egress proxy, and why not
// further.
type Egress interface {
	Status() (state protocol.EgressState, why string)
}

// Options are what Metrics work with.
type Options struct {
	Terminals  Terminals              // nil: there are none
	Egress     Egress                 // nil: nothing is said
	Collectors []prometheus.Collector // of the sandbox, beside those of the Go runtime and the process
	Workspace  string                 // whose disk is measured
	Revision   string
	Started    time.Time
	Log        *slog.Logger
}

// A state is how the sandbox stands.
type state struct {
	terminals []terminal.Running
	sessions  int
	isolation string
	egress    protocol.EgressState
}

func (o *Options) state() (now state) {
	if o.Egress != nil {
		now.egress, _ = o.Egress.Status()
	}
	if o.Terminals == nil {
		return now
	}
	now.isolation, now.terminals = string(o.Terminals.Isolation()), o.Terminals.Running()
	sessions := map[protocol.SessionID]bool{}
	for _, t := range now.terminals {
		sessions[t.Session] = true
	}
	now.sessions = len(sessions)
	return now
}

// Metrics serves GET /sessions/{sid}/metrics: as JSON (seed 001's list), and as
// Prometheus has it.
type Metrics struct {
	// Static after construction.
	opts     Options
	fs       procfs.FS
	registry *prometheus.Registry
	scraper  http.Handler
	memory   uint64 // of the machine, in bytes

	// Guarded by mu.
	mu      sync.Mutex
	seen    time.Time               // the last look
	answer  protocol.SandboxMetrics // of the last look, without processes
	busy    []ownedProcess          // at the last look, the busiest first; replaced, never changed
	cpu     procfs.CPUStat          // of all cores, at the last look
	cpuTime map[processID]float64   // of the terminals' processes, at the last look, in seconds
}

// An ownedProcess is a process of a session's terminal.
type ownedProcess struct {
	protocol.ProcessMetrics
	session protocol.SessionID
}

// A processID names a process for good: pids come again.
type processID struct {
	pid   int
	start uint64 // in clock ticks since the machine started
}

// New returns Metrics. It fails where there is no /proc.
func New(opts Options) (*Metrics, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	m := &Metrics{opts: opts, fs: fs, cpuTime: map[processID]float64{}}
	registry := prometheus.NewRegistry()
	m.registry = registry
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, collector := range opts.Collectors {
		if err := registry.Register(collector); err != nil {
			return nil, err
		}
	}
	m.gauges(registry)
	m.scraper = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, ErrorLog: slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
	})
	return m, nil
}

// Registry returns all the metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// gauges registers what the JSON form tells as well.
func (m *Metrics) gauges(registry *prometheus.Registry) {
	gauge := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fairlead_sandbox_" + name, Help: help}, value))
	}
	gauge("sessions", "Sessions of the sandbox.", func() float64 { return float64(m.opts.state().sessions) })
	gauge("terminals", "Terminals of the sandbox.", func() float64 { return float64(len(m.opts.state().terminals)) })
	gauge("system_cpu_percent", "Use of all cores together, since it was asked for before.", func() float64 { return m.measure().CPUPercent })
	gauge("system_memory_bytes", "Memory of the machine.", func() float64 { return float64(m.measure().MemTotal) })
	gauge("system_memory_used_bytes", "Memory of the machine that is in use.", func() float64 { return float64(m.measure().MemUsed) })
	gauge("workspace_bytes", "Size of the workspace's disk.", func() float64 { return float64(m.measure().System.WorkspaceTotal) })
	gauge("workspace_free_bytes", "What terminals may still write to the workspace's disk.", func() float64 { return float64(m.measure().System.WorkspaceFree) })
	gauge("load1", "Load of the machine in the last minute.", func() float64 { return m.measure().System.Load1 })
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fairlead_sandbox_info", Help: "What runs: always 1."}, []string{"revision"})
	info.WithLabelValues(m.opts.Revision).Set(1)
	registry.MustRegister(info)
}

// Routes adds the route to mux.
func (m *Metrics) Routes(mux *http.ServeMux) {
	route.Get(mux, "metrics", protocol.CapView, func(w http.ResponseWriter, r *http.Request, session protocol.SessionID) error {
		switch format := r.URL.Query().Get("format"); {
		case format == "prometheus", format == "" && wantsPrometheus(r.Header.Get("Accept")):
			m.scraper.ServeHTTP(w, r)
		case format == "" || format == "json":
			reply.JSON(w, http.StatusOK, m.answerFor(session, route.GrantOf(r)))
		default:
			return protocol.Errorf(protocol.KindInvalid, "format: json or prometheus")
		}
		return nil
	})
}

// wantsPrometheus reports whether accept is that of something that scrapes.
func wantsPrometheus(accept string) bool {
	return strings.Contains(accept, "openmetrics-text") || strings.Contains(accept, "vnd.google.protobuf") ||
		strings.HasPrefix(accept, "text/plain")
}

// answerFor returns what is measured, with the busiest of the processes of the
// session's terminals that grant names.
func (m *Metrics) answerFor(session protocol.SessionID, grant *jws.Grant) protocol.SandboxMetrics {
	answer := m.measure()
	m.mu.Lock()
	busy := m.busy
	m.mu.Unlock()
	for _, p := range busy {
		if p.session == session && grant.Allows(session, p.PTYID, protocol.CapView) && len(answer.TopProcesses) < maxTopProcesses {
			answer.TopProcesses = append(answer.TopProcesses, p.ProcessMetrics)
		}
	}
	return answer
}

// measure looks at the agent and at the machine.
func (m *Metrics) measure() protocol.SandboxMetrics {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	elapsed := now.Sub(m.seen)
	if elapsed < measureEvery {
		return m.answer
	}
	state := m.opts.state()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	const mb = 1 << 20
	a := protocol.SandboxMetrics{
		Revision: m.opts.Revision, UptimeMs: now.Sub(m.opts.Started).Milliseconds(),
		Goroutines: runtime.NumGoroutine(), HeapBytes: memory.HeapAlloc, SysBytes: memory.Sys,
		HeapMB: float64(memory.HeapAlloc) / mb, SysMB: float64(memory.Sys) / mb,
		SessionCount: state.sessions, PTYCount: len(state.terminals), Isolation: state.isolation, Egress: state.egress,
		TopProcesses: make([]protocol.ProcessMetrics, 0, maxTopProcesses),
	}
	a.System.Cores = runtime.NumCPU()
	m.machine(&a)
	m.busy = nil
	if len(state.terminals) > 0 {
		m.busy = m.processes(state.terminals, elapsed)
	}
	m.seen, m.answer = now, a
	m.answer.TopProcesses = []protocol.ProcessMetrics{} // of its own, for who appends to a's
	return a
}

// machine fills in what the whole machine does. What can't be had stays 0. The
// caller holds mu.
func (m *Metrics) machine(a *protocol.SandboxMetrics) {
	if stat, err := m.fs.Stat(); err == nil {
		a.CPUPercent = usage(m.cpu, stat.CPUTotal)
		m.cpu = stat.CPUTotal
	}
	if info, err := m.fs.Meminfo(); err == nil && info.MemTotalBytes != nil && info.MemAvailableBytes != nil && *info.MemTotalBytes > 0 {
		m.memory = *info.MemTotalBytes
		a.MemTotal, a.MemUsed = m.memory, m.memory-min(m.memory, *info.MemAvailableBytes)
		a.MemPercent = 100 * float64(a.MemUsed) / float64(a.MemTotal)
	}
	if load, err := m.fs.LoadAvg(); err == nil {
		a.System.Load1 = load.Load1
	}
	var disk unix.Statfs_t
	if unix.Statfs(m.opts.Workspace, &disk) == nil {
		a.System.WorkspaceTotal = disk.Blocks * uint64(disk.Bsize)
		a.System.WorkspaceFree = disk.Bavail * uint64(disk.Bsize)
	}
}

// usage returns what part of all cores was used between two looks, in percent;
// 0 when there was none before.
func usage(before, now procfs.CPUStat) float64 {
	all := func(s procfs.CPUStat) float64 { // guests are among the users
		return s.User + s.Nice + s.System + s.Idle + s.Iowait + s.IRQ + s.SoftIRQ + s.Steal
	}
	total := all(now) - all(before)
	if all(before) == 0 || total <= 0 {
		return 0
	}
	idle := now.Idle + now.Iowait - before.Idle - before.Iowait
	return min(max(100*(1-idle/total), 0), 100)
}

// processes returns the terminals' processes, the busiest first. The use of a
// process is that since the last look, in percent of one core. The caller holds
// mu.
func (m *Metrics) processes(terminals []terminal.Running, elapsed time.Duration) []ownedProcess {
	all, err := m.fs.AllProcs()
	if err != nil {
		return nil
	}
	before := m.cpuTime
	m.cpuTime = map[processID]float64{}
	var found []ownedProcess
	owners := newOwners(terminals)
	stats := make([]procfs.ProcStat, 0, len(all))
	for _, p := range all {
		if stat, err := p.Stat(); err == nil { // or it has just ended
			stats = append(stats, stat)
		}
	}
	owners.learn(stats)
	for _, stat := range stats {
		owner, ok := owners.of(m.fs, stat)
		if !ok || stat.PID == os.Getpid() {
			continue
		}
		id := processID{stat.PID, stat.Starttime}
		used := stat.CPUTime()
		m.cpuTime[id] = used
		p := protocol.ProcessMetrics{PID: stat.PID, Name: stat.Comm, PTYID: owner.ID, RSSBytes: uint64(max(stat.ResidentMemory(), 0))}
		if was, known := before[id]; known && elapsed > 0 && !m.seen.IsZero() {
			p.CPUPercent = max(100*(used-was)/elapsed.Seconds(), 0)
		}
		if m.memory > 0 {
			p.MemPercent = 100 * float64(p.RSSBytes) / float64(m.memory)
		}
		p.Combined = p.CPUPercent + p.MemPercent
		found = append(found, ownedProcess{p, owner.Session})
	}
	slices.SortFunc(found, func(a, b ownedProcess) int {
		return cmp.Or(cmp.Compare(b.Combined, a.Combined), cmp.Compare(a.PID, b.PID))
	})
	return found
}

// owners know which terminal a process belongs to: by what it descends from, or
// else by its user.
type owners struct {
	byUID, byPID map[int]terminal.Running
}

func newOwners(terminals []terminal.Running) owners {
	o := owners{map[int]terminal.Running{}, map[int]terminal.Running{}}
	for _, t := range terminals {
		if t.UID >= 0 {
			o.byUID[t.UID] = t
		}
		if t.PID > 0 {
			o.byPID[t.PID] = t
		}
	}
	return o
}

// learn adds what descends from the terminals' first processes, or is in their
// sessions.
func (o owners) learn(stats []procfs.ProcStat) {
	known := make(map[int]procfs.ProcStat, len(stats))
	for _, stat := range stats {
		known[stat.PID] = stat
	}
	roots := maps.Clone(o.byPID)
	for _, stat := range stats {
		at := stat
		for range stats { // pids come again, so that a walk upwards might not end
			owner, ok := roots[at.PID]
			if !ok {
				owner, ok = roots[at.Session]
			}
			if ok {
				o.byPID[stat.PID] = owner
				break
			}
			if at, ok = known[at.PPID]; !ok {
				break
			}
		}
	}
}

// of returns the terminal that a process belongs to.
func (o owners) of(fs procfs.FS, stat procfs.ProcStat) (terminal.Running, bool) {
	if owner, ok := o.byPID[stat.PID]; ok || len(o.byUID) == 0 {
		return owner, ok
	}
	p, err := fs.Proc(stat.PID)
	if err != nil {
		return terminal.Running{}, false
	}
	status, err := p.NewStatus()
	if err != nil {
		return terminal.Running{}, false
	}
	owner, ok := o.byUID[int(status.UIDs[0])]
	return owner, ok
}
