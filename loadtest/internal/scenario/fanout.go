package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

var fanout = &stage.Scenario{
	Name:    "fanout",
	Summary: "one terminal, many viewers",
	Long: `A program in a real terminal prints numbered chunks at fixed times, and every
viewer checks each byte and times each chunk from the moment it was due. Blocks
alternate with those of a bare loop that writes the same chunks to as many bare
sockets: the least that can be done.

A viewer that lacks its last bytes 10 s after the source's end has lost them.`,
	Example: `  loadtest run fanout --local --viewers 1000 --slo 'lost_bytes==0'
  loadtest run fanout --local --viewers 5000 --generators 3 --rate 10 --slo 'delivery_p99<=250ms'`,
	Metrics: append([]measure.Metric{
		stage.Received,
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a viewer", Headline: true, Baseline: "baseline_delivery"},
		{Name: "throughput", Unit: "B/s", Help: "delivered to all viewers together", Headline: true},
		{Name: "relay_cpu_per_chunk", Unit: "s", Help: "CPU time of the relays for each chunk delivered to a viewer", Headline: true, Baseline: "baseline_cpu_per_chunk", LowerIsBetter: true},
		{Name: "relay_memory_per_viewer", Unit: "B", Help: "what the relays' resident memory grew by as they came, before anything is printed", Headline: true, LowerIsBetter: true},
		{Name: "join", Kind: measure.KindLatency, Help: "from the request for a ticket to the whole screen, all coming at once"},
		{Name: "join_failures", Kind: measure.KindCounter, Help: "viewers that didn't get in", LowerIsBetter: true, MustBeZero: true},
		{Name: "resyncs", Help: "viewers moved ahead because they fell behind", LowerIsBetter: true},
	}, stage.Exactness...),
	Defaults:  stage.Options{Viewers: 200, Rate: 50, Chunk: 1024, Duration: 3 * time.Second, Warmup: time.Second, Blocks: 9, Seed: 1},
	Simulated: true,
	Run:       stage.OnStage(stage.One, func(ctx context.Context, s *stage.Stage) error { return watchBlocks(ctx, s, s.Env.Options.Viewers) }),
}

// A watching is a terminal's output and who watches it.
type watching struct {
	*stage.Stage
	group *generator.Group // of the relay's viewers
	bare  *generator.Group // of the baseline's; nil without
	total int              // viewers of each
}

// watchBlocks has all terminals watched by so many viewers each, in blocks that
// alternate with the baseline's.
func watchBlocks(ctx context.Context, s *stage.Stage, each int) error {
	w := &watching{Stage: s, total: each * len(s.Terminal)}
	if err := w.come(ctx, each); err != nil {
		return err
	}
	if err := w.warmUp(ctx); err != nil {
		return err
	}
	err := s.Env.EachBlock(ctx, "blocks",
		stage.Side{Phase: "fairlead", Groups: []*generator.Group{w.group}, Run: w.block},
		stage.Side{Phase: "baseline", Groups: []*generator.Group{w.bare}, Run: w.bareBlock})
	if err != nil {
		return err
	}
	counts, err := generator.Sum[viewers.Counts](ctx, w.group, viewers.OrderCounts)
	if err == nil {
		s.Env.Out.Value("resyncs", float64(counts.Resyncs))
	}
	return err
}

// come makes all viewers join.
func (w *watching) come(ctx context.Context, each int) (err error) {
	extra := 0
	if w.Env.Baseline != nil {
		extra = w.total
	}
	v := stage.Audience{Each: each, Rate: w.Env.Options.Rate, Extra: extra}
	if w.group, err = w.Gather(ctx, v); err != nil {
		return err
	}
	if err := w.group.Phase(ctx, "join", -1); err != nil {
		return err
	}
	if err := w.group.Begin(ctx, time.Now()); err != nil {
		return err
	}
	before, known := settledMemory(ctx, w.Env)
	if err := w.Join(ctx, w.group, w.total); err != nil {
		return err
	}
	if after, ok := settledMemory(ctx, w.Env); ok && known {
		w.Env.Out.Value("relay_memory_per_viewer", (after-before)/float64(w.total))
	}
	if w.Env.Baseline == nil {
		return nil
	}
	v.Each, v.Spec = w.total, viewers.Spec{URL: w.Env.Baseline.ViewerURL(), Prefix: "baseline_"}
	if w.bare, err = w.Gather(ctx, v); err != nil {
		return err
	}
	if err := w.bare.Phase(ctx, "baseline join", -1); err != nil {
		return err
	}
	return w.Join(ctx, w.bare, w.total)
}

// warmUp prints for a while without measuring time. Every byte is checked.
func (w *watching) warmUp(ctx context.Context) error {
	w.Env.Progress("warm-up", 0, 1)
	for _, g := range stage.Groups(w.group, w.bare) {
		if err := g.Phase(ctx, "warm-up", -1); err != nil {
			return err
		}
		if err := g.Begin(ctx, time.Now().Add(stage.Never)); err != nil {
			return err
		}
	}
	if warmup := w.Env.Options.Warmup; warmup > 0 {
		if _, err := w.watch(ctx, warmup); err != nil {
			return err
		}
		if w.bare != nil {
			if _, err := w.watchBare(ctx, warmup); err != nil {
				return err
			}
		}
	}
	if err := stage.BeginAll(ctx, w.group, w.bare); err != nil {
		return err
	}
	w.Env.Progress("warm-up", 1, 1)
	return nil
}

// watch has all terminals print for so long and returns what their viewers got.
func (w *watching) watch(ctx context.Context, lasts time.Duration) (viewers.Tally, error) {
	o := w.Env.Options
	var streams []pattern.Spec
	for range w.Terminal {
		streams = append(streams, w.Stream(o.Rate, o.Chunk, lasts))
	}
	// Orders to many terminals take time. All streams begin together.
	start := time.Now().Add(stage.Lead + time.Duration(len(streams))*5*time.Millisecond).Truncate(time.Microsecond)
	for i := range streams {
		// The chunks of different terminals are not due at the same moment.
		shift := time.Duration(float64(i) / float64(len(streams)) / o.Rate * float64(time.Second))
		streams[i].Start = start.Add(shift.Truncate(time.Microsecond))
	}
	if err := stage.Arm(ctx, w.group, viewers.Arm{Streams: streams}); err != nil {
		return viewers.Tally{}, err
	}
	for i, spec := range streams {
		if err := w.Print(ctx, i, spec); err != nil {
			return viewers.Tally{}, err
		}
	}
	return stage.Finish(ctx, w.group, stage.EndOf(streams...))
}

// block measures fairlead.
func (w *watching) block(ctx context.Context, block int) error {
	cpu := usage.CPU(w.Env.RelayPIDs()...)
	tally, err := w.watch(ctx, w.Env.Options.Duration)
	if err != nil {
		return err
	}
	w.Env.TellCost("relay_cpu_per_chunk", block, cpu, tally.Chunks)
	w.Env.Out.BlockAt("throughput", block, float64(tally.Bytes)/w.Env.Options.Duration.Seconds())
	w.Env.Complain(fmt.Sprintf("block %d: ", block+1), tally)
	return nil
}

// watchBare has the loop of the baseline print for so long.
func (w *watching) watchBare(ctx context.Context, lasts time.Duration) (viewers.Tally, error) {
	o := w.Env.Options
	// This makes as many deliveries as many terminals do: the loop sends each
	// chunk to every viewer.
	spec := w.Stream(o.Rate, o.Chunk, lasts)
	if err := stage.Arm(ctx, w.bare, viewers.Arm{Streams: []pattern.Spec{spec}}); err != nil {
		return viewers.Tally{}, err
	}
	if _, err := w.Env.Baseline.Send(ctx, spec); err != nil {
		return viewers.Tally{}, err
	}
	return stage.Finish(ctx, w.bare, stage.EndOf(spec))
}

// bareBlock measures the baseline.
func (w *watching) bareBlock(ctx context.Context, block int) error {
	cpu := usage.CPU(w.Env.Baseline.PID())
	tally, err := w.watchBare(ctx, w.Env.Options.Duration)
	if err != nil {
		return err
	}
	if tally.Clean != tally.Viewers {
		return fmt.Errorf("the baseline itself loses bytes: %s", tally.Worst)
	}
	w.Env.TellCost("baseline_cpu_per_chunk", block, cpu, tally.Chunks)
	return nil
}

// settledMemory returns the resident memory of the relays in bytes, after a
// collection where they have admin listeners; ok is false when it isn't known.
func settledMemory(ctx context.Context, e *stage.Env) (total float64, ok bool) {
	for _, r := range e.Now().Relays {
		if r.PID == 0 {
			continue
		}
		used, err := usage.Settled(ctx, r.PID, r.AdminURL)
		if err != nil {
			e.Log.Warn("the memory of a relay isn't known", "err", err)
			return 0, false
		}
		total, ok = total+float64(used.RSSBytes), true
	}
	return total, ok
}
