package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

var slowViewers = &stage.Scenario{
	Name:    "slow-viewers",
	Summary: "viewers on slow lines beside fast ones",
	Long: `A terminal prints faster than some of its viewers can read. Those skip ahead and
are told so; the others must get every byte, as fast as in the blocks in which the
slow ones are away.

A byte that a slow viewer was not told it would miss is lost like any other. It
hears that it was moved ahead when it has read what is on its way to it, up to
256 KiB: a block (--duration) must last longer than that takes at --slow-rate.`,
	Example: `  loadtest run slow-viewers --local --viewers 100 --slow 50 --slow-rate 16384 --duration 30s
  loadtest run slow-viewers --local --slo 'delivery_p99_ratio<=1.2' --slo 'slow_lost_bytes==0'`,
	Metrics: append([]measure.Metric{
		stage.Received,
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a fast viewer, slow ones beside", Headline: true, Baseline: "alone_delivery"},
		{Name: "alone_delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "the same without slow viewers"},
		{Name: "slow_lost_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that a slow viewer missed and wasn't told of", Headline: true, LowerIsBetter: true, MustBeZero: true},
		{Name: "slow_duplicate_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that a slow viewer got twice", LowerIsBetter: true, MustBeZero: true},
		{Name: "slow_skipped_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that slow viewers were told they would miss"},
		{Name: "slow_resyncs", Help: "times that a slow viewer was moved ahead"},
		{Name: "slow_behind", Kind: measure.KindLatency, CrossesClocks: true, Help: "how old a chunk is when a slow viewer gets it: from when it was due"},
		{Name: "fast_resyncs", Help: "times that a fast viewer was moved ahead", LowerIsBetter: true, MustBeZero: true},
		{Name: "relay_memory_growth", Unit: "B", Help: "what the relays' resident memory grew by while slow viewers were there", LowerIsBetter: true},
	}, stage.Exactness...),
	Defaults: stage.Options{Viewers: 50, Rate: 200, Chunk: 4096, Duration: 5 * time.Second, Warmup: time.Second, Blocks: 5, Seed: 1},
	Flags: stage.Own(func(c *program.Command, own *slowOptions) {
		c.Int(&own.Slow, "slow", 20, "`number` of slow viewers")
		c.Int(&own.Rate, "slow-rate", 128<<10, "`bytes` per second that each of them reads")
	}),
	Prepare: func(o *stage.Options) error {
		if own := o.Own.(*slowOptions); own.Slow < 1 || own.Rate < 1 {
			return fmt.Errorf("--slow %d and --slow-rate %d must be more than 0", own.Slow, own.Rate)
		}
		return nil
	},
	Run: stage.OnStage(stage.One, runSlowViewers),
}

type slowOptions struct{ Slow, Rate int }

// slowReceive is the kernel's receive buffer of a slow viewer, in bytes. A
// larger one would hide for megabytes that the viewer reads slowly.
const slowReceive = 4 << 10

func runSlowViewers(ctx context.Context, s *stage.Stage) (err error) {
	env, o := s.Env, s.Env.Options
	own := o.Own.(*slowOptions)
	m := &mixed{Stage: s, own: own}
	if m.fast, err = s.Gather(ctx, stage.Audience{Each: o.Viewers, Rate: o.Rate}); err != nil {
		return err
	}
	slow := viewers.Spec{Slow: true, Rate: own.Rate, Receive: slowReceive, Prefix: "slow_"}
	if m.slow, err = s.Gather(ctx, stage.Audience{Each: own.Slow, Spec: slow}); err != nil {
		return err
	}
	if err := s.Join(ctx, m.fast, o.Viewers); err != nil {
		return err
	}
	if err := m.watch(ctx, o.Warmup, "alone_", m.fast); err != nil {
		return err
	}
	if err := stage.BeginAll(ctx, m.fast, m.slow); err != nil {
		return err
	}
	before := usage.Memory(env.RelayPIDs()...)
	err = env.EachBlock(ctx, "blocks",
		stage.Side{Phase: "alone", Groups: []*generator.Group{m.fast}, Run: m.alone},
		stage.Side{Phase: "beside slow ones", Groups: []*generator.Group{m.fast, m.slow}, Run: m.beside})
	if err != nil {
		return err
	}
	if after := usage.Memory(env.RelayPIDs()...); before > 0 && after > 0 {
		env.Out.Value("relay_memory_growth", after-before)
	}
	counts, err := generator.Sum[viewers.Counts](ctx, m.fast, viewers.OrderCounts)
	env.Out.Value("fast_resyncs", float64(counts.Resyncs))
	env.Out.Value("slow_resyncs", float64(m.resyncs))
	if m.resyncs == 0 {
		env.Out.Note("no slow viewer fell so far behind that it was moved ahead: --rate or --duration is too low, or --slow-rate too high, to show anything")
	}
	return err
}

// mixed is the scenario's state.
type mixed struct {
	*stage.Stage
	own        *slowOptions
	fast, slow *generator.Group
	resyncs    int // of slow viewers
}

// alone is a block without slow viewers.
func (m *mixed) alone(ctx context.Context, _ int) error {
	return m.watch(ctx, m.Env.Options.Duration, "alone_", m.fast)
}

// beside is a block with slow viewers.
func (m *mixed) beside(ctx context.Context, _ int) error {
	if err := m.Join(ctx, m.slow, m.own.Slow); err != nil {
		return err
	}
	if err := m.watch(ctx, m.Env.Options.Duration, "", m.fast, m.slow); err != nil {
		return err
	}
	counts, err := generator.Sum[viewers.Counts](ctx, m.slow, viewers.OrderCounts)
	if err != nil {
		return err
	}
	m.resyncs += counts.Resyncs
	_, err = m.slow.Ask(ctx, viewers.OrderLeave)
	return err
}

// watch prints a stream of that length, which all groups check. The viewers of
// the first one must get all of it.
func (m *mixed) watch(ctx context.Context, lasts time.Duration, prefix string, groups ...*generator.Group) error {
	o := m.Env.Options
	spec := m.Stream(o.Rate, o.Chunk, lasts)
	for i, g := range groups {
		a := viewers.Arm{Streams: stage.Streams(spec), Delivery: prefix + "delivery"}
		if i > 0 {
			a.Delivery = "slow_behind"
		}
		if err := stage.Arm(ctx, g, a); err != nil {
			return err
		}
	}
	if err := m.Print(ctx, 0, spec); err != nil {
		return err
	}
	tally, err := stage.Finish(ctx, groups[0], stage.EndOf(spec))
	if err != nil {
		return err
	}
	m.Env.Complain("fast: ", tally)
	for _, g := range groups[1:] {
		// Slow viewers are judged by what they have got so far.
		if _, err := stage.FinishBy(ctx, g, time.Now()); err != nil {
			return err
		}
	}
	return nil
}
