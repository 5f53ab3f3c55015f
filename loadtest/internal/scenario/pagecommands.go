package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/owntabs"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

var pageCommands = &stage.Scenario{
	Name:    "page-commands",
	Summary: "signed commands in tabs of a person's own browser: awake, asleep, many at once",
	Long: `A headless Chromium with the extension has the console open, and shares tabs with
the session. Commands that evaluate 1+1 there are posted at the relay, signed,
carried to the console's page and by it to the extension, which runs them and calls
back. They come at a fixed rate (--rate) to all tabs in turn, and are timed from
when they were due to their outcome: page_command while the console shows a
terminal, watched_command while it lists what ran.

In turn the extension does the least that could be done: it attaches to a tab, has
1+1 evaluated and detaches, of its own accord (direct_call). page_command_extra_p50
is what all the rest adds.

For asleep_command the extension's worker is ended by DevTools
(ServiceWorker.stopAllWorkers), as Chrome itself ends one that had nothing to do for
half a minute. The command has to start another.

In burst, --burst commands are posted at once to all tabs. Each command pushes a
number into a list in its tab's page. Those lists are compared with what was sent,
in the order in which the relay carried it.`,
	Example: `loadtest run page-commands --local --slo 'page_command_extra_p50<=25ms' --slo 'asleep_extra_p50<=400ms'
loadtest run page-commands --local --tabs 10 --burst 100 --slo 'burst<=3s'`,
	Metrics: []measure.Metric{
		{Name: "page_command", Kind: measure.KindLatency, Headline: true, Help: "from when a command was due to its outcome, at an extension whose worker is awake"},
		{Name: "direct_call", Kind: measure.KindLatency, Headline: true, Help: "attach, call and detach by the extension itself"},
		{Name: "page_command_extra_p50", Unit: "s", Headline: true, LowerIsBetter: true, Help: "page_command_p50 less direct_call_p50 of the same block"},
		{Name: "watched_command", Kind: measure.KindLatency, Help: "page_command while the console lists what ran"},
		{Name: "asleep_command", Kind: measure.KindLatency, Headline: true, Help: "from the post of a command to its outcome, at an extension whose worker has ended"},
		{Name: "asleep_extra_p50", Unit: "s", Headline: true, LowerIsBetter: true, Help: "asleep_command_p50 less direct_call_p50 of the same block"},
		{Name: "burst", Unit: "s", Headline: true, LowerIsBetter: true, Help: "from the post of --burst commands at once to the last one's outcome"},
		{Name: "lost_commands", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "commands that didn't run in their tab"},
		{Name: "failed_calls", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "commands without the outcome ok"},
		{Name: "doubled_commands", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "commands that ran more than once"},
		{Name: "disordered_commands", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "commands that ran in a tab before one that came first"},
	},
	Defaults: stage.Options{Rate: 10, Duration: 2 * time.Second, Warmup: time.Second, Blocks: 9},
	Flags: stage.Own(func(c *program.Command, own *pageOptions) {
		c.Int(&own.tabs, "tabs", 10, "`number` of tabs that are shared")
		c.Int(&own.burst, "burst", 100, "`number` of commands at once")
		c.Int(&own.asleep, "asleep", 3, "`number` of commands to a worker that has ended, in each block")
	}),
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*pageOptions)
		if own.tabs < 1 || own.tabs > owntabs.MaxTabs || own.asleep < 1 || own.burst < 1 || own.burst > owntabs.MaxBurst {
			return fmt.Errorf("--tabs must be from 1 to %d, --burst from 1 to %d, --asleep at least 1", owntabs.MaxTabs, owntabs.MaxBurst)
		}
		return nil
	},
	Run: runPageCommands,
}

type pageOptions struct{ tabs, burst, asleep int }

func runPageCommands(ctx context.Context, env *stage.Env) error {
	extension, own := env.Target.Extension, env.Options.Own.(*pageOptions)
	if extension.ID == "" || extension.Dir == "" {
		return program.Hint(errors.New("this deployment has no extension for a browser here"), "go run ./deploy/extension/build, then make build: a devstack's ready file names the extension that it made")
	}
	user, rec := env.Owner(), measure.NewRecorder()
	defer user.Close()
	rec.Process("generator-0")
	env.Progress("browser", 0, 1)
	return owntabs.With(ctx, owntabs.Options{
		ExtensionID: extension.ID, Extension: extension.Dir, Session: env.Target.Session, Tabs: own.tabs, Dir: env.Target.Dir,
		Console: env.Target.Relays[0].URL + "/#token=" + env.Target.Owner().Token,
	}, func(b *owntabs.Browser) error {
		c := owntabs.NewCaller(b, user, env.Origins()[0], rec)
		defer func() { env.Out.Merge("rest", -1, rec.Snapshot()) }()
		if err := c.Await(ctx); err != nil {
			return err
		}
		env.Progress("warm up", 0, 1)
		if err := c.Paced(ctx, "page_command", env.Options.Rate, env.Options.Warmup); err != nil {
			return err
		}
		rec.Begin(time.Now())
		return env.EachBlock(ctx, "commands", stage.Side{Run: func(ctx context.Context, block int) error { return pageBlock(ctx, env, c, rec, block) }})
	})
}

// pageBlock measures everything once.
func pageBlock(ctx context.Context, env *stage.Env, c *owntabs.Caller, rec *measure.Recorder, block int) error {
	own, rate, lasts := env.Options.Own.(*pageOptions), env.Options.Rate, env.Options.Duration
	phase := func(name string, run func(context.Context) error) stage.Side {
		return stage.Side{Phase: name, Groups: nil, Run: func(ctx context.Context, block int) error {
			err := run(ctx)
			env.Out.Merge(name, block, rec.Snapshot())
			return err
		}}
	}
	err := stage.InTurn(ctx, block,
		phase("awake", func(ctx context.Context) error { return c.Paced(ctx, "page_command", rate, lasts) }),
		phase("direct", func(context.Context) error { return c.Direct("direct_call", rate, lasts) }),
		phase("watched", func(ctx context.Context) error { return c.Watched(ctx, "watched_command", rate, lasts) }),
		phase("asleep", func(ctx context.Context) error { return c.Asleep(ctx, "asleep_command", own.asleep) }),
		phase("burst", func(ctx context.Context) error {
			took, err := c.Burst(ctx, own.burst)
			env.Out.BlockAt("burst", block, took.Seconds())
			return err
		}),
	)
	env.Out.Extra("page_command_extra_p50", "page_command_p50", "direct_call_p50", block)
	env.Out.Extra("asleep_extra_p50", "asleep_command_p50", "direct_call_p50", block)
	return err
}
