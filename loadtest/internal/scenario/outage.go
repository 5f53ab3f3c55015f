package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

var outage = &stage.Scenario{
	Name:    "outage",
	Summary: "a sandbox whose network fails: UDP blocked, another address, loss",
	Long: `The real agent's way to the relay leads through a bad network. While a terminal
prints, UDP is blocked (the tunnel goes on over a WebSocket), later let through
(it climbs back to QUIC); the agent's source port changes; and for a while a tenth
of all datagrams is lost, and others are reordered and doubled. Viewers check
every byte all the time.`,
	Example: `  loadtest run outage --local
  loadtest run outage --local --lossy 60s --slo 'resume_max<=3s' --slo 'climb<=60s' --slo 'lost_bytes==0'`,
	Metrics: append([]measure.Metric{
		stage.Received,
		{Name: "resume", Unit: "s", Help: "from the moment UDP is blocked to the next output", Headline: true, LowerIsBetter: true},
		{Name: "climb", Unit: "s", Help: "from the moment UDP is let through to the tunnel's being QUIC again", Headline: true, LowerIsBetter: true},
		{Name: "rebind_gap", Unit: "s", Help: "the longest silence after the agent's source port changed", Headline: true, LowerIsBetter: true},
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "from when a chunk was due to its arrival at a viewer, in all phases"},
		{Name: "lossy_delivery", Kind: measure.KindLatency, CrossesClocks: true, Help: "the same under loss, reordering and duplication"},
		{Name: "lossy_datagrams", Help: "datagrams that were lost meanwhile"},
	}, stage.Exactness...),
	Defaults:   stage.Options{Viewers: 10, Rate: 50, Chunk: 512, Duration: 6 * time.Second, Blocks: 1, Seed: 1},
	NeedsLocal: "the network between agent and relay is made here",
	Stack:      stack.Options{Impair: "none"},
	Flags: stage.Own(func(c *program.Command, own *outageOptions) {
		c.Duration(&own.Lossy, "lossy", 10*time.Second, "`time` under loss, reordering and duplication")
	}),
	Run: stage.OnStage(stage.One, runOutage),
}

type outageOptions struct{ Lossy time.Duration }

const (
	// changeWait bounds how long a change of the carrier may take.
	changeWait = 20 * time.Second
	climbWait  = 90 * time.Second
	// shortStream is how long each stream is that is printed while waiting.
	shortStream = 3 * time.Second
	// silence is the shortest pause in the output that the source did not make.
	silence = 200 * time.Millisecond
)

// lossy is the network of the case 16.
var lossy = impair.Both(impair.Path{Delay: 5 * time.Millisecond, Loss: 0.1, Reorder: 0.05, Duplicate: 0.05})

func runOutage(ctx context.Context, s *stage.Stage) (err error) {
	env := s.Env
	u := &outing{Stage: s, shaper: env.Local.Shaper(), random: rand.New(rand.NewPCG(env.Options.Seed, 0x0074))}
	if u.group, err = s.Bring(ctx, stage.Audience{Each: env.Options.Viewers, Rate: env.Options.Rate}, ""); err != nil {
		return err
	}
	if err := env.AwaitCarrier(ctx, tunnel.CarrierQUIC, changeWait); err != nil {
		return err
	}
	return env.EachBlock(ctx, "outages", stage.Side{Run: func(ctx context.Context, block int) error {
		for _, step := range []func(context.Context, int) error{u.block, u.climb, u.rebind, u.lossy} {
			if err := step(ctx, block); err != nil {
				return err
			}
		}
		return nil
	}})
}

// outing is the scenario's state.
type outing struct {
	*stage.Stage
	shaper *stack.Shaper
	group  *generator.Group
	random *rand.Rand
}

// begin begins a phase.
func (u *outing) begin(ctx context.Context, phase string, block int) error {
	u.Env.Progress(phase, 0, 1)
	return u.group.Phase(ctx, phase, block)
}

// while prints a stream, calls do in the middle of it, and returns the longest
// silence after that, counted from the call.
func (u *outing) while(ctx context.Context, lasts time.Duration, delivery string, do func(at time.Time) error) (time.Duration, error) {
	o := u.Env.Options
	spec := u.Stream(o.Rate, o.Chunk, lasts)
	if err := stage.Arm(ctx, u.group, viewers.Arm{Streams: stage.Streams(spec), Delivery: delivery}); err != nil {
		return 0, err
	}
	gaps := &gapWatch{}
	u.Terminal[0].Follow(gaps)
	defer u.Terminal[0].Follow(nil)
	if err := u.Print(ctx, 0, spec); err != nil {
		return 0, err
	}
	if do != nil {
		at := spec.Start.Add(lasts/6 + time.Duration(u.random.Float64()*float64(lasts/3)))
		if err := pause.Until(ctx, at); err != nil {
			return 0, err
		}
		at = time.Now()
		u.Terminal[0].Viewer.Do(func() { gaps.from = at })
		if err := do(at); err != nil {
			return 0, err
		}
	}
	tally, err := stage.Finish(ctx, u.group, stage.EndOf(spec))
	if err != nil {
		return 0, err
	}
	u.Env.Complain("", tally)
	var longest time.Duration
	u.Terminal[0].Viewer.Do(func() { longest = gaps.longest })
	return longest, nil
}

// A gapWatch is a handler that measures silences.
type gapWatch struct {
	ignoring
	from    time.Time // silences that ended before it don't count
	last    time.Time
	longest time.Duration // of silences, from from
}

// Output implements [client.Handler].
func (g *gapWatch) Output(_ []byte, at time.Time) {
	if pause := at.Sub(g.last); !g.last.IsZero() && pause >= silence && !g.from.IsZero() && at.After(g.from) {
		g.longest = max(g.longest, min(pause, at.Sub(g.from)))
	}
	g.last = at
}

// block blocks UDP while the terminal prints.
func (u *outing) block(ctx context.Context, block int) error {
	if err := u.begin(ctx, "UDP blocked", block); err != nil {
		return err
	}
	gap, err := u.while(ctx, u.Env.Options.Duration, "", func(at time.Time) error {
		u.Env.Out.Event(at, "UDP blocked")
		u.shaper.UDP.Blackhole(impair.Duplex, true)
		return nil
	})
	if err != nil {
		return err
	}
	u.Env.Out.BlockAt("resume", block, gap.Seconds())
	return u.Env.AwaitCarrier(ctx, tunnel.CarrierWebSocket, changeWait)
}

// climb lets UDP through, and prints until the tunnel is QUIC again.
func (u *outing) climb(ctx context.Context, block int) error {
	if err := u.begin(ctx, "way back up", block); err != nil {
		return err
	}
	free := time.Now()
	u.Env.Out.Event(free, "UDP let through")
	u.shaper.UDP.Blackhole(impair.Duplex, false)
	up := make(chan error, 1)
	var took time.Duration // set before up has something
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // ends with watching, at the latest
		err := u.Env.AwaitCarrier(watching, tunnel.CarrierQUIC, climbWait)
		took = time.Since(free)
		up <- err
	}()
	for {
		if _, err := u.while(ctx, shortStream, "", nil); err != nil {
			return err
		}
		select {
		case err := <-up:
			if err == nil {
				u.Env.Out.BlockAt("climb", block, took.Seconds())
			}
			return err
		default:
		}
	}
}

// rebind gives the agent another source port.
func (u *outing) rebind(ctx context.Context, block int) error {
	if err := u.begin(ctx, "another address", block); err != nil {
		return err
	}
	gap, err := u.while(ctx, u.Env.Options.Duration, "", func(at time.Time) error {
		u.Env.Out.Event(at, "source port changed")
		n, err := u.shaper.UDP.Rebind()
		if err == nil && n == 0 {
			err = errors.New("no tunnel goes through the shaper")
		}
		return err
	})
	if err == nil {
		u.Env.Out.BlockAt("rebind_gap", block, gap.Seconds())
	}
	return err
}

// lossy makes the network lose, reorder and double datagrams.
func (u *outing) lossy(ctx context.Context, block int) error {
	if err := u.begin(ctx, "loss", block); err != nil {
		return err
	}
	before := u.shaper.UDP.Profile()
	u.Env.Out.Event(time.Now(), "loss, reordering and duplication begin")
	if err := u.shaper.SetProfile(lossy); err != nil {
		return err
	}
	end := time.Now().Add(u.Env.Options.Own.(*outageOptions).Lossy)
	for time.Now().Before(end) {
		if _, err := u.while(ctx, shortStream, "lossy_delivery", nil); err != nil {
			return err
		}
	}
	u.Env.Out.Event(time.Now(), "they end")
	lost := u.shaper.Lost()
	if lost == 0 {
		return errors.New("not one datagram was lost under loss: the tunnel went elsewhere")
	}
	u.Env.Out.BlockAt("lossy_datagrams", block, float64(lost))
	u.Env.Out.Note(fmt.Sprintf("under loss, %s", u.shaper.Describe()))
	return u.shaper.SetProfile(before)
}
