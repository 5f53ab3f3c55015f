package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
)

var flood = &stage.Scenario{
	Name:    "flood",
	Summary: "one terminal that prints as fast as it is read, watched by who controls it",
	Long: `A program in a real terminal prints as much as is taken, and one viewer, who
controls the terminal and so holds it back, checks and acknowledges every byte. In
turn the same program prints as much in a terminal wired straight to a WebSocket.

Rates are from the first bytes that come to the last ones. Each block is as many
bytes as came in --duration at the rate of the block before. The program's output
costs little to make and to check, so that the rates are those of what is between.`,
	Example: `loadtest run flood --local --slo 'flood_throughput_ratio>=0.5'`,
	Metrics: []measure.Metric{
		stage.Received,
		{Name: "flood_throughput", Unit: "B/s", Headline: true, Baseline: "direct_throughput", Help: "printed by the terminal and received by its controller"},
		{Name: "agent_cpu_per_mb", Unit: "s", Headline: true, LowerIsBetter: true, Help: "CPU time of the sandbox's agent for a million bytes"},
		{Name: "relay_cpu_per_mb", Unit: "s", Headline: true, LowerIsBetter: true, Help: "CPU time of the relays for the same"},
		{Name: "direct_cpu_per_mb", Unit: "s", LowerIsBetter: true, Help: "CPU time of the baseline for the same"},
		{Name: "lost_bytes", Kind: measure.KindCounter, Unit: "B", Headline: true, LowerIsBetter: true, MustBeZero: true, Help: "printed, and not received as they were"},
		{Name: "wrong_bytes", Kind: measure.KindCounter, Unit: "B", LowerIsBetter: true, MustBeZero: true, Help: "received, and not what was printed there"},
	},
	Defaults: stage.Options{Duration: 2 * time.Second, Blocks: 9, Seed: 1},
	Run:      stage.OnStage(stage.One, runFlood),
}

const (
	// firstFlood is how many bytes warm up a side.
	firstFlood = 16 << 20
	// floodWait bounds the wait for all of a flood.
	floodWait = time.Minute
	// floodEnd is how long nothing more may come behind it.
	floodEnd = 50 * time.Millisecond
)

// A flooded is one side of the scenario: a terminal, and who hears its output.
type flooded struct {
	// Static after construction.
	stage    *stage.Stage
	terminal *printer.Terminal
	rec      *measure.Recorder
	received *measure.Counter
	figure   string           // of the rate
	costs    map[string][]int // figures of CPU time, with whose it is

	rate float64 // of the last flood

	// Owned by the viewer: used in the handler's methods, and by what Viewer.Do runs.
	checker *pattern.FloodChecker
	over    chan struct{} // closed when all has come, or can't come any more
}

func runFlood(ctx context.Context, s *stage.Stage) error {
	env := s.Env
	near := floodedBy(s, s.Terminal[0], "flood_throughput")
	near.costs = map[string][]int{"relay_cpu_per_mb": env.RelayPIDs()}
	if len(env.Target.Sandboxes) == 1 {
		near.costs["agent_cpu_per_mb"] = []int{env.Target.Sandboxes[0].PID}
	}
	all := []*flooded{near}
	if env.Baseline != nil {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		t, err := printer.Bare(ctx, s.Owner, env.Baseline.TerminalURL("exec '"+self+"' source"), s.Loop)
		if err != nil {
			return fmt.Errorf("the baseline's terminal: %w", err)
		}
		defer t.Viewer.Close()
		bare := floodedBy(s, t, "direct_throughput")
		bare.costs = map[string][]int{"direct_cpu_per_mb": {env.Baseline.PID()}}
		all = append(all, bare)
	}
	env.Progress("warm up", 0, 1)
	var sides []stage.Side
	for _, f := range all {
		if err := f.pour(ctx, -1, firstFlood); err != nil {
			return err
		}
		f.rec.Begin(time.Now())
		sides = append(sides, stage.Side{Run: f.block})
	}
	return env.EachBlock(ctx, "flood", sides...)
}

// floodedBy returns the side of a terminal.
func floodedBy(s *stage.Stage, t *printer.Terminal, figure string) *flooded {
	f := &flooded{stage: s, terminal: t, rec: measure.NewRecorder(), figure: figure}
	f.received = f.rec.Counter(stage.Received.Name)
	f.rec.Process("generator-0")
	return f
}

// block has the terminal print for about as long as a block takes.
func (f *flooded) block(ctx context.Context, block int) error {
	size := max(firstFlood, int64(f.rate*f.stage.Env.Options.Duration.Seconds()))
	var costs []func()
	for figure, pids := range f.costs {
		used := usage.CPU(pids...)
		costs = append(costs, func() { f.stage.Env.TellCost(figure, block, used, size/1e6) })
	}
	if err := f.pour(ctx, block, size); err != nil {
		return err
	}
	for _, tell := range costs {
		tell()
	}
	f.stage.Env.Out.BlockAt(f.figure, block, f.rate)
	return nil
}

// pour has the terminal print so many bytes, and counts what doesn't come of them.
func (f *flooded) pour(ctx context.Context, block int, size int64) error {
	f.stage.Streams++
	spec := pattern.Flood{Seed: f.stage.Env.Options.Seed<<16 + uint64(f.stage.Streams), Bytes: size}
	over := make(chan struct{})
	f.terminal.Viewer.Do(func() { f.checker, f.over = pattern.NewFloodChecker(spec), over })
	f.terminal.Follow(f)
	defer f.terminal.Follow(nil)
	if err := f.terminal.Order(ctx, spec.Order()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, floodWait)
	defer cancel()
	select {
	case <-over:
	case <-ctx.Done():
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return ctx.Err()
		}
	}
	select {
	case <-time.After(floodEnd):
	case <-ctx.Done():
	}
	var lost, wrong int64
	f.terminal.Viewer.Do(func() { lost, wrong, f.rate = f.checker.Lost(), f.checker.Wrong(), f.checker.Rate() })
	f.rec.Counter("lost_bytes").Add(lost)
	f.rec.Counter("wrong_bytes").Add(wrong)
	f.stage.Env.Out.Merge(f.figure, block, f.rec.Snapshot())
	if lost != 0 || wrong != 0 {
		return fmt.Errorf("of a flood of %d bytes %d didn't come as they were printed", size, lost+wrong)
	}
	return nil
}

// Output implements [client.Handler].
func (f *flooded) Output(p []byte, at time.Time) {
	f.received.Add(int64(len(p)))
	f.checker.Write(p, at)
	if f.checker.Done() || f.checker.Wrong() > 0 {
		f.end()
	}
}

// Jump implements [client.Handler]. Who holds the terminal back is never moved ahead.
func (f *flooded) Jump(j client.Jump) {
	if !j.Continues() {
		f.end()
	}
}

// Lost implements [client.Handler].
func (f *flooded) Lost(time.Time, error) {}

// end ends the wait for the rest. The viewer runs it.
func (f *flooded) end() {
	if f.over != nil {
		close(f.over)
		f.over = nil
	}
}
