package loadtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/baseline"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/report"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// declareRun declares the command that runs s.
func declareRun(c *program.Command, s *stage.Scenario) {
	o := s.Defaults
	f := declareCommon(c, s, &o)
	c.Describe(explain(s))
	c.Run(func(ctx context.Context, env *program.Env) error {
		if err := f.settle(s, &o); err != nil {
			return program.WithStatus(err, statusUsage)
		}
		r := &run{scenario: s, options: &o, flags: f, program: env}
		c.Each(func(name, value string) { r.parameter(name, value) })
		return r.do(ctx)
	})
}

// explain is what --help says of a scenario.
func explain(s *stage.Scenario) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", strings.TrimSpace(s.Long))
	if s.NeedsLocal != "" {
		fmt.Fprintf(&b, "\nIt runs with --local only: %s.\n", s.NeedsLocal)
	}
	fmt.Fprintf(&b, "\nFigures, on each of which a bound (--slo) can be set:\n\n")
	for _, m := range s.Metrics {
		fmt.Fprintf(&b, "  %s\n      %s\n", strings.Join(measure.Figures([]measure.Metric{m})[:figuresOf(m)], " "), m.Help)
	}
	if s.Example != "" {
		fmt.Fprintf(&b, "\nExamples:\n\n")
		for line := range strings.SplitSeq(strings.TrimSpace(s.Example), "\n") {
			fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(line))
		}
	}
	return strings.TrimSpace(b.String())
}

// figuresOf counts the figures of m itself, which come before those of its
// baseline.
func figuresOf(m measure.Metric) int {
	n := len(measure.Figures([]measure.Metric{{Name: m.Name, Kind: m.Kind}})) - len(measure.Figures(nil))
	if m.Baseline != "" {
		n += len(measure.Figures([]measure.Metric{m})) - len(measure.Figures([]measure.Metric{{Name: m.Name, Kind: m.Kind}, {Name: m.Baseline, Kind: m.Kind}}))
	}
	return n
}

// A run is one run of a scenario.
type run struct {
	// Static after construction.
	scenario *stage.Scenario
	options  *stage.Options
	flags    *flags
	program  *program.Env

	// Owned by do.
	info  measure.Info
	env   stage.Env
	local *stack.Local
	show  *report.Progress
	began bool // the scenario was run

	interrupted *interruption
}

// unimportant flags don't change what is measured.
var unimportant = map[string]bool{
	"bin": true, "target": true, "url": true, "token-file": true, "session": true, "admin-url": true,
	"json": true, "html": true, "report-dir": true, "progress": true, "local": true, "slo": true,
}

func (r *run) parameter(name, value string) {
	if !unimportant[name] && value != "" {
		r.info.Parameters = append(r.info.Parameters, measure.Parameter{Name: name, Value: value})
	}
}

// do runs the scenario, reports, and judges.
func (r *run) do(ctx context.Context) error {
	r.info.Scenario, r.info.Summary = r.scenario.Name, r.scenario.Summary
	r.info.Command, r.info.Revision = os.Args, r.program.Revision
	r.info.Target = r.flags.target.describe()
	r.info.Machine = measure.ReadMachine()
	r.info.Start = time.Now()
	out := measure.NewCollection(r.scenario.Metrics)
	show := report.NewProgress(os.Stderr, r.flags.output.mode, out.Live)
	r.show = show
	r.env = stage.Env{
		Options: r.options, Out: out, Log: slog.New(slog.NewTextHandler(show, nil)),
		Progress: show.Phase,
		Say:      func(format string, args ...any) { fmt.Fprintf(show, format+"\n", args...) },
	}
	r.interrupted = listen(r.env.Say)
	err := r.load(ctx)
	if r.interrupted.stop() && r.local != nil {
		err = errors.Join(err, r.local.Clean()) // nothing is left now that could write there
	}
	show.Close()
	r.info.End = time.Now()
	switch {
	case ctx.Err() != nil:
		r.info.Interrupted = true
	case err != nil:
		r.info.Failure = err.Error()
	}
	return r.conclude(err)
}

// load starts what is needed, runs the scenario, and ends what was started.
func (r *run) load(ctx context.Context) (err error) {
	r.env.Progress("start", 0, 1)
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := r.open(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.closeLocal(err, outer.Err() != nil)) }()
	if r.local != nil {
		watching := make(chan struct{})
		defer func() { cancel(nil); <-watching }()
		go func() { // joined above
			defer close(watching)
			select {
			case <-r.local.Done():
				cancel(r.local.Err())
			case <-ctx.Done():
			}
		}()
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if r.wantsBaseline() {
		if r.env.Baseline, err = baseline.Start(ctx, self); err != nil {
			return err
		}
		defer r.env.Baseline.Stop()
	}
	if r.env.Generators, err = generator.NewPool(r.env.Out, "generator"); err != nil {
		return err
	}
	defer r.env.Generators.Close()
	if r.options.Simulated {
		if err := r.env.Simulate(ctx, r.flags.target.bin); err != nil {
			return err
		}
	}
	m := startMonitor(ctx, &r.env, r.scenario.TellsAgent)
	defer m.stop()
	r.began = true
	err = r.scenario.Run(ctx, &r.env)
	// A scenario that changes the network itself tells what that did.
	if r.local != nil && r.local.Shaper() != nil && r.scenario.Stack.Impair == "" {
		r.env.Out.Note(r.local.Shaper().Describe())
	}
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause // the stack has ended, whatever the scenario noticed of it
	}
	return err
}

// open starts the deployment, or takes the one that runs.
func (r *run) open(ctx context.Context) (err error) {
	t := &r.flags.target
	r.env.Target = t.running
	if !t.local {
		return nil
	}
	options := r.scenario.Stack
	options.Bin, options.Relays, options.Seed = t.bin, t.relays, r.options.Seed
	options.Hops = r.options.Hops
	options.People = max(options.People, r.options.People())
	options.Impair = cmp.Or(r.options.Impair, options.Impair)
	if r.local, err = stack.StartLocal(ctx, options); err != nil {
		return err
	}
	r.interrupted.atLast(func() { _ = r.local.Clean() }) // there is nobody left to tell
	r.env.Local, r.env.Target = r.local, r.local.Target()
	return nil
}

func (r *run) wantsBaseline() bool {
	switch {
	case r.scenario.NoTarget:
		return true
	case r.options.NoBaseline:
		return false
	}
	return hasBaseline(r.scenario)
}

// hasBaseline says whether a scenario compares any figure to a baseline's.
func hasBaseline(s *stage.Scenario) bool {
	return slices.ContainsFunc(s.Metrics, func(m measure.Metric) bool { return m.Baseline != "" })
}

// closeLocal ends the local stack. After a failure its logs stay, unless the
// failure may well come from an interruption.
func (r *run) closeLocal(failure error, interrupted bool) error {
	if r.local == nil {
		return nil
	}
	if failure != nil && !interrupted && !errors.Is(failure, context.Canceled) {
		r.local.Keep()
		r.env.Say("the logs of the programs are in %s", r.local.Logs())
	}
	return r.local.Stop()
}

// conclude writes the reports and returns what the run's verdict is.
func (r *run) conclude(failure error) error {
	if !r.began && !r.info.Interrupted { // there is nothing to report
		return program.WithStatus(failure, statusFailed)
	}
	result := r.env.Out.Result(r.info)
	result.Verdicts = measure.Judge(result, r.options.SLOs)
	switch {
	case r.flags.allowSaturated:
		takeSaturated(result, "--allow-saturated allowed it: the figures may be its own")
	case r.scenario.FindsLimit:
		takeSaturated(result, "as must be where a limit is looked for: without that the limit may be higher, not lower")
	}
	files, unwritten := r.write(result)
	options := report.TextOptions{Color: report.Color(r.program.Stdout), Files: files}
	if err := errors.Join(report.Text(r.program.Stdout, result, options), unwritten); err != nil {
		return program.WithStatus(errors.Join(failure, err), statusFailed)
	}
	if r.info.Interrupted {
		return program.WithStatus(errors.New("interrupted"), statusInterrupted)
	}
	if failure != nil {
		return program.WithStatus(failure, statusFailed)
	}
	if ok, why := result.OK(); !ok {
		status := statusFailed
		if result.OnlyByClock() {
			status = statusByClock
		}
		return program.WithStatus(errors.New(strings.Join(why, "; ")), status)
	}
	return nil
}

// takeSaturated takes a result's figures although the generator was saturated,
// and says why.
func takeSaturated(r *measure.Result, why string) {
	if r.Generator.Saturated {
		r.Generator.Saturated = false
		r.Notes = append(r.Notes, "the generator was saturated; "+why)
	}
}

// write writes the files that were asked for and returns their names.
func (r *run) write(result *measure.Result) ([]string, error) {
	o := &r.flags.output
	var files []string
	put := func(path string, write func(io.Writer, *measure.Result) error) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return err
		}
		files = append(files, path)
		return errors.Join(write(f, result), f.Close())
	}
	var err error
	if o.dir != "" {
		stem := fmt.Sprintf("%s/%s-%s", o.dir, r.scenario.Name, r.info.Start.UTC().Format("20060102-150405"))
		err = errors.Join(os.MkdirAll(o.dir, 0o755), put(stem+".json", report.JSON), put(stem+".html", report.HTML))
	}
	if o.json != "" {
		err = errors.Join(err, put(o.json, report.JSON))
	}
	if o.html != "" {
		err = errors.Join(err, put(o.html, report.HTML))
	}
	return files, err
}
