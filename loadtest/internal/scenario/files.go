package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/loadtest/internal/baseline"
	"github.com/fairlead/fairlead/loadtest/internal/calls"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
	"github.com/fairlead/fairlead/loadtest/internal/typist"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

var files = &stage.Scenario{
	Name:    "files",
	Summary: "files up and down, large and small, beside somebody who types",
	Long: `Uploads and downloads a large file through the relay, then writes and reads small
ones at a fixed rate, each timed from when it was due; in turn the same with a
bare HTTPS server that has a directory and has each file on its disk before it
answers. Every file that comes back is compared. Meanwhile somebody types: echo is
while files are moved, echo_alone before.

A download passes a tunnel and then a relay's HTTP. What it could do is what a
tunnel alone and HTTP without TLS do one after the other, 1/(1/tunnel + 1/HTTP),
both measured in the same block: download_of_serial is the part of that.`,
	Example: `loadtest run files --local
loadtest run files --local --bytes 536870912 --slo 'download_throughput_ratio>=0.5' --slo 'echo_p99<100ms'`,
	Metrics: append([]measure.Metric{
		{Name: "upload_throughput", Unit: "B/s", Headline: true, Baseline: "direct_upload_throughput", Help: "one large file, until it is answered"},
		{Name: "download_throughput", Unit: "B/s", Headline: true, Baseline: "direct_download_throughput", Help: "one large file, until its last byte"},
		{Name: "download_of_serial", Headline: true, Help: "of what a tunnel alone and HTTP alone do one after the other"},
		{Name: "tunnel_throughput", Unit: "B/s", Help: "one stream of a tunnel, as a download's, sandbox to relay"},
		{Name: "http_throughput", Unit: "B/s", Help: "the large file from a bare HTTP server without TLS"},
		{Name: "small_upload", Kind: measure.KindLatency, Headline: true, Baseline: "direct_small_upload", Help: "a small file, from when it was due to the answer"},
		{Name: "small_download", Kind: measure.KindLatency, Headline: true, Baseline: "direct_small_download", Help: "a small file, from when it was due to its last byte"},
		{Name: "echo", Kind: measure.KindLatency, Baseline: "echo_alone", Help: "keystroke to echo while files are moved"},
		{Name: "echo_alone", Kind: measure.KindLatency, Help: "keystroke to echo while nothing else happens"},
		{Name: "corrupt_files", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "files that came back as others"},
		{Name: "failed_calls", Kind: measure.KindCounter, LowerIsBetter: true, MustBeZero: true, Help: "requests that failed"},
	}, stage.ExactEcho...),
	Defaults: stage.Options{Rate: 50, Duration: 2 * time.Second, Warmup: time.Second, Blocks: 9},
	Flags: stage.Own(func(c *program.Command, own *filesOptions) {
		c.Int(&own.large, "bytes", 32<<20, "`size` of the large file")
		c.Int(&own.small, "small-bytes", 4<<10, "`size` of the small ones")
	}),
	Prepare: func(o *stage.Options) error {
		own := o.Own.(*filesOptions)
		if own.large < 1 || own.small < 1 || own.large > maxLarge || own.small > own.large {
			return errors.New("--bytes and --small-bytes must be from 1 to 1 GiB, the small ones smaller")
		}
		return nil
	},
	Run: stage.OnStage(stage.One, runFiles),
}

const (
	maxLarge = 1 << 30
	// filesKeys is how many keys a second are typed while files are moved.
	filesKeys = 20
	// tunnelTime is how long a tunnel is measured in each block.
	tunnelTime = 2 * time.Second
)

type filesOptions struct{ large, small int }

// A filing is a run of the scenario.
type filing struct {
	*stage.Stage
	own        *filesOptions
	near, bare *generator.Group
	plain      *generator.Group // of the bare server without TLS; nil as bare is
	tunnel     *baseline.Tunnel // nil as well
	rec        *measure.Recorder
	busy, idle *typist.Typist // the same person, recorded apart
}

func runFiles(ctx context.Context, s *stage.Stage) (err error) {
	env := s.Env
	f := &filing{Stage: s, own: env.Options.Own.(*filesOptions), rec: measure.NewRecorder()}
	f.rec.Process("generator-0")
	if f.near, f.bare, err = callers(ctx, s); err != nil {
		return err
	}
	if err := f.openParts(ctx); err != nil {
		return err
	}
	if f.tunnel != nil {
		defer f.tunnel.Close()
	}
	t := f.Terminal[0]
	if _, err := t.Ask(ctx, "echo", "echoing"); err != nil {
		return err
	}
	f.busy, f.idle = typist.New(f.rec, "echo"), typist.New(f.rec, "echo_alone")
	f.busy.Viewer, f.idle.Viewer = t.Viewer, t.Viewer
	f.busy.Listen()
	f.idle.Listen()
	env.Progress("warm up", 0, 1)
	for _, g := range stage.Groups(f.bare, f.near) {
		if _, err := calls.Ask(ctx, g, calls.OrderUpload, calls.Args{Bytes: f.own.large}); err != nil {
			return err
		}
	}
	if err := stage.BeginAll(ctx, f.bare, f.near, f.plain); err != nil {
		return err
	}
	f.rec.Begin(time.Now())
	return env.EachBlock(ctx, "files", stage.Side{Run: f.block})
}

// openParts opens what measures the two parts of a download's way.
func (f *filing) openParts(ctx context.Context) (err error) {
	b := f.Env.Baseline
	if b == nil {
		return nil
	}
	f.plain, err = f.Env.Generators.Start(ctx, calls.Kind, []any{calls.Spec{Files: b.PlainFilesURL(), Prefix: "http_", Seed: f.Env.Options.Seed}})
	if err == nil {
		f.tunnel, err = b.DialTunnel(ctx, "", tunnel.CarrierQUIC, protocol.NewSandboxID())
	}
	return err
}

// block moves files on both sides.
func (f *filing) block(ctx context.Context, block int) error {
	if err := f.typed(ctx, "alone", block, f.idle, func(context.Context) error { return nil }); err != nil {
		return err
	}
	if err := f.both(ctx, block); err != nil || f.tunnel == nil {
		return err
	}
	var rates []float64
	for _, name := range []string{"download_throughput", "tunnel_throughput", "http_throughput"} {
		of := f.Env.Out.Blocks(name)
		rates = append(rates, of[len(of)-1])
	}
	f.Env.Out.BlockAt("download_of_serial", block, rates[0]*(1/rates[1]+1/rates[2]))
	return nil
}

// both moves files on both sides, and measures the parts of a download's way.
func (f *filing) both(ctx context.Context, block int) error {
	sides := []stage.Side{
		{Phase: "direct", Groups: []*generator.Group{f.bare}, Run: func(ctx context.Context, block int) error {
			return f.move(ctx, f.bare, "direct_", block)
		}},
		{Phase: "http", Groups: []*generator.Group{f.plain}, Run: func(ctx context.Context, block int) error {
			return f.large(ctx, f.plain, calls.OrderDownload, "http_throughput", block)
		}},
		{Phase: "files", Groups: []*generator.Group{f.near}, Run: func(ctx context.Context, block int) error {
			return f.typed(ctx, "files", block, f.busy, func(ctx context.Context) error { return f.move(ctx, f.near, "", block) })
		}},
	}
	if f.tunnel != nil {
		sides = append(sides, stage.Side{Phase: "tunnel", Groups: nil, Run: func(ctx context.Context, block int) error {
			t, err := f.tunnel.SendBulk(ctx, tunnelTime)
			if err == nil {
				f.Env.Out.BlockAt("tunnel_throughput", block, t.Rate())
			}
			return err
		}})
	}
	return stage.InTurn(ctx, block, sides...)
}

// typed types until do has returned, and for at least a second.
func (f *filing) typed(ctx context.Context, phase string, block int, t *typist.Typist, do func(context.Context) error) error {
	f.Terminal[0].Follow(t)
	done := make(chan error, 1)
	go func() { done <- do(ctx) }() // received below
	var err error
	for over := false; !over; {
		typing := t.Type(ctx, filesKeys, time.Second)
		select {
		case err = <-done:
			over = true
		default:
			if typing != nil {
				err, over = errors.Join(typing, <-done), true
			}
		}
	}
	f.Env.Out.Merge(phase, block, f.rec.Snapshot())
	return err
}

// large moves the large file.
func (f *filing) large(ctx context.Context, g *generator.Group, order, figure string, block int) error {
	done, err := calls.Ask(ctx, g, order, calls.Args{Bytes: f.own.large})
	if err == nil {
		f.Env.Out.BlockAt(figure, block, float64(f.own.large)/done.Took.Seconds())
	}
	return err
}

// move moves the files of one side in a block.
func (f *filing) move(ctx context.Context, g *generator.Group, prefix string, block int) error {
	for _, way := range []struct{ order, figure string }{{calls.OrderUpload, "upload_throughput"}, {calls.OrderDownload, "download_throughput"}} {
		if err := f.large(ctx, g, way.order, prefix+way.figure, block); err != nil {
			return err
		}
	}
	_, err := calls.Ask(ctx, g, calls.OrderSmall, calls.Args{Rate: f.Env.Options.Rate, Duration: f.Env.Options.Duration, Bytes: f.own.small})
	return err
}
