// Package bulk is a kind of generator that keeps a tunnel busy: one terminal
// prints as fast as it is taken, and one file is downloaded again and again.
package bulk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/eventloop"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/protocol"
)

// Kind is the name under which [New] is registered.
const Kind = "bulk"

// Orders to the worker, without arguments or answers.
const (
	OrderBegin = "bulk"
	OrderEnd   = "end"
)

// What the worker counts, beside the exactness of its output.
const (
	Output   = "bulk_output"        // bytes that were printed and received
	Download = "bulk_download"      // bytes that were downloaded
	Skipped  = "bulk_skipped_bytes" // bytes of output that its viewer was told it would miss
)

const (
	fileName   = ".loadtest-bulk"
	fileBytes  = 16 << 20
	chunkBytes = 1024
	// quiet is how long nothing more may come after the end of the output.
	quiet = time.Second
	// quietWait bounds the wait for that.
	quietWait = 10 * time.Second
	// closeWait bounds the end of the terminal.
	closeWait = 15 * time.Second
	// maxLaneTries bounds the terminals that are opened to find one on the lane
	// that is wanted.
	maxLaneTries = 40
)

// A Spec says where.
type Spec struct {
	Token   string
	Session protocol.SessionID
	Relays  []string
	// Lane is that of the terminal which is measured; the flooding one is on
	// another lane, or with SameLane on that one.
	Lane     protocol.Lane
	SameLane bool
	Seed     uint64
}

// A worker is the flood and the download.
type worker struct {
	// Static after construction.
	user     *client.User
	loop     *eventloop.Loop
	terminal *printer.Terminal
	seed     uint64
	output   *measure.Counter
	download *measure.Counter
	skipped  *measure.Counter
	exact    [3]*measure.Counter // lost and doubled bytes, corrupt streams
	rec      *measure.Recorder

	// Owned by Do, of which one runs at a time.
	stop    context.CancelFunc
	loading sync.WaitGroup

	// Owned by the viewer: used in the handler's methods, and by what Viewer.Do
	// runs.
	checker *pattern.Checker
	last    time.Time // when output came last
}

// New makes a worker; it is a [generator.Kind].
func New(ctx context.Context, job *generator.Job) (generator.Worker, error) {
	var spec Spec
	if err := job.Decode(&spec); err != nil {
		return nil, err
	}
	b := counting(job.Rec)
	b.user, b.seed = client.NewUser(client.UserOptions{Token: spec.Token, Session: spec.Session, Relays: spec.Relays}), spec.Seed
	if err := b.open(ctx, &spec); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// counting returns a worker with its counters.
func counting(rec *measure.Recorder) *worker {
	return &worker{
		rec: rec, output: rec.Counter(Output), download: rec.Counter(Download), skipped: rec.Counter(Skipped),
		exact: [3]*measure.Counter{rec.Counter("lost_bytes"), rec.Counter("duplicate_bytes"), rec.Counter("corrupt_streams")},
	}
}

func (b *worker) open(ctx context.Context, spec *Spec) (err error) {
	if b.loop, err = eventloop.New(nil); err != nil {
		return err
	}
	program, err := printer.Install(ctx, b.user)
	if err != nil {
		return err
	}
	for range maxLaneTries {
		t, err := program.Open(ctx, b.loop)
		if err != nil {
			return err
		}
		if (protocol.TerminalLane(t.PTY) == spec.Lane) == spec.SameLane {
			b.terminal = t
			break
		}
		if err := t.Close(ctx); err != nil {
			return err
		}
	}
	if b.terminal == nil {
		return fmt.Errorf("none of %d terminals is on the lane that is wanted", maxLaneTries)
	}
	return b.user.PutFile(ctx, fileName, bytes.NewReader(pattern.Noise(spec.Seed, fileBytes)))
}

// Do implements [generator.Worker].
func (b *worker) Do(ctx context.Context, order string, _ json.RawMessage) (any, error) {
	switch order {
	case OrderBegin:
		return nil, b.begin(ctx)
	case OrderEnd:
		return nil, b.end(ctx)
	}
	return nil, fmt.Errorf("no order is called %q", order)
}

func (b *worker) begin(ctx context.Context) error {
	spec := pattern.Spec{Seed: b.seed, Chunk: chunkBytes, Start: time.Now()}
	b.terminal.Viewer.Do(func() { b.checker = pattern.NewChecker(spec, nil) })
	b.terminal.Follow(b)
	if err := b.terminal.Order(ctx, spec.Order()); err != nil {
		return err
	}
	loading, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.loading.Go(func() { b.keepDownloading(loading) })
	return nil
}

// keepDownloading downloads the file until ctx ends.
func (b *worker) keepDownloading(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.user.GetFile(ctx, fileName, counter{b.download}); err != nil && ctx.Err() == nil {
			b.rec.Fail("download", err)
			_ = pause.For(ctx, time.Second)
		}
	}
}

// A counter counts the bytes that are written to it.
type counter struct{ n *measure.Counter }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// end ends the flood and says whether every byte of it came.
func (b *worker) end(ctx context.Context) error {
	b.halt()
	if err := b.terminal.Order(ctx, "stop"); err != nil {
		return err
	}
	if err := b.awaitQuiet(ctx); err != nil {
		return err
	}
	b.terminal.Viewer.Do(b.tell)
	b.terminal.Follow(nil)
	return nil
}

// tell counts what came of the flood. Viewer.Do runs it.
func (b *worker) tell() {
	r := b.checker.Report()
	b.skipped.Add(r.SkippedBytes)
	b.exact[0].Add(r.LostBytes)
	b.exact[1].Add(r.DuplicateBytes)
	if r.CorruptBytes > 0 {
		b.exact[2].Add(1)
	}
}

// awaitQuiet waits until no output has come for a while.
func (b *worker) awaitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietWait)
	defer cancel()
	ticker := time.NewTicker(quiet / 10)
	defer ticker.Stop()
	for {
		over := false
		b.terminal.Viewer.Do(func() { over = time.Since(b.last) > quiet })
		if over {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return errors.New("the flood goes on after its end")
		}
	}
}

func (b *worker) halt() {
	if b.stop != nil {
		b.stop()
		b.loading.Wait()
		b.stop = nil
	}
}

// Output implements [client.Handler].
func (b *worker) Output(p []byte, at time.Time) {
	b.last = at
	b.output.Add(int64(len(p)))
	b.checker.Write(p, at)
}

// Jump implements [client.Handler]. What was skipped for a viewer that can't
// keep up was announced: it isn't lost, but counted.
func (b *worker) Jump(j client.Jump) {
	if !j.Continues() && j.To.Epoch == j.From.Epoch {
		b.checker.Skip(j.From.Offset, j.To.Offset)
	}
}

// Lost implements [client.Handler].
func (b *worker) Lost(time.Time, error) {}

// Close implements [generator.Worker].
func (b *worker) Close() {
	b.halt()
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if b.terminal != nil {
		// The stack may be gone already: there is nobody left to tell.
		_ = b.terminal.Close(ctx)
		_ = b.user.DeleteFile(ctx, fileName)
	}
	if b.loop != nil {
		b.loop.Close()
	}
	b.user.Close()
}
