package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/baseline"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

var tunnelThroughput = &stage.Scenario{
	Name:    "tunnel",
	Summary: "Throughput of a tunnel, agent to relay, beside raw QUIC and TCP",
	Long: `Sends as much as is taken from an agent's end of a tunnel to a relay's, in two
processes of this machine: through one stream, as one terminal does, and through
several at once, spread over the lanes as terminals are. Beside it, in turn, one
raw QUIC stream and one raw TCP connection between the same two processes. Every
byte is compared at the other end.

It loads no deployment: both ends are processes of its own.`,
	Example: `loadtest run tunnel
loadtest run tunnel --slo 'tunnel_throughput_ratio>=0.85' --slo 'parallel_throughput_ratio>=0.85'`,
	Metrics: []measure.Metric{
		{Name: "tunnel_throughput", Unit: "B/s", Headline: true, Baseline: "quic_throughput", Help: "one stream of a tunnel over QUIC, agent to relay"},
		{Name: "parallel_throughput", Unit: "B/s", Headline: true, Baseline: "quic_throughput", Help: "as many streams at once as --terminals says, in sum"},
		{Name: "websocket_throughput", Unit: "B/s", Headline: true, Baseline: "tcp_throughput", Help: "one stream of a tunnel over a WebSocket, agent to relay"},
		{Name: "quic_throughput", Unit: "B/s", Help: "one stream of a raw QUIC connection"},
		{Name: "tcp_throughput", Unit: "B/s", Help: "one raw TCP connection, without TLS"},
		{Name: "lost_bytes", Kind: measure.KindCounter, Unit: "B", LowerIsBetter: true, MustBeZero: true, Help: "sent and not received"},
		{Name: "corrupt_transfers", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "in which other bytes came than were sent"},
	},
	Defaults: stage.Options{Terminals: 16, Duration: time.Second, Warmup: time.Second, Blocks: 9},
	NoTarget: true,
	Flags: stage.Own(func(c *program.Command, own *tunnelOptions) {
		c.Strings(&own.carriers, "carriers", "`carriers` to measure: quic, websocket (default: both)")
	}),
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*tunnelOptions)
		for _, c := range own.carriers {
			if c := tunnel.Carrier(c); c != tunnel.CarrierQUIC && c != tunnel.CarrierWebSocket {
				return fmt.Errorf("--carriers %q: want quic or websocket", c)
			}
		}
		return nil
	},
	Run: runTunnel,
}

type tunnelOptions struct {
	carriers []string
}

// A sender sends for a while and tells what came of it. Its figure is called
// name.
type sender struct {
	name string
	send func(ctx context.Context, d time.Duration) (baseline.Transfer, error)
}

// runTunnel measures every sender in turn.
func runTunnel(ctx context.Context, env *stage.Env) error {
	senders, end, err := openSenders(ctx, env)
	if err != nil {
		return err
	}
	defer end()
	rec := measure.NewRecorder()
	rec.Begin(time.Now())
	lost, corrupt := rec.Counter("lost_bytes"), rec.Counter("corrupt_transfers")
	env.Progress("warm up", 0, 1)
	for _, s := range senders {
		if _, err := s.send(ctx, env.Options.Warmup/time.Duration(len(senders))); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	var sides []stage.Side
	for _, s := range senders {
		sides = append(sides, stage.Side{Run: func(ctx context.Context, block int) error {
			began := time.Now()
			t, err := s.send(ctx, env.Options.Duration)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			env.Out.BlockAt(s.name, block, t.Rate())
			lost.Add(t.Sent - t.Received)
			if t.Corrupt {
				corrupt.Add(1)
			}
			snapshot := rec.Snapshot()
			snapshot.From = began
			env.Out.Merge(s.name, block, snapshot)
			return nil
		}})
	}
	return env.EachBlock(ctx, "transfer", sides...)
}

// openSenders opens the connections that are measured.
func openSenders(ctx context.Context, env *stage.Env) (senders []sender, end func(), err error) {
	var open []func()
	end = func() {
		for _, f := range open {
			f()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	b := env.Baseline
	if !env.Options.NoBaseline {
		raw, err := b.DialQUIC(ctx, "")
		if err != nil {
			return nil, end, err
		}
		open = append(open, raw.Close)
		senders = append(senders, sender{"quic_throughput", raw.Send})
		senders = append(senders, sender{"tcp_throughput", func(ctx context.Context, d time.Duration) (baseline.Transfer, error) {
			return b.SendTCP(ctx, "", d)
		}})
	}
	carriers := []tunnel.Carrier{tunnel.CarrierQUIC, tunnel.CarrierWebSocket}
	if wanted := env.Options.Own.(*tunnelOptions).carriers; len(wanted) > 0 {
		carriers = nil
		for _, c := range wanted {
			carriers = append(carriers, tunnel.Carrier(c))
		}
	}
	for _, carrier := range carriers {
		t, err := b.DialTunnel(ctx, "", carrier, protocol.NewSandboxID())
		if err != nil {
			return nil, end, fmt.Errorf("%s: %w", carrier, err)
		}
		open = append(open, t.Close)
		through := func(streams int) func(context.Context, time.Duration) (baseline.Transfer, error) {
			return func(ctx context.Context, d time.Duration) (baseline.Transfer, error) { return t.Send(ctx, streams, d) }
		}
		if carrier == tunnel.CarrierWebSocket {
			senders = append(senders, sender{"websocket_throughput", through(1)})
			continue
		}
		senders = append(senders, sender{"tunnel_throughput", through(1)}, sender{"parallel_throughput", through(env.Options.Terminals)})
	}
	return senders, end, nil
}
