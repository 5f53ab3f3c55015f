package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/deploy/e2e"
)

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options say what to measure.
type options struct {
	bin     string
	viewers int
	kills   int
	only    string
}

// A measurement is something that bench can measure.
type measurement struct {
	name string
	run  func(ctx context.Context, o options) ([]*figure, error)
}

// measurements are all there are, in the order they run.
var measurements = []measurement{
	{"echo", besideBaseline(func(ctx context.Context, stack *e2e.Stack, base *baseline, _ options) ([]*figure, error) {
		return measureEcho(ctx, stack, base)
	})},
	{"fanout", besideBaseline(func(ctx context.Context, stack *e2e.Stack, base *baseline, o options) ([]*figure, error) {
		return measureFanout(ctx, stack, base, o.viewers)
	})},
	{"rate", besideBaseline(func(ctx context.Context, stack *e2e.Stack, base *baseline, o options) ([]*figure, error) {
		return measureRate(ctx, stack, base, o.viewers)
	})},
	{"stall", besideBaseline(func(ctx context.Context, stack *e2e.Stack, base *baseline, _ options) ([]*figure, error) {
		return measureStall(ctx, stack, base)
	})},
	{"command", func(ctx context.Context, o options) ([]*figure, error) { return measureCommands(ctx, o.bin) }},
	{"redact", func(ctx context.Context, o options) ([]*figure, error) { return measureRedaction(ctx, o.bin) }},
	{"tools", func(ctx context.Context, o options) ([]*figure, error) { return measureTools(ctx, o.bin) }},
	{"changes", func(ctx context.Context, o options) ([]*figure, error) { return measureChanges(ctx, o.bin) }},
	{"memory", func(ctx context.Context, o options) ([]*figure, error) { return measureMemory(ctx, o.bin) }},
	{"restart", func(ctx context.Context, o options) ([]*figure, error) {
		return measureFailover(ctx, o.bin, restartCase, o.kills)
	}},
	{"standby", func(ctx context.Context, o options) ([]*figure, error) {
		return measureFailover(ctx, o.bin, standbyCase, o.kills)
	}},
}

func names() string {
	var all []string
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return strings.Join(all, ", ")
}

// besideBaseline gives a measurement a stack and a baseline of its own.
func besideBaseline(run func(context.Context, *e2e.Stack, *baseline, options) ([]*figure, error)) func(context.Context, options) ([]*figure, error) {
	return func(ctx context.Context, o options) ([]*figure, error) {
		stack, stop, err := startStack(o.bin)
		if err != nil {
			return nil, err
		}
		defer stop()
		base, err := startBaseline()
		if err != nil {
			return nil, err
		}
		defer base.stop()
		return run(ctx, stack, base, o)
	}
}

// startStack starts a devstack in a directory of its own.
func startStack(bin string, flags ...string) (*e2e.Stack, func(), error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "fairlead-bench-")
	if err != nil {
		return nil, nil, err
	}
	stack, err := e2e.Start(bin, dir, flags...)
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return stack, func() {
		stack.Stop()
		os.RemoveAll(dir)
	}, nil
}

// measure runs what was asked for and prints all figures.
func measure(o options) error {
	wanted := strings.Split(o.only, ",")
	var figures []*figure
	for _, m := range measurements {
		if o.only != "" && !slices.Contains(wanted, m.name) {
			continue
		}
		more, err := m.run(context.Background(), o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		for _, f := range more {
			fmt.Println(f)
		}
		figures = append(figures, more...)
	}
	if len(figures) == 0 {
		return fmt.Errorf("-only %s: choose from %s", o.only, names())
	}
	return report(figures)
}

// report fails when a bound was missed.
func report(figures []*figure) error {
	var missed []string
	for _, f := range figures {
		if !f.met(f.evaluate()) {
			missed = append(missed, f.name)
		}
	}
	if len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

// A baseline is the process that serves the baselines.
type baseline struct {
	cmd *exec.Cmd
	url string
}

// startBaseline runs this program in its other role.
func startBaseline() (*baseline, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, baselineRole)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &baseline{cmd: cmd}
	if _, err := fmt.Fscanln(out, &b.url); err != nil {
		b.stop()
		return nil, fmt.Errorf("baseline: %w", err)
	}
	return b, nil
}

func (b *baseline) stop() {
	b.cmd.Process.Kill()
	b.cmd.Wait()
}
