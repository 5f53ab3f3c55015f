package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/growth"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

var churn = &stage.Scenario{
	Name:    "churn",
	Summary: "short sessions, and what is left of them",
	Long: `Somebody attaches to a terminal, types a word, reads its echo and leaves, again and
again; now and then a terminal is opened and closed as well. Then all is idle, and
relay and agent must be as they were before: no goroutine, descriptor or memory
more than a little. It fails beyond 10 goroutines, 5 descriptors or 5 MiB of heap,
of the relay or of the agent.

Heaps are compared after two collections. The relay is told to collect; the agent,
which tells of itself through the relay, is waited for, both before and after.

The sessions are a closed loop: on each terminal the next one begins when the one
before has ended, so session says how long one takes and not how long somebody
would have waited at a given rate.`,
	Example: `  loadtest run churn --local
  loadtest run churn --local --sessions 10000 --slo 'relay_goroutines_growth<=10' --slo 'relay_fds_growth<=5' --slo 'relay_heap_growth<=5MiB'`,
	Metrics: []measure.Metric{
		{Name: "session", Kind: measure.KindLatency, Help: "from the request for a ticket to the echo of what was typed", Headline: true},
		{Name: "sessions", Kind: measure.KindCounter, Help: "short sessions that went well", Headline: true},
		{Name: "session_failures", Kind: measure.KindCounter, Help: "short sessions that didn't", LowerIsBetter: true, MustBeZero: true},
		{Name: "sessions_rate", Unit: "1/s", Help: "short sessions per second"},
		{Name: "relay_goroutines_growth", Help: "goroutines of the relay afterwards, less those before", Headline: true, LowerIsBetter: true},
		{Name: "relay_fds_growth", Help: "open descriptors of the relay afterwards, less those before", Headline: true, LowerIsBetter: true},
		{Name: "relay_heap_growth", Unit: "B", Help: "heap in use of the relay afterwards, less that before", Headline: true, LowerIsBetter: true},
		{Name: "relay_memory_growth", Unit: "B", Help: "resident memory of the relay afterwards, less that before", LowerIsBetter: true},
		{Name: "agent_goroutines_growth", Help: "goroutines of the agent afterwards, less those before", Headline: true, LowerIsBetter: true},
		{Name: "agent_fds_growth", Help: "open descriptors of the agent afterwards, less those before", Headline: true, LowerIsBetter: true},
		{Name: "agent_heap_growth", Unit: "B", Help: "heap in use of the agent afterwards, less that before", Headline: true, LowerIsBetter: true},
		{Name: "agent_memory_growth", Unit: "B", Help: "resident memory of the agent afterwards, less that before", Headline: true, LowerIsBetter: true},
	},
	Defaults: stage.Options{
		Terminals: 4, Seed: 1,
		SLOs: []measure.SLO{
			{Metric: "relay_goroutines_growth", Op: "<=", Number: growth.SameGoroutines},
			{Metric: "relay_fds_growth", Op: "<=", Number: growth.SameFDs},
			{Metric: "relay_heap_growth", Op: "<=", Number: growth.SameHeap >> 20, Unit: "MiB"},
			{Metric: "agent_goroutines_growth", Op: "<=", Number: growth.SameGoroutines},
			{Metric: "agent_fds_growth", Op: "<=", Number: growth.SameFDs},
			{Metric: "agent_heap_growth", Op: "<=", Number: growth.SameHeap >> 20, Unit: "MiB"},
		},
	},
	Flags: stage.Own(func(c *program.Command, own *churnOptions) {
		c.Int(&own.Sessions, "sessions", 500, "`number` of short sessions")
		c.Int(&own.Open, "open-every", 50, "each so many sessions (`number`) a terminal is opened and closed; 0: never")
		c.Duration(&own.Idle, "idle", 45*time.Second, "the longest `time` until relay and agent are as before, from when the agent's heap was collected")
	}),
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*churnOptions)
		if own.Sessions < 1 || own.Open < 0 {
			return fmt.Errorf("--sessions %d must be more than 0, and --open-every %d not negative", own.Sessions, own.Open)
		}
		return nil
	},
	Run: stage.OnStage(func(o *stage.Options) int { return max(1, o.Terminals) }, runChurn),
}

type churnOptions struct {
	Sessions, Open int
	Idle           time.Duration
}

const (
	// sessionWait bounds one short session.
	sessionWait = 20 * time.Second
	// warmSessions is how many sessions come before the baseline is taken: then
	// pools are filled, and lasting connections open.
	warmSessions = 50
)

// churning is the scenario's state.
type churning struct {
	*stage.Stage
	own   *churnOptions
	rec   *measure.Recorder
	agent *usage.Agent
	done  atomic.Int64
}

func runChurn(ctx context.Context, s *stage.Stage) error {
	env := s.Env
	c := &churning{Stage: s, own: env.Options.Own.(*churnOptions), rec: measure.NewRecorder(), agent: usage.NewAgent(env)}
	defer c.agent.Close()
	for _, t := range s.Terminal {
		if _, err := t.Ask(ctx, "echo", "echoing"); err != nil {
			return err
		}
		t.Viewer.Close() // the sessions are the only ones
	}
	if err := c.run(ctx, "warm-up", warmSessions); err != nil {
		return err
	}
	before, err := c.usage(ctx, nil)
	if err != nil {
		return err
	}
	c.rec = measure.NewRecorder() // the warm-up's is done with
	c.rec.Begin(time.Now())
	c.rec.Counter("session_failures") // which is 0 if nothing fails
	began := time.Now()
	err = c.run(ctx, "sessions", c.own.Sessions)
	env.Out.Merge("sessions", -1, c.rec.Snapshot())
	if err != nil {
		return err
	}
	env.Out.Value("sessions_rate", float64(c.own.Sessions)/time.Since(began).Seconds())
	after, err := c.usage(ctx, before)
	if err != nil {
		return err
	}
	for name, now := range after {
		growth.Between(env.Out, name, before[name], now)
	}
	return nil
}

// Run opens so many sessions, one at a time on each terminal.
func (c *churning) run(ctx context.Context, phase string, sessions int) error {
	c.done.Store(0)
	var running sync.WaitGroup
	work := make(chan int)
	for i := range c.Terminal {
		running.Go(func() {
			for n := range work {
				c.one(ctx, c.Terminal[i].PTY, n)
				c.Env.Progress(phase, float64(c.done.Add(1)), float64(sessions))
			}
		})
	}
	var err error
	for n := range sessions {
		select {
		case work <- n:
			continue
		case <-ctx.Done():
			err = ctx.Err()
		}
		break
	}
	close(work)
	running.Wait()
	return err
}

// One opens one session and records how it went.
func (c *churning) one(ctx context.Context, pty protocol.PTYID, n int) {
	ctx, cancel := context.WithTimeout(ctx, sessionWait)
	defer cancel()
	began := time.Now()
	err := c.session(ctx, pty, n)
	if err == nil && c.own.Open > 0 && n%c.own.Open == 0 {
		err = c.openAndClose(ctx)
	}
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.rec.Counter("session_failures").Add(1)
			c.rec.Fail("a short session", err)
		}
		return
	}
	c.rec.Counter("sessions").Add(1)
	c.rec.Latency("session").Record(began, time.Now())
}

// session attaches, types a word, waits for its echo, and leaves.
func (c *churning) session(ctx context.Context, pty protocol.PTYID, n int) error {
	word := fmt.Sprintf("<%d.%d>", n, time.Now().UnixNano())
	heard := &listener{}
	v := client.Watch(ctx, c.Owner, client.Options{PTY: pty, Controls: true, Transport: c.Loop}, heard)
	defer v.Close()
	if _, err := v.AwaitJoined(ctx); err != nil {
		return err
	}
	// All words are in one line: several lines would fill the history of the
	// terminals, which would look like a leak.
	if err := v.Type(ctx, "\r"+word, nil); err != nil {
		return err
	}
	return v.Await(ctx, "the echo of what was typed", func() bool { return strings.Contains(heard.text, word) })
}

// openAndClose opens a terminal and closes it.
func (c *churning) openAndClose(ctx context.Context) error {
	pty, err := c.Owner.CreatePTY(ctx, op.PTYCreate{Command: "cat"})
	if err != nil {
		return err
	}
	return c.Owner.ClosePTY(ctx, pty)
}

// A listener keeps the end of the output.
type listener struct {
	ignoring
	text string
}

const maxHeard = 4 << 10

// Output implements [client.Handler].
func (l *listener) Output(p []byte, _ time.Time) {
	l.text += string(p)
	l.text = l.text[max(0, len(l.text)-maxHeard):]
}

// usage returns what relay and agent use, once that is as before, or no longer
// changes, or the time is over.
func (c *churning) usage(ctx context.Context, before map[string]measure.Resource) (map[string]measure.Resource, error) {
	c.Owner.Close() // idle connections are ours to end
	const between = 2 * time.Second
	var deadline time.Time // from the first look on, which may have to wait for the agent
	var last map[string]measure.Resource
	for {
		if err := pause.For(ctx, between); err != nil {
			return nil, err
		}
		now, err := c.look(ctx)
		if err != nil {
			return nil, err
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(c.own.Idle)
		}
		if growth.Settled(before, now) || before == nil && last != nil && growth.Settled(last, now) || time.Now().After(deadline) {
			return now, nil
		}
		last = now
		c.Env.Progress("idle", 1-math.Max(0, time.Until(deadline).Seconds()/c.own.Idle.Seconds()), 1)
	}
}

// look returns what relay and agent use, both after collections of their heaps.
func (c *churning) look(ctx context.Context) (map[string]measure.Resource, error) {
	relay := c.Env.Target.Relays[0]
	if relay.PID == 0 && relay.AdminURL == "" {
		return nil, errors.New("churn: neither the relay's process nor its admin listener is known")
	}
	const waiting = "waiting for the agent's garbage collection"
	c.Env.Progress(waiting, 0, usage.WantedCollections)
	agent, complete, err := usage.Collected(ctx, c.agent.Read, func(n int64) { c.Env.Progress(waiting, float64(n), usage.WantedCollections) })
	if err != nil {
		return nil, err
	}
	if !complete {
		c.Env.Out.Note(fmt.Sprintf("the agent didn't collect its heap within %v: agent_heap_growth may be garbage", usage.CollectionWait))
	}
	c.agent.Close() // the relay is looked at without the connection
	now, err := usage.Settled(ctx, relay.PID, relay.AdminURL)
	return map[string]measure.Resource{"relay": now, "agent": agent}, err
}
