package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pusher"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/typist"
)

var syncing = &stage.Scenario{
	Name:    "sync",
	Summary: "many laptops that push their browsers' cookies, beside somebody who types",
	Long: `Pairs laptops with the session, each by a secret of its own. All of them push their
cookies at once, and again each second, for as long as a block lasts: each envelope
has another sequence and other values. They are sealed beforehand, as each laptop has
a processor of its own. push is from an envelope's first byte to the sandbox's answer,
which comes when the cookies are kept on its disk.

Meanwhile somebody types: echo is while cookies are pushed, echo_alone in turn while
nothing else happens. At the end the laptops are unpaired.`,
	Example: `loadtest run sync --local --slo 'echo_p99_ratio<1.2'
loadtest run sync --local --pairings 10 --cookies 3000`,
	Metrics: append([]measure.Metric{
		{Name: "push", Kind: measure.KindLatency, Headline: true, Help: "from an envelope's first byte to the sandbox's answer"},
		{Name: "echo", Kind: measure.KindLatency, Headline: true, Baseline: "echo_alone", Help: "keystroke to echo while cookies are pushed"},
		{Name: "echo_alone", Kind: measure.KindLatency, Help: "keystroke to echo while nothing else happens"},
		{Name: "lost_cookies", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "cookies that the sandbox didn't take"},
		{Name: "failed_calls", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "pushes that failed"},
	}, stage.ExactEcho...),
	Defaults: stage.Options{Duration: 4 * time.Second, Warmup: time.Second, Blocks: 9},
	Flags: stage.Own(func(c *program.Command, own *syncOptions) {
		c.Int(&own.pairings, "pairings", 50, "`number` of laptops")
		c.Int(&own.cookies, "cookies", 100, "`number` of cookies that each pushes")
	}),
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*syncOptions)
		if own.pairings < 1 || own.pairings > pusher.MaxPairings || own.cookies < 1 || own.cookies > pusher.MaxCookies {
			return fmt.Errorf("--pairings must be from 1 to %d, --cookies from 1 to %d", pusher.MaxPairings, pusher.MaxCookies)
		}
		return nil
	},
	Run: stage.OnStage(stage.One, runSync),
}

// syncKeys is how many keys a second are typed.
const syncKeys = 50

type syncOptions struct{ pairings, cookies int }

func runSync(ctx context.Context, s *stage.Stage) (err error) {
	env, rec, own := s.Env, measure.NewRecorder(), s.Env.Options.Own.(*syncOptions)
	rec.Process("generator-0")
	t := s.Terminal[0]
	if _, err := t.Ask(ctx, "echo", "echoing"); err != nil {
		return err
	}
	busy, idle := typist.New(rec, "echo"), typist.New(rec, "echo_alone")
	busy.Viewer, idle.Viewer = t.Viewer, t.Viewer
	busy.Listen()
	idle.Listen()
	env.Progress("pair", 0, 1)
	laptops, err := pusher.Pair(ctx, pusher.Options{User: s.Owner, Pairings: own.pairings, Cookies: own.cookies, Name: "push"}, rec)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), stage.EndWait)
		defer cancel()
		err = errors.Join(err, laptops.Close(ctx))
		env.Out.Merge("rest", -1, rec.Snapshot())
	}()
	if err != nil {
		return err
	}
	env.Progress("warm up", 0, 1)
	laptops.Run(ctx, env.Options.Warmup)
	rec.Begin(time.Now())
	phase := func(name string, by *typist.Typist, beside func()) stage.Side {
		return stage.Side{Phase: name, Groups: nil, Run: func(ctx context.Context, block int) error {
			t.Follow(by)
			done := make(chan struct{})
			go func() { // waited for below
				defer close(done)
				beside()
			}()
			err := by.Type(ctx, syncKeys, env.Options.Duration)
			<-done
			env.Out.Merge(name, block, rec.Snapshot())
			return err
		}}
	}
	return env.EachBlock(ctx, "pushes", phase("alone", idle, func() {}), phase("pushes", busy, func() { laptops.Run(ctx, env.Options.Duration) }))
}
