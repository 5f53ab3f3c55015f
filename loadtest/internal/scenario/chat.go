package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/talk"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
)

var chat = &stage.Scenario{
	Name:    "chat",
	Summary: "conversations: first word, each word, a crowd, replay, a killed relay",
	Long: `People talk with stand-ins for a coding agent's program, which write words at a
scripted rate, each with the time at which it was written.

In blocks a message is sent and answered, at the deployment and in turn to the
same program wired straight to a WebSocket: chat_first is timed from the message to
its first word, chat_line from a word's writing to its arrival.

Then so many conversations (--conversations), each with sockets of its own
(--sockets), get words at --rate; a new socket replays --replay events; a relay is
killed --kills times in the middle of a run; and --idle sockets that nothing comes
to show what each costs the relay.`,
	Example: `loadtest run chat --local --slo 'chat_line_p50_ratio<=3' --slo 'lost_events==0'
loadtest run chat --local --conversations 20 --sockets 5 --rate 20 --slo 'crowd_p99<=100ms'`,
	Metrics: []measure.Metric{
		{Name: "chat_first", Kind: measure.KindLatency, Headline: true, Baseline: "direct_first", Help: "from a message to its first word, at a warm program"},
		{Name: "chat_first_extra_p50", Unit: "s", Headline: true, LowerIsBetter: true, Help: "chat_first_p50 less direct_first_p50 of the same block"},
		{Name: "chat_first_extra_p99", Unit: "s", Headline: true, LowerIsBetter: true, Help: "chat_first_p99 less direct_first_p99 of the same block"},
		{Name: "chat_line", Kind: measure.KindLatency, CrossesClocks: true, Headline: true, Baseline: "direct_line", Help: "from when the program wrote a word to its arrival"},
		{Name: "crowd", Kind: measure.KindLatency, CrossesClocks: true, Headline: true, Help: "from when a program wrote a word to its arrival at each socket, with all conversations at work"},
		{Name: "lost_events", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "words that didn't arrive at a socket, or twice, or out of order"},
		{Name: "replay", Unit: "s", Headline: true, LowerIsBetter: true, Help: "from a subscription to the last of --replay events"},
		{Name: "kill_next", Kind: measure.KindLatency, Headline: true, Help: "from the kill of a relay to the next word at each socket"},
		{Name: "idle_socket", Unit: "B", Headline: true, LowerIsBetter: true, Help: "memory of the relay for each of --idle sockets that nothing comes to"},
	},
	Defaults:   stage.Options{Rate: 4, Duration: 3 * time.Second, Warmup: time.Second, Blocks: 9},
	NeedsLocal: "its coding agents are stand-ins",
	Stack:      stack.Options{StandIns: true, People: 12},
	Flags: stage.Own(func(c *program.Command, own *chatOptions) {
		c.Int(&own.conversations, "conversations", 50, "`number` of conversations at work at once")
		c.Int(&own.sockets, "sockets", 5, "`number` of sockets that follow each of them")
		c.Int(&own.seconds, "crowd-seconds", 5, "`seconds` for which they are at work")
		c.Int(&own.replay, "replay", 5000, "`number` of events that are replayed")
		c.Int(&own.kills, "kills", 5, "`number` of times that a relay is killed")
		c.Int(&own.idle, "idle", 200, "`number` of sockets that nothing comes to")
	}),
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*chatOptions)
		if min(own.conversations, own.sockets, own.seconds) < 1 || min(own.replay, own.kills, own.idle) < 0 {
			return errors.New("--conversations, --sockets and --crowd-seconds must be at least 1, --replay, --kills and --idle not negative")
		}
		if own.conversations > 200 || max(own.sockets*own.conversations, own.idle) > 1000 {
			return errors.New("at most 200 --conversations, with 1000 sockets in all, and 1000 --idle")
		}
		return nil
	},
	Run: runChat,
}

type chatOptions struct {
	conversations, sockets, seconds int
	replay, kills, idle             int
}

// A chatting is a run of the scenario.
type chatting struct {
	env  *stage.Env
	own  *chatOptions
	rec  *measure.Recorder
	near *talk.Conversation // at the deployment
	bare *talk.Bare         // at the baseline; nil without
}

func runChat(ctx context.Context, env *stage.Env) error {
	c := &chatting{env: env, own: env.Options.Own.(*chatOptions), rec: measure.NewRecorder()}
	c.rec.Process("generator-0")
	c.rec.Counter("lost_events")
	defer func() { env.Out.Merge("rest", -1, c.rec.Snapshot()) }()
	owner := env.Owner()
	defer owner.Close()
	var err error
	if c.near, err = talk.Open(ctx, owner, c.rec, "chat_first", "chat_line"); err != nil {
		return err
	}
	defer c.near.Close()
	if env.Baseline != nil {
		command := env.Local.StandIn("claude") + talk.ClaudeFlags
		if c.bare, err = talk.DialBare(ctx, env.Baseline.ChatURL(command), c.rec); err != nil {
			return fmt.Errorf("the baseline's program: %w", err)
		}
		defer c.bare.Close()
	}
	env.Progress("warm up", 0, 1)
	for _, side := range c.sides() {
		if err := side.Run(ctx, -1); err != nil {
			return err
		}
	}
	c.rec.Begin(time.Now())
	if err := env.EachBlock(ctx, "talking", stage.Side{Run: c.block}); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{c.idle, c.crowd, c.replay, c.kill} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

// messages is how many messages one side sends in a block: each brings words for
// a part of the block.
const messages = 10

func (c *chatting) sides() []stage.Side {
	talking := func(who talk.Sayer, phase string) stage.Side {
		return stage.Side{Phase: phase, Groups: nil, Run: func(ctx context.Context, block int) error {
			err := talk.Repeat(ctx, who, talk.Words(c.env.Options.Duration/messages), messages)
			c.env.Out.Merge(phase, block, c.rec.Snapshot())
			return err
		}}
	}
	if c.bare == nil {
		return []stage.Side{talking(c.near, "chat")}
	}
	return []stage.Side{talking(c.near, "chat"), talking(c.bare, "direct")}
}

// block sends messages on both sides.
func (c *chatting) block(ctx context.Context, block int) error {
	if err := stage.InTurn(ctx, block, c.sides()...); err != nil {
		return err
	}
	for _, q := range []string{"_p50", "_p99"} {
		c.env.Out.Extra("chat_first_extra"+q, "chat_first"+q, "direct_first"+q, block)
	}
	return nil
}

// Gather opens conversations, and as many sockets of other people for each.
func (c *chatting) gather(ctx context.Context, conversations, each int, line string) (*talk.Hall, error) {
	c.env.Progress("sockets", 0, 1)
	hall, err := talk.NewHall(ctx, c.env.Owner(), c.rec, conversations)
	if err != nil {
		return hall, err
	}
	return hall, c.join(ctx, hall, each, line)
}

func (c *chatting) join(ctx context.Context, hall *talk.Hall, each int, line string) error {
	watchers, err := c.env.Watchers(len(hall.Conversations) * each)
	if err != nil {
		return err
	}
	var users []client.UserOptions
	for _, w := range watchers {
		users = append(users, client.UserOptions{Token: w.Token, Session: c.env.Target.Session, Relays: c.env.Origins()})
	}
	return hall.Gather(ctx, users, each, line)
}

// crowd has all conversations at work at once.
func (c *chatting) crowd(ctx context.Context) error {
	hall, err := c.gather(ctx, c.own.conversations, c.own.sockets, "crowd")
	defer hall.Close()
	if err != nil {
		return err
	}
	c.env.Progress("all at work", 0, 1)
	lost, err := hall.Work(ctx, max(1, int(float64(c.own.seconds)*c.env.Options.Rate)), c.env.Options.Rate)
	c.rec.Counter("lost_events").Add(int64(lost))
	c.env.Out.Merge("crowd", -1, c.rec.Snapshot())
	return err
}

// replays is how often a long run is read again.
const replays = 5

// replay has new sockets read a long run.
func (c *chatting) replay(ctx context.Context) error {
	hall, err := talk.NewHall(ctx, c.env.Owner(), c.rec, 1)
	defer hall.Close()
	if err != nil || c.own.replay == 0 {
		return err
	}
	c.env.Progress("replay", 0, 1)
	took, lost, err := hall.Replay(ctx, c.own.replay, replays)
	for block, t := range took {
		c.env.Out.BlockAt("replay", block, t.Seconds())
	}
	c.rec.Counter("lost_events").Add(int64(lost))
	return err
}

// idle measures what sockets cost the relay that nothing comes to. What the first
// One of a conversation costs isn't counted.
func (c *chatting) idle(ctx context.Context) error {
	hall, err := c.gather(ctx, 1, 1, "")
	defer hall.Close()
	if err != nil || c.own.idle == 0 {
		return err
	}
	relay := c.env.Now().Relays[0].PID
	before, err := usage.AtRest(ctx, relay)
	if err != nil {
		return err
	}
	if err := c.join(ctx, hall, c.own.idle, ""); err != nil {
		return err
	}
	after, err := usage.AtRest(ctx, relay)
	c.env.Out.Value("idle_socket", float64(after-before)/float64(c.own.idle))
	return err
}

// kill kills the relay in the middle of a run.
func (c *chatting) kill(ctx context.Context) error {
	hall, err := c.gather(ctx, 1, c.own.sockets, "")
	defer hall.Close()
	if err != nil {
		return err
	}
	c.env.Progress("kills", 0, 1)
	err = hall.Outlive(ctx, c.env.Local, c.own.kills, "kill_next")
	c.env.Out.Merge("kills", -1, c.rec.Snapshot())
	return err
}
