package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/calls"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/growth"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/openloop"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/typist"
	"github.com/fairlead/fairlead/protocol"
)

var soak = &stage.Scenario{
	Name:    "soak",
	Summary: "a mix of everything for long: leaks and drift",
	Long: `Terminals print and are watched, somebody types, people come and go, commands run
and small files are written and read, all at once and for as long as --duration
says: 10m finds what grows fast, 4h what grows slowly. In turn the same is typed
into a terminal wired straight to a WebSocket, so that a machine that becomes
slower isn't taken for a relay that does.

Drift is by how much the median echo, as a ratio to the direct one, rose from the
first quarter of the time to the last, as far as that is beyond chance. Growth is
the median of the last quarter less that of the second, for what a process needs
at first isn't a leak; beforehand the terminals print as much as is kept of their
output, or that would look like one.`,
	Example: `loadtest run soak --local --duration 10m
loadtest run soak --local --duration 4h --viewers 200 --slo 'relay_growth<8MiB'`,
	Metrics: append([]measure.Metric{
		{Name: "echo", Kind: measure.KindLatency, Headline: true, Baseline: "direct_echo", Help: "keystroke to echo"},
		{Name: "delivery", Kind: measure.KindLatency, CrossesClocks: true, Headline: true, Help: "from when a chunk was due to its arrival at a viewer"},
		{Name: "command", Kind: measure.KindLatency, Help: "from when a command was due to its outcome"},
		{Name: "small_upload", Kind: measure.KindLatency, Help: "a small file, from when it was due to the answer"},
		{Name: "small_download", Kind: measure.KindLatency, Help: "a small file, from when it was due to its last byte"},
		{Name: "visit", Kind: measure.KindLatency, Help: "from when somebody was due to come to the whole screen"},
		{Name: "echo_drift", Headline: true, LowerIsBetter: true, Help: "rise of the median echo ratio from the first quarter to the last, beyond chance; 0: none"},
		{Name: "relay_growth", Unit: "B", Headline: true, LowerIsBetter: true, Help: "resident memory of the relays, last quarter less second"},
		{Name: "agent_growth", Unit: "B", Headline: true, LowerIsBetter: true, Help: "resident memory of the agents, last quarter less second"},
		{Name: "controlplane_growth", Unit: "B", Headline: true, LowerIsBetter: true, Help: "resident memory of the control plane, last quarter less second"},
		{Name: "relay_goroutines_growth", LowerIsBetter: true, Help: "goroutines of the relays, last quarter less second"},
		{Name: "relay_descriptors_growth", LowerIsBetter: true, Help: "open descriptors of the relays, last quarter less second"},
		{Name: "agent_goroutines_growth", LowerIsBetter: true, Help: "goroutines of the agent, last quarter less second"},
		{Name: "agent_heap_growth", Unit: "B", LowerIsBetter: true, Help: "heap in use of the agent at its lowest, last quarter less second"},
		{Name: "agent_descriptors_growth", LowerIsBetter: true, Help: "open descriptors of the agents, last quarter less second"},
		{Name: "delivered_chunks", Kind: measure.KindCounter, Help: "chunks that arrived whole, at all viewers together"},
		{Name: "failed_calls", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "commands, files and visits that failed"},
		{Name: "corrupt_files", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "files that came back as others"},
	}, append(stage.ExactEcho, stage.Exactness...)...),
	Defaults: stage.Options{
		Viewers: 20, Terminals: 2, Rate: 10, Chunk: 512, Duration: time.Minute, Warmup: 5 * time.Second,
		SLOs: []measure.SLO{
			{Metric: "echo_drift", Op: "<=", Number: 0},
			{Metric: "relay_growth", Op: "<", Number: 16, Unit: "MiB"},
			{Metric: "agent_growth", Op: "<", Number: 16, Unit: "MiB"},
			{Metric: "controlplane_growth", Op: "<", Number: 32, Unit: "MiB"},
		},
	},
	TellsAgent: true,
	Prepare:    prepareSoak,
	Run:        stage.OnStage(func(o *stage.Options) int { return o.Terminals }, runSoak),
}

// What happens in each second of a soak, beside what the flags say.
const (
	soakKeys     = 10.0
	soakCommands = 2.0
	soakFiles    = 4.0
	soakVisits   = 1.0
	soakBytes    = 4 << 10 // of a small file
)

// A slice is one block of a soak. There are about sixty within these bounds.
const (
	soakSlices   = 60
	leastSlice   = 3 * time.Second
	longestSlice = 5 * time.Minute
	// leastDrift is the shortest run with three slices in each quarter. A slice
	// takes longer than its load.
	leastDrift = 55 * time.Second
	// The part of a slice in which keys are typed at the deployment, and then at
	// the baseline.
	typedShare, bareShare = 0.6, 0.3
)

// prepareSoak removes the default bound on drift from a run that is too short
// to tell drift from chance.
func prepareSoak(o *stage.Options) error {
	drift := slices.IndexFunc(o.SLOs, func(s measure.SLO) bool { return s.Metric == "echo_drift" })
	if o.Duration < leastDrift && drift >= 0 {
		o.SLOs = slices.Delete(slices.Clone(o.SLOs), drift, drift+1) // the defaults come first
	}
	return nil
}

// A soaking is a run of the scenario.
type soaking struct {
	*watching
	rec   *measure.Recorder
	shell *printer.Terminal // echoes
	near  *typist.Typist
	bare  *typist.Typist // nil without baseline
	calls *generator.Group
	ended func() // closes what open opened
}

func runSoak(ctx context.Context, s *stage.Stage) error {
	env, o := s.Env, s.Env.Options
	k := &soaking{watching: &watching{Stage: s, total: o.Viewers * o.Terminals}, rec: measure.NewRecorder(), ended: func() {}}
	k.rec.Process("generator-0")
	err := k.fill(ctx)
	if err == nil {
		err = k.open(ctx)
	}
	defer func() { k.ended() }()
	if err != nil {
		return err
	}
	slice := min(max(o.Duration/soakSlices, leastSlice), longestSlice)
	if err := k.warmUp(ctx); err != nil {
		return err
	}
	began := time.Now()
	for block := 0; time.Since(began) < o.Duration; block++ {
		env.Progress("mix", time.Since(began).Seconds(), o.Duration.Seconds())
		if err := k.slice(ctx, block, slice); err != nil {
			return err
		}
	}
	k.conclude(began, time.Now())
	return nil
}

// fillRate chunks a second, of fillChunk bytes each, fill the terminals, within
// fillWait.
const (
	fillRate, fillChunk = 500, 16 << 10
	fillWait            = 5 * time.Minute
)

// fill makes each terminal print as much as agent and relay keep of it. Their
// memory grows until then, and must not grow afterwards.
func (k *soaking) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fillWait)
	defer cancel()
	k.Env.Progress("filling the terminals' history", 0, float64(len(k.Terminal)))
	chunks := 2 * max(protocol.LogWindowBytes, protocol.RingBytes) / fillChunk
	for i, t := range k.Terminal {
		spec := k.Stream(fillRate, fillChunk, time.Second)
		spec.Chunks = chunks
		end := t.Viewer.Position().Offset + uint64(chunks*fillChunk)
		if err := k.Print(ctx, i, spec); err != nil {
			return err
		}
		if err := t.Viewer.AwaitOffset(ctx, end); err != nil {
			return fmt.Errorf("filling the history of a terminal: %w", err)
		}
		k.Env.Progress("filling the terminals' history", float64(i+1), float64(len(k.Terminal)))
	}
	return nil
}

// open makes all viewers join, and starts the workers.
func (k *soaking) open(ctx context.Context) (err error) {
	o := k.Env.Options
	if k.group, err = k.Gather(ctx, stage.Audience{Each: o.Viewers, Rate: o.Rate}); err != nil {
		return err
	}
	if err := k.Join(ctx, k.group, k.total); err != nil {
		return err
	}
	if k.shell, err = k.Program.Open(ctx, k.Loop); err != nil {
		return err
	}
	k.ended = func() {
		ctx, cancel := context.WithTimeout(context.Background(), stage.EndWait)
		defer cancel()
		if err := k.shell.Close(ctx); err != nil {
			k.Env.Log.Warn("cleaning up", "err", err)
		}
	}
	if k.near, err = echoIn(ctx, k.shell, k.rec, "echo"); err != nil {
		return err
	}
	if k.Env.Baseline != nil {
		if k.bare, err = echoBare(ctx, k.Stage, k.rec); err != nil {
			return err
		}
		closeShell := k.ended
		k.ended = func() {
			k.bare.Viewer.Close()
			closeShell()
		}
	}
	k.calls, err = callsFor(ctx, k.Stage, k.shell.PTY)
	return err
}

// warmUp does everything once without measuring it.
func (k *soaking) warmUp(ctx context.Context) error {
	k.Env.Progress("warm up", 0, 1)
	if err := k.slice(ctx, -1, max(k.Env.Options.Warmup, leastSlice)); err != nil {
		return err
	}
	now := time.Now()
	k.rec.Begin(now)
	return errors.Join(k.group.Begin(ctx, now), k.calls.Begin(ctx, now))
}

// slice does everything at once for a while.
func (k *soaking) slice(ctx context.Context, block int, lasts time.Duration) error {
	phase := "mix"
	if block < 0 {
		phase = "warm up"
	}
	for _, g := range []*generator.Group{k.group, k.calls} {
		if err := g.Phase(ctx, phase, block); err != nil {
			return err
		}
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error {
		tally, err := k.watch(ctx, lasts)
		if err == nil {
			k.Env.Complain(fmt.Sprintf("block %d: ", max(block, 0)+1), tally)
		}
		return err
	})
	all.Go(func() error {
		_, err := calls.Ask(ctx, k.calls, calls.OrderCommands, calls.Args{Rate: soakCommands, Duration: lasts})
		return err
	})
	all.Go(func() error {
		_, err := calls.Ask(ctx, k.calls, calls.OrderSmall, calls.Args{Rate: soakFiles, Duration: lasts, Bytes: soakBytes})
		return err
	})
	all.Go(func() error { return k.visits(ctx, lasts) })
	all.Go(func() error { return k.keys(ctx, lasts) })
	err := all.Wait()
	k.Env.Out.Merge(phase, block, k.rec.Snapshot())
	return err
}

// keys types at the deployment, then at the baseline.
func (k *soaking) keys(ctx context.Context, lasts time.Duration) error {
	if err := k.near.Type(ctx, soakKeys, time.Duration(typedShare*float64(lasts))); err != nil || k.bare == nil {
		return err
	}
	return k.bare.Type(ctx, soakKeys, time.Duration(bareShare*float64(lasts)))
}

// visits has people come to a terminal, one after the other, and go.
func (k *soaking) visits(ctx context.Context, lasts time.Duration) error {
	visit, failed := k.rec.Latency("visit"), k.rec.Counter("failed_calls")
	_, err := openloop.Each(ctx, soakVisits, lasts, func(n int, due time.Time) error {
		joining, cancel := context.WithTimeout(ctx, calls.Timeout)
		defer cancel()
		v := client.Watch(joining, k.Owner, client.Options{PTY: k.Terminal[n%len(k.Terminal)].PTY, Transport: k.Loop}, ignoring{})
		j, err := v.AwaitJoined(joining)
		v.Close()
		switch {
		case err == nil:
			visit.Record(due, j.Complete)
		case ctx.Err() == nil:
			failed.Add(1)
			k.rec.Fail("visit", err)
		}
		return ctx.Err()
	})
	return err
}

// ignoring hears nothing.
type ignoring struct{}

func (ignoring) Output([]byte, time.Time) {}
func (ignoring) Jump(client.Jump)         {}
func (ignoring) Lost(time.Time, error)    {}

// conclude records drift and growth.
func (k *soaking) conclude(from, to time.Time) {
	figure := "echo_p50_ratio"
	if k.bare == nil {
		figure = "echo_p50"
	}
	values := k.Env.Out.Blocks(figure)
	if quarter := len(values) / 4; quarter > 0 {
		_, interval, ok := measure.Change(values[:quarter], values[len(values)-quarter:])
		switch {
		case !ok || interval == nil:
			k.Env.Out.Note("the run was too short to tell drift from chance: three slices in each quarter are the least")
		default:
			k.Env.Out.Value("echo_drift", max(0, interval.Low-1))
		}
	}
	growth.Record(k.Env.Out, len(k.Env.Target.Relays), max(1, len(k.Env.Target.Sandboxes)), from, to)
}
