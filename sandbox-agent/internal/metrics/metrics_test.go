package metrics

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// A metricsWorld is the metrics of a sandbox with one busy terminal.
type metricsWorld struct {
	*Metrics
	t     *testing.T
	busy  *exec.Cmd // of pty_1
	grant *jws.Grant
	mux   *http.ServeMux
}

var mayView = []protocol.Capability{protocol.CapView}

type running []terminal.Running

func (r running) Running() []terminal.Running   { return r }
func (r running) Isolation() terminal.Isolation { return terminal.IsolationNone }

type advisory struct{}

func (advisory) Status() (protocol.EgressState, string) { return protocol.EgressAdvisory, "" }

func newMetricsWorld(t *testing.T) *metricsWorld {
	t.Helper()
	w := &metricsWorld{
		t: t, mux: http.NewServeMux(), busy: exec.CommandContext(t.Context(), "sh", "-c", "sleep 60 & while :; do :; done"),
		grant: &jws.Grant{Session: "ses_1", Caps: mayView, PTYs: []string{jws.AllPTYs}},
	}
	w.busy.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := w.busy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-w.busy.Process.Pid, syscall.SIGKILL)
		w.busy.Wait()
	})
	made := prometheus.NewCounter(prometheus.CounterOpts{Name: "fairlead_made_total", Help: "x"})
	made.Add(3)
	var err error
	w.Metrics, err = New(Options{
		Terminals: running{
			{Session: "ses_1", ID: "pty_1", PID: w.busy.Process.Pid, UID: -1}, {Session: "ses_2", ID: "pty_2", PID: os.Getpid(), UID: -1}, {Session: "ses_1", ID: "pty_3", UID: -1},
		},
		Egress:     advisory{},
		Collectors: []prometheus.Collector{made},
		Workspace:  t.TempDir(), Revision: "rev1", Started: time.Now().Add(-time.Minute), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Routes(w.mux)
	return w
}

const metricsPath = "/sessions/ses_1/metrics"

func (w *metricsWorld) get(query, accept string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, metricsPath+query, nil)
	r.Header.Set("Accept", accept)
	answer := httptest.NewRecorder()
	w.mux.ServeHTTP(answer, r.WithContext(route.WithGrant(r.Context(), w.grant)))
	return answer
}

// read has everything looked at anew.
func (w *metricsWorld) read() (a protocol.SandboxMetrics) {
	w.t.Helper()
	w.mu.Lock()
	w.seen = w.seen.Add(-measureEvery) // what came before is old by now
	w.mu.Unlock()
	answer := w.get("", "*/*")
	if err := json.Unmarshal(answer.Body.Bytes(), &a); err != nil || answer.Code != http.StatusOK || a.TopProcesses == nil {
		w.t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return a
}

// process returns what is told of the busy one.
func (w *metricsWorld) process(a protocol.SandboxMetrics) (found protocol.ProcessMetrics) {
	w.t.Helper()
	for _, p := range a.TopProcesses {
		// The kernel may not have counted the memory of the child yet.
		if p.PTYID != "pty_1" || p.RSSBytes == 0 && p.PID == w.busy.Process.Pid {
			w.t.Errorf("%+v", p)
		}
		if p.PID == w.busy.Process.Pid {
			found = p
		}
	}
	return found
}

// TestMetrics: the numbers are there, and of processes only those of terminals
// that the grant is for.
func TestMetrics(t *testing.T) {
	w := newMetricsWorld(t)
	a := w.read()
	if a.Revision != "rev1" || a.UptimeMs < 60_000 || a.Goroutines == 0 || a.HeapBytes == 0 || a.HeapMB <= 0 || a.SysMB <= 0 ||
		a.SessionCount != 2 || a.PTYCount != 3 || a.Egress != protocol.EgressAdvisory || a.System.Cores == 0 ||
		a.System.WorkspaceTotal == 0 || a.MemTotal == 0 || a.MemUsed == 0 || a.MemUsed > a.MemTotal || a.MemPercent <= 0 || a.CPUPercent != 0 {
		t.Errorf("%+v", a)
	}
	if p := w.process(a); p.PID == 0 || p.CPUPercent != 0 {
		t.Errorf("%+v of %+v", p, a.TopProcesses)
	}
	for began := time.Now(); ; {
		if p := w.process(w.read()); p.CPUPercent > 0 && p.Combined >= p.CPUPercent {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal("a loop takes no CPU")
		}
	}
	w.grant = &jws.Grant{Session: "ses_1", Caps: mayView, PTYs: []string{"pty_3"}}
	if top := w.read().TopProcesses; len(top) != 0 {
		t.Errorf("another terminal's processes: %+v", top)
	}
}

// TestMetricsForms: Prometheus gets its own form, and nobody else's session.
func TestMetricsForms(t *testing.T) {
	w := newMetricsWorld(t)
	for query, accept := range map[string]string{"?format=prometheus": "*/*", "": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"} {
		body := w.get(query, accept).Body.String()
		for _, line := range []string{"fairlead_made_total 3", "fairlead_sandbox_terminals 3", `fairlead_sandbox_info{revision="rev1"} 1`, "go_goroutines", "process_open_fds"} {
			if !strings.Contains(body, line) {
				t.Errorf("%q %s: no %s", query, accept, line)
			}
		}
	}
	if answer := w.get("?format=xml", "*/*"); answer.Code != http.StatusBadRequest {
		t.Errorf("another format: %d", answer.Code)
	}
	for _, w.grant = range []*jws.Grant{nil, {Session: "ses_2", Caps: mayView}, {Session: "ses_1"}} {
		if answer := w.get("", "*/*"); answer.Code != http.StatusForbidden {
			t.Errorf("%+v: %d", w.grant, answer.Code)
		}
	}
}

// TestOwners: a process is its terminal's as a descendant, as a member of its
// session, or by its user.
func TestOwners(t *testing.T) {
	one, two := terminal.Running{ID: "pty_1", PID: 10, UID: -1}, terminal.Running{ID: "pty_2", UID: 2001}
	o := newOwners([]terminal.Running{one, two})
	o.learn([]procfs.ProcStat{
		{PID: 10, PPID: 5, Session: 10}, {PID: 11, PPID: 10, Session: 11}, {PID: 12, PPID: 11, Session: 11},
		{PID: 20, PPID: 1, Session: 10}, {PID: 30, PPID: 31}, {PID: 31, PPID: 30}, {PID: 40, PPID: 1, Session: 40},
	})
	for pid, want := range map[int]protocol.PTYID{10: "pty_1", 11: "pty_1", 12: "pty_1", 20: "pty_1", 30: "", 40: ""} {
		if got := o.byPID[pid].ID; got != want {
			t.Errorf("%d is of %q, want %q", pid, got, want)
		}
	}
	if o.byUID[2001] != two || len(o.byUID) != 1 {
		t.Errorf("%v", o.byUID)
	}
	if got := usage(procfs.CPUStat{User: 1, Idle: 1}, procfs.CPUStat{User: 2, Idle: 4}); got != 25 {
		t.Errorf("usage %v", got)
	}
}
