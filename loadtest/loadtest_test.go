package loadtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/baseline"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/scenario"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// TestMain is the program as well, in the roles in which it starts itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{baseline.Role, "generator"}, os.Args[1]) {
		program.Main("loadtest", "Loads a fairlead", Declare)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("os/signal.loop"))
}

// execute runs the program and returns its status and what it printed.
func execute(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	return executed(ctx, Declare, args...)
}

// executed is execute for a program that is declared otherwise.
func executed(ctx context.Context, declare func(*program.Command), args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = program.Execute(ctx, program.System{
		Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &errs,
	}, "loadtest", "Loads a fairlead", declare)
	return status, out.String(), errs.String()
}

// What is wrong with a command line is said in one line, with a hint where there
// is one, before anything starts.
func TestUsage(t *testing.T) {
	for _, row := range []struct {
		args string
		want string // in stderr
	}{
		{"run nosuch", `unknown command "nosuch"`},
		{"run nosuch", "there are chat, churn, commands, echo"},
		{"run echo", "nothing to load"},
		{"run echo", "--local starts a stack of its own"},
		{"run echo --local --url http://h", "--local and --url exclude each other"},
		{"run echo --url http://h", "--url needs --token-file"},
		{"run echo --target none", "no such file"},
		{"run echo --local --unknown", "unknown flag: --unknown"},
		{"run echo --local word", `unknown command "word"`},
		{"run echo --local --slo echo_p98<1s", `no metric is called "echo_p98"`},
		{"run echo --local --slo echo_p99<1MB", "measured in s"},
		{"run echo --local --slo echo_p99", "has no operator"},
		{"run echo --local --impair loss=200%", "between 0% and 100%"},
		{"run echo --url http://h --impair loss=1%", "--impair needs --local"},
		{"run echo --url http://h --hops", "--hops needs --local"},
		{"run echo --local --same-lane", "--same-lane needs --bulk"},
		{"run echo --local --rate 0", "--rate must be more than 0"},
		{"run echo --local --duration 0s", "--duration must be more than 0"},
		{"run echo --local --blocks -1", "--blocks must be more than 0"},
		{"run echo --local --progress dance", "--progress"},
		{"run echo --local --viewers 3", "unknown flag: --viewers"},
		{"run commands --local --clients 1000", "--clients must be from 1 to"},
		{"run files --local --bytes 0", "--bytes"},
		{"run fanout --local --chunk 1", "--chunk must be from"},
		{"run fanout --local --generators 1000", "--generators must be from 0 to 64"},
		{"run failover --local --kills 0", "--kills 0 must be more than 0"},
		{"run terminals --local --terminals 100000", "a sandbox has at most"},
		{"run join-storm --local --steady 0", "--steady 0 must be more than 0"},
		{"run slow-viewers --local --slow 0", "--slow 0 and --slow-rate"},
		{"run churn --local --sessions 0", "--sessions 0 must be more than 0"},
		{"run outage --local --no-baseline", "unknown flag: --no-baseline"},
		{"run tunnel --local", "unknown flag: --local"},
		{"run tunnel --carriers pigeon", "want quic or websocket"},
		{"compare a", "B.json is missing"},
		{"compare none none", "no such file"},
	} {
		status, stdout, stderr := execute(t.Context(), strings.Fields(row.args)...)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if status != statusUsage || !strings.Contains(stderr, row.want) || len(lines) > 2 || stdout != "" {
			t.Errorf("%s: status %d, want %q in %q; stdout %q", row.args, status, row.want, stderr, stdout)
		}
	}
}

// Every command explains itself, a scenario with each of its figures.
func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "run --help", "compare --help", "scenarios --help", "impair --help"} {
		if status, stdout, stderr := execute(t.Context(), strings.Fields(args)...); status != 0 || len(stdout) < 100 || stderr != "" {
			t.Errorf("%s: %d %q %q", args, status, stdout, stderr)
		}
	}
	_, table, _ := execute(t.Context(), "scenarios")
	for _, s := range scenario.All() {
		_, stdout, _ := execute(t.Context(), "run", s.Name, "--help")
		for _, name := range measure.Figures(s.Metrics)[:len(measure.Figures(s.Metrics))-6] {
			if strings.HasPrefix(name, "generator_") {
				continue
			}
			if !strings.Contains(stdout, name) && !isBaseline(s, name) {
				t.Errorf("%s --help doesn't tell of %s", s.Name, name)
			}
		}
		if !strings.Contains(table, s.Name) || strings.Contains(table, "source") {
			t.Errorf("the table lacks %s:\n%s", s.Name, table)
		}
	}
}

// isBaseline reports whether a figure is one of a baseline that isn't declared.
func isBaseline(s *stage.Scenario, figure string) bool {
	for _, m := range s.Metrics {
		if m.Baseline != "" && strings.HasPrefix(figure, m.Baseline) {
			return true
		}
	}
	return false
}

// A whole run: exit 0 when its bounds hold and 1 when one is broken, and a
// result that can be read again and compared.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	result := filepath.Join(dir, "a.json")
	args := []string{"run", "tunnel", "--blocks", "1", "--duration", "30ms", "--warmup", "20ms", "--terminals", "2", "--progress", "none"}
	status, stdout, stderr := execute(t.Context(), append(args, "--report-dir", dir, "--json", result, "--slo", "lost_bytes==0")...)
	if status != 0 || !strings.Contains(stdout, "tunnel_throughput") || !strings.Contains(stdout, "PASS") {
		t.Fatalf("status %d\n%s\n%s", status, stdout, stderr)
	}
	data, err := os.ReadFile(result)
	if err != nil {
		t.Fatal(err)
	}
	var r measure.Result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if r.Info.Scenario != "tunnel" || r.Info.Machine.Cores == 0 || r.Info.End.Before(r.Info.Start) || len(r.Info.Parameters) == 0 || len(r.Verdicts) == 0 {
		t.Errorf("%+v", r.Info)
	}
	for _, pattern := range []string{"tunnel-*.json", "tunnel-*.html"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) != 1 {
			t.Errorf("%s: %q", pattern, found)
		}
	}
	if status, stdout, _ := execute(t.Context(), "compare", result, result); status != 0 || !strings.Contains(stdout, "tunnel_throughput") {
		t.Errorf("compare: %d %s", status, stdout)
	}
	status, stdout, stderr = execute(t.Context(), append(args, "--report-dir", "", "--slo", "tunnel_throughput<0B")...)
	if status != statusFailed || !strings.Contains(stdout, "FAIL") || !strings.Contains(stderr, "tunnel_throughput<0B") || strings.Contains(stdout, "report:") {
		t.Errorf("status %d\n%s\n%s", status, stdout, stderr)
	}
}

// An interrupted run still reports, with a status of its own.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
	defer cancel()
	status, stdout, stderr := execute(ctx, "run", "tunnel", "--duration", "100ms", "--blocks", "1000", "--warmup", "20ms", "--progress", "none", "--report-dir", dir)
	if status != statusInterrupted || !strings.Contains(stderr, "interrupted") || !strings.Contains(stdout, "report:") {
		t.Errorf("status %d\n%s\n%s", status, stdout, stderr)
	}
}

// A stack that doesn't start is told of in one line, and leaves no report.
func TestNoStack(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "devstack"), []byte("#!/bin/sh\necho 'devstack: error: no room'\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := execute(t.Context(), "run", "echo", "--local", "--bin", bin, "--report-dir", dir, "--progress", "none")
	if status != statusFailed || stdout != "" || !strings.Contains(stderr, "no room") || !strings.Contains(stderr, "its logs: ") {
		t.Errorf("status %d\n%s\n%s", status, stdout, stderr)
	}
	if found, _ := os.ReadDir(dir); len(found) != 0 {
		t.Errorf("%d reports of nothing", len(found))
	}
}

// What the clocks leave open has an exit status of its own, unless anything else
// speaks against the run.
func TestExitByClock(t *testing.T) {
	metrics := []measure.Metric{
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true},
		{Name: "echo", Kind: measure.KindLatency},
		{Name: "lost_bytes", Kind: measure.KindCounter, MustBeZero: true},
	}
	for _, row := range []struct {
		bounds string
		lost   int64
		blocks []float64 // of the echo, in ms
		broken error     // that ended the run
		status int
		said   string
	}{
		{"delivery_p99<=150ms", 0, nil, nil, statusByClock, "UNDECIDED BY CLOCK"},
		{"delivery_p99<=150ms echo_p99<1s", 0, nil, nil, statusByClock, "UNDECIDED BY CLOCK"},
		{"delivery_p99<=250ms", 0, nil, nil, 0, "PASS"},
		{"delivery_p99<=5ms", 0, nil, nil, statusFailed, "FAIL"},
		{"delivery_p99<=150ms echo_p99<5ms", 0, nil, nil, statusFailed, "FAIL"},
		{"delivery_p99<=150ms", 1, nil, nil, statusFailed, "FAIL"},
		{"delivery_p99<=150ms", 0, nil, errors.New("the relay is gone"), statusFailed, "FAIL"},
		{"echo_p50<20ms", 0, []float64{10, 15, 25, 30}, nil, statusFailed, "FAIL"}, // more blocks would tell
		{"delivery_p99<=150ms echo_p50<20ms", 0, []float64{10, 15, 25, 30}, nil, statusFailed, "FAIL"},
	} {
		out := measure.NewCollection(metrics)
		out.ClockError(100 * time.Millisecond)
		now := time.Now()
		rec := measure.NewRecorder()
		rec.Begin(now)
		rec.Counter("lost_bytes").Add(row.lost)
		rec.Latency("delivery").Record(now, now.Add(107*time.Millisecond))
		rec.Latency("echo").Record(now, now.Add(10*time.Millisecond))
		out.Merge("run", 0, rec.Snapshot())
		for block, ms := range row.blocks {
			rec.Latency("echo").Record(now, now.Add(time.Duration(ms*float64(time.Millisecond))))
			out.Merge("run", block+1, rec.Snapshot())
		}
		r := &run{
			scenario: &stage.Scenario{Name: "fanout", Metrics: metrics}, options: &stage.Options{}, flags: &flags{},
			env: stage.Env{Out: out}, began: true,
		}
		for expr := range strings.FieldsSeq(row.bounds) {
			slo, err := measure.ParseSLO(expr)
			if err != nil {
				t.Fatal(err)
			}
			r.options.SLOs = append(r.options.SLOs, slo)
		}
		if row.broken != nil {
			r.info.Failure = row.broken.Error()
		}
		status, stdout, stderr := executed(t.Context(), func(c *program.Command) {
			c.Run(func(_ context.Context, env *program.Env) error {
				r.program = env
				return r.conclude(row.broken)
			})
		})
		if status != row.status || !strings.Contains(stdout, "\n"+row.said) {
			t.Errorf("%s, %d lost, %v: status %d, want %d\n%s\n%s", row.bounds, row.lost, row.broken, status, row.status, stdout, stderr)
		}
	}
	for _, args := range [][]string{{"--help"}, {"run", "--help"}} {
		if _, stdout, _ := execute(t.Context(), args...); !strings.Contains(strings.Join(strings.Fields(stdout), " "), "3 when") {
			t.Errorf("%q doesn't tell of status 3:\n%s", args, stdout)
		}
	}
}

// The report of a run that allows a saturated generator says what the exit
// status says.
func TestAllowSaturated(t *testing.T) {
	r := &measure.Result{Generator: measure.Generator{Saturated: true, Why: []string{"it was late"}}}
	if ok, _ := r.OK(); ok {
		t.Error("a saturated generator is as good as any")
	}
	takeSaturated(r, "nobody minds")
	if ok, why := r.OK(); !ok || len(r.Notes) != 1 || len(r.Generator.Why) != 1 {
		t.Errorf("%v %q, notes %q", ok, why, r.Notes)
	}
}
