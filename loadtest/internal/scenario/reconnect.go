package scenario

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/agents"
	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/protocol"
)

var reconnectStorm = &stage.Scenario{
	Name:    "reconnect-storm",
	Summary: "many agents whose relay is killed",
	Long: `So many simulated agents, with real certificates and real tunnels, are registered
at one relay and idle. What each of them costs it is measured; then the relay is
killed and started again, and all come back.`,
	Example: `  loadtest run reconnect-storm --local
  loadtest run reconnect-storm --local --agents 1000 --slo 'all_back<=30s' --slo 'relay_memory_per_agent<=150KiB' --slo 'registrations_peak<=200'`,
	Metrics: []measure.Metric{
		{Name: "all_back", Unit: "s", Help: "from the kill until the last agent is registered again", Headline: true, LowerIsBetter: true},
		{Name: "reregister", Kind: measure.KindLatency, Help: "from the kill until an agent is registered again", Headline: true},
		{Name: "registrations_peak", Unit: "1/s", Help: "the most registrations within a second", Headline: true, LowerIsBetter: true},
		{Name: "agents_missing", Kind: measure.KindCounter, Help: "agents that didn't come back", Headline: true, LowerIsBetter: true, MustBeZero: true},
		{Name: "relay_memory_per_agent", Unit: "B", Help: "what the relay's resident memory grew by for each idle agent", Headline: true, LowerIsBetter: true},
		{Name: "relay_heap_per_agent", Unit: "B", Help: "the same of its heap in use, right after a collection", LowerIsBetter: true},
		{Name: "relay_cpu_idle", Unit: "%", Help: "of a core that the relay needs while all are idle", Headline: true, LowerIsBetter: true},
		{Name: "first_registration", Kind: measure.KindLatency, Help: "from the start until an agent is registered for the first time"},
		{Name: "enrolment", Unit: "s", Help: "time to enrol all agents", LowerIsBetter: true},
	},
	Defaults:   stage.Options{Agents: 200, Blocks: 3, Seed: 1},
	NeedsLocal: "it invites sandboxes, and kills a relay",
	Flags: stage.Own(func(c *program.Command, own *stormOptions) {
		c.Duration(&own.Idle, "idle", 10*time.Second, "`time` for which agents are idle before their cost is measured")
	}),
	Run: runReconnectStorm,
}

type stormOptions struct {
	Idle time.Duration
}

const (
	// backWait bounds how long agents may take to come back.
	backWait = 90 * time.Second
	// enrolWait bounds the enrolment of a thousand agents.
	enrolWait = 2 * time.Minute
)

// storming is the scenario's state.
type storming struct {
	env   *stage.Env
	own   *stormOptions
	group *generator.Group
}

func runReconnectStorm(ctx context.Context, env *stage.Env) error {
	s := &storming{env: env, own: env.Options.Own.(*stormOptions)}
	dir, err := os.MkdirTemp("", "fairlead-agents-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.enrol(ctx, dir); err != nil {
		return err
	}
	o := env.Options
	spec := agents.Spec{Identities: dir, Last: o.Agents, Relays: []string{env.Target.Relays[0].Tunnel}}
	if s.group, err = env.Generators.Start(ctx, agents.Kind, []any{spec}); err != nil {
		return err
	}
	if err := s.group.Begin(ctx, time.Now()); err != nil {
		return err
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	return env.EachBlock(ctx, "storms", stage.Side{Run: s.storm})
}

// enrol gets the agents their identities, in dir.
func (s *storming) enrol(ctx context.Context, dir string) error {
	n := s.env.Options.Agents
	s.env.Progress("enrolment", 0, float64(n))
	ctx, cancel := context.WithTimeout(ctx, enrolWait+time.Duration(n)*50*time.Millisecond)
	defer cancel()
	// The program of the control plane is that of its process.
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.env.Target.ControlPlane.PID))
	if err != nil {
		return fmt.Errorf("the control plane's program: %w", err)
	}
	state := filepath.Join(s.env.Local.Target().Dir, "controlplane")
	began := time.Now()
	invitations, err := enrol.Invite{Program: path, StateDir: state, Count: n}.Run(ctx)
	if err != nil {
		return err
	}
	direct, err := enrol.DirectAddress(state)
	if err != nil {
		return err
	}
	identities, err := enrol.Many(ctx, invitations, enrol.Options{
		ControlPlane: direct,
		Progress:     func(done, total int) { s.env.Progress("enrolment", float64(done), float64(total)) },
	})
	if err != nil {
		return err
	}
	s.env.Out.Value("enrolment", time.Since(began).Seconds())
	return enrol.Save(dir, identities)
}

// connect has all agents register, and measures what they cost.
func (s *storming) connect(ctx context.Context) error {
	n := float64(s.env.Options.Agents)
	if err := s.group.Phase(ctx, "connect", -1); err != nil {
		return err
	}
	before, err := s.relay(ctx)
	if err != nil {
		return err
	}
	s.env.Progress("registering", 0, n)
	if _, err := s.await(ctx, agents.OrderConnect, time.Now(), "first_registration"); err != nil {
		return err
	}
	s.env.Progress("idle", 0, 1)
	if err := pause.For(ctx, s.own.Idle); err != nil {
		return err
	}
	cpu := usage.CPU(s.env.RelayPIDs()...)
	const watch = 3 * protocol.PingIdle // each agent does the same things in it
	if err := pause.For(ctx, watch); err != nil {
		return err
	}
	if used, ok := cpu(); ok {
		s.env.Out.Value("relay_cpu_idle", 100*float64(used)/float64(watch))
	}
	after, err := s.relay(ctx)
	if err != nil {
		return err
	}
	s.env.Out.Value("relay_memory_per_agent", float64(after.RSSBytes-before.RSSBytes)/n)
	s.env.Out.Value("relay_heap_per_agent", float64(after.HeapBytes-before.HeapBytes)/n)
	return nil
}

// relay returns what the relay uses, after a collection.
func (s *storming) relay(ctx context.Context) (measure.Resource, error) {
	r := s.env.Local.Target().Relays[0]
	return usage.Settled(ctx, r.PID, r.AdminURL)
}

// await waits until all have registered since at.
func (s *storming) await(ctx context.Context, order string, at time.Time, latency string) (agents.Back, error) {
	answers, err := generator.Ask[agents.Back](ctx, s.group, order, agents.Wait{At: at, Within: backWait, Latency: latency})
	if err != nil {
		return agents.Back{}, err
	}
	back := answers[0]
	if len(back.After) < back.Agents {
		return back, fmt.Errorf("%d of %d agents are not registered after %v: %s", back.Agents-len(back.After), back.Agents, backWait, cmp.Or(back.Why, "nobody said why"))
	}
	slices.Sort(back.After)
	return back, nil
}

// storm kills the relay and waits until all are back.
func (s *storming) storm(ctx context.Context, block int) error {
	if err := s.group.Phase(ctx, "storm", block); err != nil {
		return err
	}
	killed, ready, err := s.env.Local.Kill(0)
	if err != nil {
		return err
	}
	s.env.Out.Event(killed, "relay 1 killed")
	back, err := s.await(ctx, agents.OrderReturn, killed, "reregister")
	if err != nil {
		return err
	}
	s.env.Out.BlockAt("all_back", block, back.After[len(back.After)-1].Seconds())
	s.env.Out.BlockAt("registrations_peak", block, float64(peak(back.After, time.Second)))
	return ready(ctx)
}

// peak returns the most of sorted moments that lie within a window.
func peak(moments []time.Duration, window time.Duration) int {
	most, from := 0, 0
	for to, m := range moments {
		for m-moments[from] >= window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}
