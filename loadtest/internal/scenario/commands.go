package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/calls"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
)

var commands = &Scenario{
	Name:    "commands",
	Summary: "signed commands: how long one takes at a rate, and how many a second",
	Long: `Commands are posted at the relay, signed by the control plane, executed by the
agent and answered. Each sends a signal that changes nothing to a terminal. First
they come at a fixed rate (--rate) and are timed from when they were due; then so
many clients post one after the other, a closed loop, for the highest rate. In
turn the same is done to a bare server that makes one record durable for each
before it answers.`,
	Example: `loadtest run commands --local --rate 50 --slo 'command_p99<50ms'
loadtest run commands --local --clients 32 --slo 'commands_rate>200'`,
	Metrics: []measure.Metric{
		{Name: "command", Kind: measure.KindLatency, Headline: true, Baseline: "direct_command", Help: "from when a command was due to its outcome"},
		{Name: "commands_rate", Unit: "1/s", Headline: true, Baseline: "direct_commands_rate", Help: "commands done a second by --clients that post one after the other"},
		{Name: "failed_calls", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "commands without the outcome ok"},
	},
	Defaults: Options{Rate: 50, Duration: 2 * time.Second, Warmup: time.Second, Blocks: 9},
	Flags: own(func(c *program.Command, own *commandsOptions) {
		c.Int(&own.clients, "clients", 16, "`number` of clients for the highest rate")
	}),
	Prepare: func(o *Options) error {
		if n := o.Own.(*commandsOptions).clients; n < 1 || n > protocol.MaxCommandsInFlight {
			return fmt.Errorf("--clients must be from 1 to %d, which an agent executes at once", protocol.MaxCommandsInFlight)
		}
		return nil
	},
	Run: onStage(one, runCommands),
}

type commandsOptions struct{ clients int }

func runCommands(ctx context.Context, s *stage) error {
	env := s.env
	near, bare, err := callers(ctx, s)
	if err != nil {
		return err
	}
	a := calls.Args{Rate: env.Options.Rate, Clients: env.Options.Own.(*commandsOptions).clients, Duration: env.Options.Duration}
	warm := a
	warm.Duration = env.Options.Warmup
	env.Progress("warm up", 0, 1)
	for _, g := range groups(bare, near) {
		if _, err := calls.Ask(ctx, g, calls.OrderCommands, warm); err != nil {
			return err
		}
		if err := g.Begin(ctx, time.Now()); err != nil {
			return err
		}
	}
	measured := func(g *generator.Group, phase, figure string) side {
		return side{phase, []*generator.Group{g}, func(ctx context.Context, block int) error {
			if _, err := calls.Ask(ctx, g, calls.OrderCommands, a); err != nil {
				return err
			}
			if err := g.Phase(ctx, phase+" flood", block); err != nil {
				return err
			}
			done, err := calls.Ask(ctx, g, calls.OrderFlood, a)
			if err != nil {
				return err
			}
			env.Out.BlockAt(figure, block, float64(done.Calls)/done.Took.Seconds())
			return nil
		}}
	}
	return env.EachBlock(ctx, "commands",
		measured(bare, "direct", "direct_commands_rate"), measured(near, "commands", "commands_rate"))
}

// callers starts a worker for the deployment, and one for the baseline (nil
// without).
func callers(ctx context.Context, s *stage) (near, bare *generator.Group, err error) {
	if near, err = callsFor(ctx, s, s.terminal[0].PTY); err != nil || s.env.Baseline == nil {
		return near, nil, err
	}
	bare, err = s.env.Generators.Start(ctx, calls.Kind, []any{calls.Spec{
		Command: s.env.Baseline.CommandURL(), Files: s.env.Baseline.FilesURL(), CA: s.env.Baseline.CA(),
		Prefix: "direct_", Seed: s.env.Options.Seed,
	}})
	return near, bare, err
}

// callsFor starts a worker for the deployment. Its commands are for a terminal.
func callsFor(ctx context.Context, s *stage, pty protocol.PTYID) (*generator.Group, error) {
	target := s.env.Target
	return s.env.Generators.Start(ctx, calls.Kind, []any{calls.Spec{
		Token: target.Owner().Token, Session: target.Session, PTY: pty, Relays: s.env.origins(), Seed: s.env.Options.Seed,
	}})
}
