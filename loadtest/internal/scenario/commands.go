package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/calls"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/protocol"
)

var commands = &stage.Scenario{
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
	Defaults: stage.Options{Rate: 50, Duration: 2 * time.Second, Warmup: time.Second, Blocks: 9},
	Flags: stage.Own(func(c *program.Command, own *commandsOptions) {
		c.Int(&own.clients, "clients", 16, "`number` of clients for the highest rate")
	}),
	Prepare: func(o *stage.Options) error {
		if n := o.Own.(*commandsOptions).clients; n < 1 || n > protocol.MaxCommandsInFlight {
			return fmt.Errorf("--clients must be from 1 to %d, which an agent executes at once", protocol.MaxCommandsInFlight)
		}
		return nil
	},
	Run: stage.OnStage(stage.One, runCommands),
}

type commandsOptions struct{ clients int }

func runCommands(ctx context.Context, s *stage.Stage) error {
	env := s.Env
	near, bare, err := callers(ctx, s)
	if err != nil {
		return err
	}
	a := calls.Args{Rate: env.Options.Rate, Clients: env.Options.Own.(*commandsOptions).clients, Duration: env.Options.Duration}
	warm := a
	warm.Duration = env.Options.Warmup
	env.Progress("warm up", 0, 1)
	for _, g := range stage.Groups(bare, near) {
		if _, err := calls.Ask(ctx, g, calls.OrderCommands, warm); err != nil {
			return err
		}
		if err := g.Begin(ctx, time.Now()); err != nil {
			return err
		}
	}
	measured := func(g *generator.Group, phase, figure string) stage.Side {
		return stage.Side{Phase: phase, Groups: []*generator.Group{g}, Run: func(ctx context.Context, block int) error {
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
func callers(ctx context.Context, s *stage.Stage) (near, bare *generator.Group, err error) {
	if near, err = callsFor(ctx, s, s.Terminal[0].PTY); err != nil || s.Env.Baseline == nil {
		return near, nil, err
	}
	bare, err = s.Env.Generators.Start(ctx, calls.Kind, []any{calls.Spec{
		Command: s.Env.Baseline.CommandURL(), Files: s.Env.Baseline.FilesURL(), CA: s.Env.Baseline.CA(),
		Prefix: "direct_", Seed: s.Env.Options.Seed,
	}})
	return near, bare, err
}

// callsFor starts a worker for the deployment. Its commands are for a terminal.
func callsFor(ctx context.Context, s *stage.Stage, pty protocol.PTYID) (*generator.Group, error) {
	target := s.Env.Target
	return s.Env.Generators.Start(ctx, calls.Kind, []any{calls.Spec{
		Token: target.Owner().Token, Session: target.Session, PTY: pty, Relays: s.Env.Origins(), Seed: s.Env.Options.Seed,
	}})
}
