package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

var joinStorm = &stage.Scenario{
	Name:    "join-storm",
	Summary: "many viewers who come while a terminal prints",
	Long: `While a program in a real terminal prints, viewers arrive at fixed times, each
with a grant, a ticket and a socket, and want to see the screen. Those who were
there before must not notice. From where a newcomer was put, it must get every
byte. In the baseline's blocks as many bare sockets are opened.

With --join-rate 0 the next one comes as soon as one of those who come together
is in, and the time from the first request to the last whole screen is told. In
each block a fifth of them come by themselves, too: that it takes as long for
each thousand is linearity 1. A newcomer is timed from its request for a ticket:
who waits for its turn hasn't asked. The program then prints at most 10,000
chunks a second for all viewers together, since who reads more has no time to
join. The generators are on the same processors: what they use is told.`,
	Example: `  loadtest run join-storm --local --viewers 500 --join-rate 250
  loadtest run join-storm --local --viewers 5000 --join-rate 0 --slo 'join_all<=2s' --slo 'join_p99<=500ms'
  loadtest run join-storm --local --slo 'join_p99<=1s' --slo 'delivery_p99<=100ms'`,
	Metrics: append([]measure.Metric{
		stage.Received,
		{Name: "join", Kind: measure.KindLatency, Help: "from when a viewer was due to come to its whole screen", Headline: true, Baseline: "baseline_join"},
		{Name: "few_join", Kind: measure.KindLatency, Help: "the same when a fifth of them come by themselves"},
		{Name: "join_failures", Kind: measure.KindCounter, Help: "viewers that didn't get in", Headline: true, LowerIsBetter: true, MustBeZero: true},
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a viewer who was there before", Headline: true},
		{Name: "late_delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "the same at a newcomer"},
		{Name: "late_lost_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes behind its screen that a newcomer didn't get", LowerIsBetter: true, MustBeZero: true},
		{Name: "late_duplicate_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that a newcomer got twice", LowerIsBetter: true, MustBeZero: true},
		{Name: "late_corrupt_streams", Kind: measure.KindCounter, Help: "newcomers whose bytes are not the source's", LowerIsBetter: true, MustBeZero: true},
		{Name: "join_all", Unit: "s", Help: "from the first request to the last whole screen, for each 1,000 who come as fast as they can", Headline: true, Baseline: "baseline_join_all", LowerIsBetter: true},
		{Name: "linearity", Help: "that time beside the one when a fifth of them come", Headline: true, LowerIsBetter: true},
		{Name: "relay_cpu_per_join", Unit: "s", Help: "CPU time of the relays for each newcomer, output included", LowerIsBetter: true},
		{Name: "agent_cpu_per_join", Unit: "s", Help: "the same of the sandbox's agent", LowerIsBetter: true},
		{Name: "control_cpu_per_join", Unit: "s", Help: "the same of the control plane, which is asked for grants", LowerIsBetter: true},
		{Name: "generator_cpu_per_join", Unit: "s", Help: "the same of the generators: what isn't fairlead's", LowerIsBetter: true},
	}, stage.Exactness...),
	Defaults: stage.Options{Viewers: 300, Rate: 20, Chunk: 1024, Duration: 3 * time.Second, Blocks: 5, Seed: 1},
	Flags: stage.Own(func(c *program.Command, own *joinOptions) {
		c.Float(&own.Rate, "join-rate", 150, "viewers that come per second; 0: as fast as they can")
		c.Int(&own.Together, "together", 64, "`number` of viewers that come at the same time with --join-rate 0")
		c.Int(&own.Steady, "steady", 20, "`number` of viewers that are there all the time")
	}),
	Simulated: true,
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*joinOptions)
		if own.Steady < 1 {
			return fmt.Errorf("--steady %d must be more than 0", own.Steady)
		}
		if own.Together < 1 {
			return fmt.Errorf("--together %d must be more than 0", own.Together)
		}
		if own.Rate <= 0 {
			o.Rate = min(o.Rate, mostRead/float64(max(1, o.Viewers)))
		}
		return nil
	},
	Run: stage.OnStage(stage.One, runJoinStorm),
}

const (
	// mostRead bounds the chunks per second that all viewers together read while
	// others come as fast as they can.
	mostRead = 10_000
	// few is the part of the viewers that comes by itself.
	few = 0.2
)

type joinOptions struct {
	Rate     float64
	Together int
	Steady   int
}

func runJoinStorm(ctx context.Context, s *stage.Stage) (err error) {
	env, o := s.Env, s.Env.Options
	own := o.Own.(*joinOptions)
	j := &joining{Stage: s, own: own, took: map[float64]map[int]float64{few: {}, 1: {}}}
	if j.steady, err = s.Gather(ctx, stage.Audience{Each: own.Steady, Rate: o.Rate}); err != nil {
		return err
	}
	late := viewers.Spec{Prefix: "late_", Join: "join"}
	if j.late, err = s.Gather(ctx, stage.Audience{Each: o.Viewers, Rate: o.Rate, Spec: late}); err != nil {
		return err
	}
	if env.Baseline != nil {
		bare := viewers.Spec{URL: env.Baseline.ViewerURL(), Prefix: "baseline_"}
		if j.bare, err = s.Gather(ctx, stage.Audience{Each: o.Viewers, Spec: bare}); err != nil {
			return err
		}
	}
	// The steady viewers come in the warm-up. All others come once, too: how long
	// that takes is not measured.
	if err := j.Join(ctx, j.steady, own.Steady); err != nil {
		return err
	}
	for _, g := range stage.Groups(j.late, j.bare) {
		if _, _, err := j.come(ctx, g, 1); err != nil {
			return err
		}
		if _, err := g.Ask(ctx, viewers.OrderLeave); err != nil {
			return err
		}
	}
	if err := stage.BeginAll(ctx, j.steady, j.late, j.bare); err != nil {
		return err
	}
	sides := []stage.Side{
		{Phase: "storm", Groups: []*generator.Group{j.steady, j.late}, Run: func(ctx context.Context, block int) error { return j.storm(ctx, block, 1) }},
		{Phase: "baseline", Groups: []*generator.Group{j.bare}, Run: j.bareStorm},
	}
	if own.Rate <= 0 {
		sides = append(sides, stage.Side{Phase: "few", Groups: []*generator.Group{j.steady, j.late}, Run: func(ctx context.Context, block int) error { return j.storm(ctx, block, few) }})
	}
	return env.EachBlock(ctx, "blocks", sides...)
}

// joining is the scenario's state.
type joining struct {
	*stage.Stage
	own                *joinOptions
	steady, late, bare *generator.Group

	took map[float64]map[int]float64 // seconds for each 1,000 viewers, by their part and block
}

// lasts returns how long a storm takes.
func (j *joining) lasts() time.Duration {
	if j.own.Rate <= 0 {
		return j.Env.Options.Duration
	}
	return max(j.Env.Options.Duration, time.Duration(float64(j.Env.Options.Viewers)/j.own.Rate*float64(time.Second))+time.Second)
}

// storm makes a part of the viewers come while the terminal prints.
func (j *joining) storm(ctx context.Context, block int, part float64) error {
	o := j.Env.Options
	spec, base := j.Stream(o.Rate, o.Chunk, j.lasts()), j.Base()
	if err := stage.Arm(ctx, j.steady, viewers.Arm{Streams: stage.Streams(spec)}); err != nil {
		return err
	}
	if err := stage.Arm(ctx, j.late, viewers.Arm{Streams: stage.Streams(spec), Base: base, Late: true}); err != nil {
		return err
	}
	if err := j.Print(ctx, 0, spec); err != nil {
		return err
	}
	if err := pause.Until(ctx, spec.Start); err != nil {
		return err
	}
	told := j.costs()
	in, took, err := j.come(ctx, j.late, part)
	if err != nil {
		return err
	}
	if part == 1 {
		told(block, in)
	}
	j.tellTime(block, part, in, took)
	for _, g := range []*generator.Group{j.steady, j.late} {
		tally, err := stage.Finish(ctx, g, stage.EndOf(spec))
		if err != nil {
			return err
		}
		j.Env.Complain(fmt.Sprintf("block %d: ", block+1), tally)
	}
	_, err = j.late.Ask(ctx, viewers.OrderLeave)
	return err
}

// costs begins to measure what programs use, and returns how to record it.
func (j *joining) costs() (told func(block, in int)) {
	used := map[string]func() (time.Duration, bool){
		"relay_cpu_per_join":     usage.CPU(j.Env.RelayPIDs()...),
		"agent_cpu_per_join":     usage.CPU(j.Env.Now().SandboxPID()),
		"control_cpu_per_join":   usage.CPU(j.Env.Now().ControlPlane.PID),
		"generator_cpu_per_join": usage.CPU(slices.Collect(maps.Values(j.Env.Generators.PIDs()))...),
	}
	return func(block, in int) {
		for figure, cpu := range used {
			j.Env.TellCost(figure, block, cpu, int64(in))
		}
	}
}

// tellTime records how long it took until all were in, and how that grows with
// their number.
func (j *joining) tellTime(block int, part float64, in int, took time.Duration) {
	if j.own.Rate > 0 || in == 0 {
		return
	}
	each := took.Seconds() * 1000 / float64(in)
	if j.took[part][block] = each; part == 1 {
		j.Env.Out.BlockAt("join_all", block, each)
	}
	all, some := j.took[1][block], j.took[few][block]
	if all > 0 && some > 0 {
		j.Env.Out.BlockAt("linearity", block, all/some)
	}
}

// come makes a part of a group come. It returns how many were admitted, and how
// long it took until the last of them was there. The others are counted.
func (j *joining) come(ctx context.Context, g *generator.Group, part float64) (in int, took time.Duration, err error) {
	n, as := float64(g.Size()), ""
	if part < 1 {
		as = "few_join"
	}
	began := time.Now()
	joined, err := generator.Sum[viewers.Joined](ctx, g, viewers.OrderJoin, viewers.Join{
		Rate: j.own.Rate / n, Start: began, Within: j.lasts() + stage.JoinWait, Part: part,
		Together: j.together(g.Size()), As: as,
	})
	return joined.In, joined.Last.Sub(began), err
}

// together returns how many viewers of each process come at the same time.
func (j *joining) together(processes int) int {
	if j.own.Rate > 0 {
		return j.Env.Options.Viewers
	}
	return max(1, j.own.Together/processes)
}

// bareStorm opens as many bare sockets.
func (j *joining) bareStorm(ctx context.Context, block int) error {
	in, took, err := j.come(ctx, j.bare, 1)
	if err != nil {
		return err
	}
	if j.own.Rate <= 0 && in > 0 {
		j.Env.Out.BlockAt("baseline_join_all", block, took.Seconds()*1000/float64(in))
	}
	_, err = j.bare.Ask(ctx, viewers.OrderLeave)
	return err
}
