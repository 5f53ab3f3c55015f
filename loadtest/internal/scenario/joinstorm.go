package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

var joinStorm = &Scenario{
	Name:    "join-storm",
	Summary: "many viewers who come while a terminal prints",
	Long: `While a program in a real terminal prints, viewers arrive at fixed times, each
with a grant, a ticket and a socket, and want to see the screen. Those who were
there before must not notice. From where a newcomer was put, it must get every
byte. In the baseline's blocks as many bare sockets are opened.`,
	Example: `  loadtest run join-storm --local --viewers 500 --join-rate 250
  loadtest run join-storm --local --slo 'join_p99<=1s' --slo 'delivery_p99<=100ms'`,
	Metrics: append([]measure.Metric{
		received,
		{Name: "join", Kind: measure.KindLatency, Help: "from when a viewer was due to come to its whole screen", Headline: true, Baseline: "baseline_join"},
		{Name: "join_failures", Kind: measure.KindCounter, Help: "viewers that didn't get in", Headline: true, LowerIsBetter: true, MustBeZero: true},
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a viewer who was there before", Headline: true},
		{Name: "late_delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "the same at a newcomer"},
		{Name: "late_lost_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes behind its screen that a newcomer didn't get", LowerIsBetter: true, MustBeZero: true},
		{Name: "late_duplicate_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that a newcomer got twice", LowerIsBetter: true, MustBeZero: true},
		{Name: "late_corrupt_streams", Kind: measure.KindCounter, Help: "newcomers whose bytes are not the source's", LowerIsBetter: true, MustBeZero: true},
		{Name: "relay_cpu_per_join", Unit: "s", Help: "CPU time of the relays for each newcomer, output included", LowerIsBetter: true},
	}, exactness...),
	Defaults: Options{Viewers: 300, Rate: 20, Chunk: 1024, Duration: 3 * time.Second, Blocks: 5, Seed: 1},
	Flags: own(func(c *program.Command, own *joinOptions) {
		c.Float(&own.Rate, "join-rate", 150, "viewers that come per second; 0: all at once")
		c.Int(&own.Steady, "steady", 20, "`number` of viewers that are there all the time")
	}),
	Simulated: true,
	Prepare: func(o *Options) error {
		if n := o.Own.(*joinOptions).Steady; n < 1 {
			return fmt.Errorf("--steady %d must be more than 0", n)
		}
		return nil
	},
	Run: onStage(one, runJoinStorm),
}

type joinOptions struct {
	Rate   float64
	Steady int
}

func runJoinStorm(ctx context.Context, s *stage) (err error) {
	env, o := s.env, s.env.Options
	own := o.Own.(*joinOptions)
	j := &joining{stage: s, own: own}
	if j.steady, err = s.gather(ctx, audience{each: own.Steady, rate: o.Rate}); err != nil {
		return err
	}
	late := viewers.Spec{Prefix: "late_", Join: "join"}
	if j.late, err = s.gather(ctx, audience{each: o.Viewers, rate: o.Rate, spec: late}); err != nil {
		return err
	}
	if env.Baseline != nil {
		bare := viewers.Spec{URL: env.Baseline.ViewerURL(), Prefix: "baseline_"}
		if j.bare, err = s.gather(ctx, audience{each: o.Viewers, spec: bare}); err != nil {
			return err
		}
	}
	// The steady viewers come in the warm-up. All others come once, too: how long
	// that takes is not measured.
	if err := j.join(ctx, j.steady, own.Steady); err != nil {
		return err
	}
	for _, g := range groups(j.late, j.bare) {
		if _, err := j.comeAll(ctx, g); err != nil {
			return err
		}
		if _, err := g.Ask(ctx, viewers.OrderLeave); err != nil {
			return err
		}
	}
	if err := beginAll(ctx, j.steady, j.late, j.bare); err != nil {
		return err
	}
	return env.EachBlock(ctx, "blocks",
		side{"storm", []*generator.Group{j.steady, j.late}, j.storm},
		side{"baseline", []*generator.Group{j.bare}, j.bareStorm})
}

// joining is the scenario's state.
type joining struct {
	*stage
	own                *joinOptions
	steady, late, bare *generator.Group
}

// lasts returns how long a storm takes.
func (j *joining) lasts() time.Duration {
	if j.own.Rate <= 0 {
		return j.env.Options.Duration
	}
	return max(j.env.Options.Duration, time.Duration(float64(j.env.Options.Viewers)/j.own.Rate*float64(time.Second))+time.Second)
}

// storm makes all viewers come while the terminal prints.
func (j *joining) storm(ctx context.Context, block int) error {
	o := j.env.Options
	spec, base := j.stream(o.Rate, o.Chunk, j.lasts()), j.base()
	if err := arm(ctx, j.steady, viewers.Arm{Streams: streams(spec)}); err != nil {
		return err
	}
	if err := arm(ctx, j.late, viewers.Arm{Streams: streams(spec), Base: base, Late: true}); err != nil {
		return err
	}
	if err := j.print(ctx, 0, spec); err != nil {
		return err
	}
	if err := pause.Until(ctx, spec.Start); err != nil {
		return err
	}
	cpu := usage.CPU(j.env.relayPIDs()...)
	in, err := j.comeAll(ctx, j.late)
	if err != nil {
		return err
	}
	j.env.tellCost("relay_cpu_per_join", block, cpu, int64(in))
	for _, g := range []*generator.Group{j.steady, j.late} {
		tally, err := finish(ctx, g, endOf(spec))
		if err != nil {
			return err
		}
		j.env.complain(fmt.Sprintf("block %d: ", block+1), tally)
	}
	_, err = j.late.Ask(ctx, viewers.OrderLeave)
	return err
}

// comeAll makes a group come, and returns how many were admitted. The others
// are counted.
func (j *joining) comeAll(ctx context.Context, g *generator.Group) (int, error) {
	rate := j.own.Rate / float64(g.Size())
	joined, err := generator.Sum[viewers.Joined](ctx, g, viewers.OrderJoin, viewers.Join{
		Rate: rate, Start: time.Now(), Within: j.lasts() + joinWait, Together: j.env.Options.Viewers,
	})
	return joined.In, err
}

// bareStorm opens as many bare sockets.
func (j *joining) bareStorm(ctx context.Context, _ int) error {
	if _, err := j.comeAll(ctx, j.bare); err != nil {
		return err
	}
	_, err := j.bare.Ask(ctx, viewers.OrderLeave)
	return err
}
