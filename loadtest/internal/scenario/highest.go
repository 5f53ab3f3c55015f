package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/peer"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
)

var highestRate = &stage.Scenario{
	Name:    "highest-rate",
	Summary: "one terminal, many viewers: the most chunks a second that come in time",
	Long: `A program in a real terminal prints numbered chunks at a fixed rate, to which all
viewers must get each byte, 99 % of the chunks within --within of when they were
due, and none may be moved ahead. What holds is tried 15 % faster, what doesn't
(twice) as much slower, until the highest rate is found; --rate is where the
search begins, and each block begins where the one before it ended. In turn the same is found
for a bare loop that writes each chunk to as many bare sockets, and with --peer for
a Centrifugo to which the same chunks are published.

So that the generators aren't what is too slow, viewers compare each byte, but take
no SHA-256, and look at their sockets every --within/20 only: that much of a
delivery's time may be theirs, on every side.

Viewers that are moved ahead when a rate was too high are no fault; bytes that
nobody said would be left out are.`,
	Example: `loadtest run highest-rate --local --viewers 1000 --slo 'highest_rate_ratio>=3'
loadtest run highest-rate --local --within 50ms --duration 3s
loadtest/peers/centrifugo.sh bin/loadtest run highest-rate --local --viewers 100`,
	Metrics: []measure.Metric{
		stage.Received,
		{Name: "highest_rate", Unit: "chunks/s", Headline: true, Baseline: "baseline_highest_rate", Help: "printed by the terminal, while every viewer gets each of them in time"},
		{Name: "peer_highest_rate", Unit: "chunks/s", Headline: true, Help: "the same of Centrifugo"},
		{Name: "highest_rate_peer_ratio", Headline: true, Help: "highest_rate of each block divided by peer_highest_rate"},
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a viewer, at all rates that were tried"},
		{Name: "baseline_delivery", Kind: measure.KindLatency, Help: "the same of the baseline"},
		{Name: "peer_delivery", Kind: measure.KindLatency, Help: "the same of the peer"},
		{Name: "lost_bytes", Kind: measure.KindCounter, Unit: "B", Headline: true, LowerIsBetter: true, MustBeZero: true, Help: "bytes that a viewer didn't get and wasn't told of"},
		{Name: "duplicate_bytes", Kind: measure.KindCounter, Unit: "B", LowerIsBetter: true, MustBeZero: true, Help: "bytes that a viewer got twice"},
		{Name: "skipped_bytes", Kind: measure.KindCounter, Unit: "B", Help: "bytes that viewers were told they would miss, at rates that were too high"},
	},
	Defaults: stage.Options{Viewers: 200, Rate: 40, Chunk: 1024, Duration: 1500 * time.Millisecond, Blocks: 9, Seed: 1},
	Flags: stage.Own(func(c *program.Command, own *highestOptions) {
		c.Duration(&own.Within, "within", 100*time.Millisecond, "the 99th percentile of delivery up to which a rate counts")
		declarePeer(c, &own.peer, peer.Centrifugo)
	}),
	Prepare: func(o *stage.Options) error {
		if o.Own.(*highestOptions).Within <= 0 {
			return errors.New("--within must be more than 0")
		}
		return o.Own.(*highestOptions).peer.load()
	},
	FindsLimit: true,
	Run:        stage.OnStage(stage.One, runHighestRate),
}

type highestOptions struct {
	Within time.Duration
	peer   peerOption
}

const (
	// rung is the ratio of two rates that are tried one after the other.
	rung = 1.15
	// hopeless is how many times later than in time the last chunk may come: a rate
	// at which it comes still later isn't looked at to its end.
	hopeless = 10
	// The search stays between these rates, in chunks a second.
	lowestRate, mostRate = 1.0, 1e5
)

// A climber finds the highest rate of one side.
type climber struct {
	group  *generator.Group
	prefix string        // of what its viewers record
	within time.Duration // the 99th percentile up to which a rate counts
	// send has the source of its viewers print; it returns when the order is
	// given, or carried out.
	send func(context.Context, pattern.Spec) error
	// settle waits until the source has printed all.
	settle func(context.Context) error
	rate   float64 // where the next block begins
}

// climbing is the scenario's state.
type climbing struct {
	*stage.Stage
	own   *highestOptions
	tried int // rates so far, of all sides
}

func runHighestRate(ctx context.Context, s *stage.Stage) error {
	env := s.Env
	c := &climbing{Stage: s, own: env.Options.Own.(*highestOptions)}
	if err := c.tellClock(); err != nil {
		return err
	}
	climbers, err := c.come(ctx)
	if err != nil {
		return err
	}
	// The rate at which the first block begins is found before anything is
	// recorded.
	var sides []stage.Side
	for _, who := range climbers {
		if who.rate, err = near(who.rate, c.twice(ctx, who)); err != nil {
			return err
		}
		sides = append(sides, stage.Side{Run: func(ctx context.Context, block int) error {
			rate, err := c.climb(ctx, who)
			if err == nil {
				env.Out.BlockAt(who.prefix+"highest_rate", block, rate)
			}
			return err
		}})
	}
	return env.EachBlock(ctx, "blocks", stage.Side{Run: func(ctx context.Context, block int) error {
		if err := stage.InTurn(ctx, block, sides...); err != nil {
			return err
		}
		besidePeer(env, "highest_rate", block)
		return nil
	}})
}

// tellClock says what the error of the clocks makes of --within: only what is in
// time however far they are apart counts.
func (c *climbing) tellClock() error {
	switch apart := c.Clock.Error(); {
	case apart >= c.own.Within:
		return fmt.Errorf("the source's clock and ours are known to agree within ± %v only: whether chunks come within %v (--within) can't be told from here", apart, c.own.Within)
	case apart > 0:
		c.Env.Out.Note(fmt.Sprintf("the clocks may be %v apart, so only rates count at which chunks come within %v: the highest rate may be higher, not lower", apart, c.own.Within-apart))
	}
	return nil
}

// looks is how often viewers look at their sockets within the time in which a chunk
// must come.
const looks = 20

// come makes all viewers join, on all sides.
func (c *climbing) come(ctx context.Context) ([]*climber, error) {
	o, baseline := c.Env.Options, c.Env.Baseline
	climbers := []*climber{{
		rate: o.Rate, within: c.own.Within - c.Clock.Error(),
		send: func(ctx context.Context, spec pattern.Spec) error { return c.Print(ctx, 0, spec) },
		settle: func(ctx context.Context) error {
			_, err := c.Terminal[0].Ask(ctx, "lag", "lag ") // obeyed after what is under way
			return err
		},
	}}
	// Slow viewers may be moved ahead.
	quick := viewers.Spec{Slow: true, NoSum: true, Gather: c.own.Within / looks}
	specs := []viewers.Spec{quick}
	if baseline != nil {
		spec := quick
		spec.URL, spec.Prefix = baseline.ViewerURL(), "baseline_"
		specs = append(specs, spec)
		climbers = append(climbers, &climber{
			rate: o.Rate, prefix: spec.Prefix, within: c.own.Within,
			send: func(ctx context.Context, spec pattern.Spec) error {
				_, err := baseline.Send(ctx, spec)
				return err
			},
			settle: func(context.Context) error { return nil },
		})
	}
	if at := c.own.peer.Peer; at != nil {
		if err := at.Await(ctx); err != nil {
			return nil, err
		}
		spec := quick
		spec.URL, spec.Prefix, spec.Peer = at.ViewerURL(), "peer_", at.Name
		specs = append(specs, spec)
		climbers = append(climbers, &climber{
			rate: o.Rate, prefix: spec.Prefix, within: c.own.Within, send: at.Publish,
			// It throws out who is too slow; they come back.
			settle: func(ctx context.Context) error { return at.AwaitSubscribers(ctx, o.Viewers) },
		})
	}
	extra := (len(specs) - 1) * o.Viewers
	for i, who := range climbers {
		var err error
		if who.group, err = c.Gather(ctx, stage.Audience{Each: o.Viewers, Spec: specs[i], Rate: o.Rate, Extra: extra}); err != nil {
			return nil, err
		}
		if err := c.Join(ctx, who.group, o.Viewers); err != nil {
			return nil, err
		}
		if who.prefix == "peer_" { // joined means that the socket is open
			if err := who.settle(ctx); err != nil {
				return nil, err
			}
		}
		if err := who.group.Begin(ctx, time.Now()); err != nil {
			return nil, err
		}
	}
	return climbers, nil
}

// climb finds the highest rate of a side, from where it ended the last time.
func (c *climbing) climb(ctx context.Context, who *climber) (float64, error) {
	rate, err := highest(who.rate, c.twice(ctx, who))
	who.rate = max(rate, lowestRate)
	return rate, err
}

// twice returns a trial of rates for a side, in which each has a second chance: the
// machine may have been elsewhere.
func (c *climbing) twice(ctx context.Context, who *climber) func(rate float64) (bool, error) {
	return func(rate float64) (bool, error) {
		ok, err := c.holds(ctx, who, rate)
		if err == nil && !ok {
			return c.holds(ctx, who, rate)
		}
		return ok, err
	}
}

// near searches for a rate that holds when twice of it doesn't, or for the lowest.
func near(rate float64, holds func(rate float64) (bool, error)) (float64, error) {
	ok, err := holds(rate)
	if ok {
		for err == nil && 2*rate <= mostRate {
			if ok, err = holds(2 * rate); !ok {
				break
			}
			rate *= 2
		}
		return rate, err
	}
	for !ok && err == nil && rate > lowestRate {
		rate = max(rate/2, lowestRate)
		ok, err = holds(rate)
	}
	return rate, err
}

// highest searches for the highest rate that holds, in steps of a rung; 0 when
// none does.
func highest(from float64, holds func(rate float64) (bool, error)) (float64, error) {
	ok, err := holds(from)
	if err != nil {
		return 0, err
	}
	for rate := from; ok; rate *= rung {
		if rate*rung > mostRate {
			return rate, nil
		}
		if ok, err = holds(rate * rung); err != nil || !ok {
			return rate, err
		}
	}
	for rate := from / rung; rate >= lowestRate; rate /= rung {
		if ok, err = holds(rate); err != nil || ok {
			return rate, err
		}
	}
	return 0, nil
}

// holds reports whether all viewers get all chunks in time at a rate.
func (c *climbing) holds(ctx context.Context, who *climber, rate float64) (bool, error) {
	o := c.Env.Options
	name := who.prefix + "delivery"
	c.tried++ // the block of the latency: each rate has its own
	if err := who.group.Phase(ctx, fmt.Sprintf("%shighest rate", who.prefix), c.tried); err != nil {
		return false, err
	}
	spec := c.Stream(rate, o.Chunk, o.Duration)
	if err := stage.Arm(ctx, who.group, viewers.Arm{Streams: stage.Streams(spec), Delivery: name}); err != nil {
		return false, err
	}
	if err := who.send(ctx, spec); err != nil {
		return false, err
	}
	tally, err := stage.FinishBy(ctx, who.group, stage.EndOf(spec).Add(hopeless*who.within))
	if err != nil {
		return false, err
	}
	if err := who.settle(ctx); err != nil {
		return false, err
	}
	whole := tally.Chunks == int64(o.Viewers)*int64(spec.Chunks)
	p99 := c.Env.Out.Blocks(name + "_p99")
	return whole && len(p99) > 0 && p99[len(p99)-1] <= who.within.Seconds(), nil
}
