package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/bulk"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/legs"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/peer"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/typist"
	"github.com/fairlead/fairlead/loadtest/internal/usage"
	"github.com/fairlead/fairlead/loadtest/internal/viewers"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

var echo = &stage.Scenario{
	Name:    "echo",
	Summary: "keystroke to echo, alone or while bulk is moved",
	Long: `Somebody types at a fixed rate into a program that echoes each byte at once, and
each keystroke is timed from when it was due until its echo is back. In turn the
same is typed into the same program in a terminal wired straight to a WebSocket.

With --bulk another terminal of the sandbox prints as fast as it is taken, and a
file is downloaded again and again, all through the same tunnel.

With --crowd so many viewers watch another terminal of the sandbox. In turn the
keys are typed while nothing is printed there, and while 1 KiB is,
--crowd-rate times a second (crowded_echo).

With --impair there is a bad network between the sandbox and the relay. The echo
is then also told in round trips of that network (echo_p50_rtt, echo_p99_rtt),
and there is no baseline. --block-udp takes QUIC away, so that the tunnel goes
over WebSocket.

With --peer the same is typed into the same program in a terminal of ttyd, in turn
with the others.

With --hops each program on the way notes when a key and its echo pass it, and the
way is told leg by leg. make hops builds such programs, into bin/hops.`,
	Example: `loadtest run echo --local --slo 'echo_p50_ratio<3'
loadtest run echo --local --bulk --impair delay=25ms,loss=2% --slo 'echo_p50_rtt<=1.3' --slo 'echo_p99_rtt<=3'
loadtest run echo --local --block-udp --impair delay=25ms --slo 'echo_p50_rtt<=1.5'
loadtest run echo --local --crowd 1000 --slo 'crowded_echo_p99_ratio<=2'
loadtest run echo --local --hops --bin bin/hops
loadtest/peers/ttyd.sh bin/loadtest run echo --local --slo 'echo_p50_peer_ratio<=1.6'`,
	Metrics: append([]measure.Metric{
		{Name: "echo", Kind: measure.KindLatency, Headline: true, Baseline: "direct_echo", Help: "from when a key was due to its echo at the viewer"},
		{Name: "crowded_echo", Kind: measure.KindLatency, Headline: true, Baseline: "echo", Help: "the same while the crowd gets output of another terminal"},
		{Name: "peer_echo", Kind: measure.KindLatency, Help: "the same at ttyd's terminal"},
		{Name: "echo_p50_peer_ratio", Headline: true, LowerIsBetter: true, Help: "echo_p50 of each block divided by peer_echo_p50"},
		{Name: "echo_p99_peer_ratio", Headline: true, LowerIsBetter: true, Help: "echo_p99 of each block divided by peer_echo_p99"},
		{Name: "echo_p50_rtt", Unit: "", Headline: true, LowerIsBetter: true, Help: "echo_p50 of each block in round trips of --impair"},
		{Name: "echo_p99_rtt", Unit: "", Headline: true, LowerIsBetter: true, Help: "echo_p99 of each block in round trips of --impair"},
		{Name: bulk.Output, Kind: measure.KindCounter, Unit: "B", Help: "printed by the flooding terminal and received"},
		{Name: bulk.Download, Kind: measure.KindCounter, Unit: "B", Help: "downloaded meanwhile"},
		{Name: bulk.Skipped, Kind: measure.KindCounter, Unit: "B", LowerIsBetter: true, Help: "output of the flooding terminal that its viewer was told it would miss, being too slow"},
	}, slices.Concat(stage.ExactEcho, stage.Exactness, legs.Metrics())...),
	Defaults:  stage.Options{Rate: 50, Duration: 4 * time.Second, Warmup: 2 * time.Second, Blocks: 9, Seed: 1},
	Simulated: true,
	Flags: func(c *program.Command, o *stage.Options) {
		c.Bool(&o.Hops, "hops", false, "tell where the time of an echo goes; needs --local, and programs built with the tag hops")
		stage.Own(echoFlags)(c, o)
	},
	Prepare: prepareEcho,
	Run:     runEcho,
}

func echoFlags(c *program.Command, own *echoOptions) {
	c.Bool(&own.bulk, "bulk", false, "flood another terminal and download a file meanwhile")
	c.Bool(&own.sameLane, "same-lane", false, "with --bulk: the flooding terminal shares the lane of the one that is measured")
	c.Int(&own.crowd, "crowd", 0, "viewers of another terminal, which prints meanwhile")
	c.Float(&own.crowdRate, "crowd-rate", 40, "chunks of 1 KiB that it prints a second")
	declarePeer(c, &own.peer, peer.TTYD)
	c.Bool(&own.blockUDP, "block-udp", false, "take QUIC away; needs --local")
}

// otherCarrierWait bounds the wait for a tunnel over another carrier.
const otherCarrierWait = 60 * time.Second

type echoOptions struct {
	bulk, sameLane, blockUDP bool
	crowd                    int     // viewers of another terminal
	crowdRate                float64 // chunks that it prints a second
	peer                     peerOption
}

func prepareEcho(o *stage.Options) error {
	own := o.Own.(*echoOptions)
	switch {
	case o.Hops && own.bulk:
		return errors.New("--hops tells the way of keys that are alone, without --bulk")
	case own.crowd > 0 && (o.Hops || own.bulk || own.peer.file != ""):
		return errors.New("--crowd is beside keys that are alone otherwise, without --bulk, --hops and --peer")
	case own.crowdRate <= 0:
		return errors.New("--crowd-rate must be more than 0")
	case own.sameLane && !own.bulk:
		return errors.New("--same-lane needs --bulk")
	case o.Simulated && own.bulk:
		return errors.New("--bulk needs a real agent: a simulated one has no files")
	case own.peer.file != "" && (own.bulk || own.blockUDP || o.Impair != ""):
		return errors.New("--peer is beside keys that are alone: a peer has no bulk and no bad network")
	}
	if err := own.peer.load(); err != nil {
		return err
	}
	o.Viewers = own.crowd // as many people there must be
	if o.Impair != "" {
		o.NoBaseline = true // it has no such network
	}
	if own.blockUDP && o.Impair == "" {
		o.Impair = impair.Profile{}.String()
	}
	return nil
}

// An echoing is a run of the scenario.
type echoing struct {
	*stage.Stage
	own   *echoOptions
	rec   *measure.Recorder
	near  *typist.Typist // at the deployment
	bare  *typist.Typist // at the baseline; nil without
	peer  *typist.Typist // at the peer; nil without
	bulk  *generator.Group
	crowd *generator.Group // viewers of the other terminal; nil without
	keys  []legs.Key       // of this block, with --hops; owned by near's viewer
}

func runEcho(ctx context.Context, env *stage.Env) error {
	e := &echoing{own: env.Options.Own.(*echoOptions), rec: measure.NewRecorder()}
	e.rec.Process("generator-0")
	for _, m := range stage.Exactness { // 0 without bulk
		e.rec.Counter(m.Name)
	}
	restore, err := env.Unimpaired()
	if err != nil {
		return err
	}
	terminals := 1
	if e.own.crowd > 0 {
		terminals++
	}
	if e.Stage, err = stage.NewStage(ctx, env, terminals); err != nil {
		return err
	}
	defer e.Stage.Close()
	defer func() { env.Out.Merge("rest", -1, e.rec.Snapshot()) }() // of a block that was cut off
	end, err := e.open(ctx)
	defer end()
	if err := errors.Join(err, restore()); err != nil {
		return err
	}
	if err := e.degrade(ctx); err != nil {
		return err
	}
	if e.bulk != nil {
		if _, err := e.bulk.Ask(ctx, bulk.OrderBegin); err != nil {
			return err
		}
	}
	if err := e.warmUp(ctx); err != nil {
		return err
	}
	if err := env.EachBlock(ctx, "typing", stage.Side{Run: e.block}); err != nil {
		return err
	}
	e.tellCarrier(ctx)
	return e.endBulk(ctx)
}

// tellCarrier notes which carrier the tunnel has at the end.
func (e *echoing) tellCarrier(ctx context.Context) {
	if e.Env.Local == nil {
		return
	}
	tunnels, err := usage.Tunnels(ctx, e.Env.Local.Target().Relays[0].AdminURL)
	if err != nil {
		e.Env.Log.Warn("the carrier isn't known", "err", err)
		return
	}
	for carrier := range tunnels {
		e.Env.Out.Note("at the end the tunnel went over " + carrier)
	}
}

// endBulk ends the bulk load. It fails when there was none.
func (e *echoing) endBulk(ctx context.Context) error {
	if e.bulk == nil {
		return nil
	}
	if err := e.bulk.Phase(ctx, "end", -1); err != nil {
		return err
	}
	if _, err := e.bulk.Ask(ctx, bulk.OrderEnd); err != nil {
		return err
	}
	if n := e.Env.Out.Count(bulk.Skipped, -1); n > 0 {
		e.Env.Out.Note(fmt.Sprintf("the viewer of the flood was moved ahead over %d bytes, and told so", n))
	}
	if e.Env.Out.Count(bulk.Output, -1) == 0 || e.Env.Out.Count(bulk.Download, -1) == 0 {
		return errors.New("no bulk was moved, so the echo wasn't beside any")
	}
	return nil
}

// open makes both programs echo, and starts the worker for the bulk load.
func (e *echoing) open(ctx context.Context) (end func(), err error) {
	var open []func()
	end = func() {
		for _, f := range open {
			f()
		}
	}
	t := e.Terminal[0]
	if e.near, err = echoIn(ctx, t, e.rec, "echo"); err != nil {
		return end, err
	}
	if e.Env.Options.Hops {
		e.near.Viewer.Do(func() {
			e.near.Witness = e
		})
	}
	if e.Env.Baseline != nil {
		if e.bare, err = echoBare(ctx, e.Stage, e.rec); err != nil {
			return end, err
		}
		open = append(open, e.bare.Viewer.Close)
	}
	if at := e.own.peer.Peer; at != nil {
		if e.peer, err = echoPeer(ctx, e.Stage, at, e.rec); err != nil {
			return end, err
		}
		open = append(open, e.peer.Viewer.Close)
	}
	if e.own.crowd > 0 {
		if e.crowd, err = e.Bring(ctx, stage.Audience{Each: e.own.crowd, Skip: 1, Rate: e.own.crowdRate}, "join"); err != nil {
			return end, err
		}
	}
	if e.own.bulk {
		target := e.Env.Target
		e.bulk, err = e.Env.Generators.Start(ctx, bulk.Kind, []any{bulk.Spec{
			Token: target.Owner().Token, Session: target.Session, Relays: e.Env.Origins(),
			Lane: protocol.TerminalLane(t.PTY), SameLane: e.own.sameLane, Seed: e.Env.Options.Seed,
		}})
		if err != nil {
			return end, err
		}
		open = append(open, e.bulk.Close)
	}
	return end, nil
}

// echoIn makes the source in a terminal echo, and a typist listen.
func echoIn(ctx context.Context, t *printer.Terminal, rec *measure.Recorder, latency string) (*typist.Typist, error) {
	if _, err := t.Ask(ctx, "echo", "echoing"); err != nil {
		return nil, err
	}
	keys := typist.New(rec, latency)
	keys.Viewer = t.Viewer
	t.Follow(keys)
	keys.Listen()
	return keys, nil
}

// echoBare is echoIn for a terminal that is wired straight to a WebSocket.
func echoBare(ctx context.Context, s *stage.Stage, rec *measure.Recorder) (*typist.Typist, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	t, err := printer.Bare(ctx, s.Owner, s.Env.Baseline.TerminalURL("exec '"+self+"' source"), s.Loop)
	if err != nil {
		return nil, fmt.Errorf("the baseline's terminal: %w", err)
	}
	keys, err := echoIn(ctx, t, rec, "direct_echo")
	if err != nil {
		t.Viewer.Close()
		return nil, fmt.Errorf("the baseline's terminal: %w", err)
	}
	return keys, nil
}

// echoPeer is echoIn for a terminal of a peer's.
func echoPeer(ctx context.Context, s *stage.Stage, at *peer.Peer, rec *measure.Recorder) (*typist.Typist, error) {
	if err := at.Await(ctx); err != nil {
		return nil, err
	}
	t, err := at.Echo(ctx, s.Loop)
	if err != nil {
		return nil, err
	}
	keys := typist.New(rec, "peer_echo")
	keys.Viewer = t
	t.Follow(keys)
	keys.Listen()
	return keys, nil
}

// degrade blocks UDP if that was asked for, and waits for the other carrier.
func (e *echoing) degrade(ctx context.Context) error {
	if !e.own.blockUDP {
		return nil
	}
	e.Env.Progress("waiting for WebSocket", 0, 1)
	e.Env.Local.Shaper().UDP.Blackhole(impair.Duplex, true)
	e.Env.Out.Event(time.Now(), "UDP blocked")
	return e.Env.AwaitCarrier(ctx, tunnel.CarrierWebSocket, otherCarrierWait)
}

// warmUp types for a while without measuring.
func (e *echoing) warmUp(ctx context.Context) error {
	e.Env.Progress("warm up", 0, 1)
	for _, t := range []*typist.Typist{e.bare, e.peer, e.near} {
		if t == nil {
			continue
		}
		if err := t.Type(ctx, e.Env.Options.Rate, e.Env.Options.Warmup); err != nil {
			return err
		}
	}
	e.Env.Out.Merge("warm up", -1, e.rec.Snapshot())
	e.rec.Begin(time.Now())
	if e.bulk != nil {
		return e.bulk.Begin(ctx, time.Now())
	}
	return nil
}

// block types on all sides.
func (e *echoing) block(ctx context.Context, block int) error {
	typed := func(t *typist.Typist, phase string) stage.Side {
		return stage.Side{Phase: phase, Groups: stage.Groups(e.bulk), Run: func(ctx context.Context, block int) error {
			err := t.Type(ctx, e.Env.Options.Rate, e.Env.Options.Duration)
			if err == nil && t == e.near && e.Env.Options.Hops {
				err = e.tellLegs()
			}
			if err == nil {
				e.Env.Out.Merge(phase, block, e.rec.Snapshot())
			}
			return err
		}}
	}
	sides := []stage.Side{typed(e.near, "echo")}
	if e.crowd != nil {
		sides = append(sides, stage.Side{Phase: "crowded", Groups: stage.Groups(e.crowd), Run: e.crowded})
	}
	if e.bare != nil {
		sides = append([]stage.Side{typed(e.bare, "direct")}, sides...)
	}
	if e.peer != nil {
		sides = append(sides, typed(e.peer, "peer"))
	}
	if err := stage.InTurn(ctx, block, sides...); err != nil {
		return err
	}
	e.roundTrips(block)
	besidePeer(e.Env, "echo_p50", block)
	besidePeer(e.Env, "echo_p99", block)
	return nil
}

// crowdChunk is what the other terminal prints at a time, in bytes.
const crowdChunk = 1 << 10

// crowded types while the crowd gets output of another terminal.
func (e *echoing) crowded(ctx context.Context, block int) error {
	lasts := e.Env.Options.Duration
	spec := e.Stream(e.own.crowdRate, crowdChunk, lasts+stage.Lead)
	if err := stage.Arm(ctx, e.crowd, viewers.Arm{Streams: stage.Streams(spec)}); err != nil {
		return err
	}
	if err := e.Print(ctx, 1, spec); err != nil {
		return err
	}
	e.near.As("crowded_echo")
	err := e.near.Type(ctx, e.Env.Options.Rate, lasts)
	e.near.As("echo")
	if err != nil {
		return err
	}
	e.Env.Out.Merge("crowded", block, e.rec.Snapshot())
	tally, err := stage.Finish(ctx, e.crowd, stage.EndOf(spec))
	if err == nil {
		e.Env.Complain(fmt.Sprintf("block %d: ", block+1), tally)
	}
	return err
}

// Echoed implements [typist.Witness].
func (e *echoing) Echoed(sent, echoed time.Time) {
	e.keys = append(e.keys, legs.Key{Sent: sent, Echoed: echoed})
}

// tellLegs records the legs of the keys that were typed since it was called before.
func (e *echoing) tellLegs() error {
	passings, err := legs.Read(e.Env.Local.Target().Dir)
	if err != nil {
		return program.Hint(err, "make hops builds the programs for --hops into bin/hops, --bin bin/hops takes them")
	}
	var keys []legs.Key
	e.near.Viewer.Do(func() { keys, e.keys = e.keys, nil })
	if whole := passings.Record(keys, e.rec); whole < len(keys) {
		e.Env.Out.Note(fmt.Sprintf("%d of %d keys weren't seen at every place, and have no legs", len(keys)-whole, len(keys)))
	}
	return nil
}

// roundTrips records the echo of a block in round trips of the impaired
// network.
func (e *echoing) roundTrips(block int) {
	if e.Env.Local == nil || e.Env.Local.Shaper() == nil || e.Env.Local.Shaper().RTT() == 0 {
		return
	}
	rtt := e.Env.Local.Shaper().RTT().Seconds()
	for _, name := range []string{"echo_p50", "echo_p99"} {
		if values := e.Env.Out.Blocks(name); len(values) > 0 {
			e.Env.Out.BlockAt(name+"_rtt", block, values[len(values)-1]/rtt)
		}
	}
}
