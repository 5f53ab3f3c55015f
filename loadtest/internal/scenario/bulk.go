package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/eventloop"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/protocol"
)

// bulkKind is the kind of generator that keeps a tunnel busy: one terminal
// prints as fast as it is taken, and one file is downloaded again and again.
const bulkKind = "bulk"

const (
	orderBulk    = "bulk"
	orderBulkEnd = "end"

	bulkFile      = ".loadtest-bulk"
	bulkFileBytes = 16 << 20
	bulkChunk     = 1024
	bulkSkipped   = "bulk_skipped_bytes"
	// bulkQuiet is how long nothing more may come after the end of the output.
	bulkQuiet = time.Second
	// maxLaneTries bounds the terminals that are opened to find one on the lane
	// that is wanted.
	maxLaneTries = 40
)

// A bulkSpec is what a bulk worker is told.
type bulkSpec struct {
	Token   string
	Session protocol.SessionID
	Relays  []string
	// Lane is that of the terminal which is measured; the flooding one is on
	// another lane, or with SameLane on that one.
	Lane     protocol.Lane
	SameLane bool
	Seed     uint64
}

// A bulkWorker is the flood and the download.
type bulkWorker struct {
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

	// Guarded by the viewer's lock.
	checker *pattern.Checker
	last    time.Time // when output came last
}

func newBulk(ctx context.Context, job *generator.Job) (generator.Worker, error) {
	var spec bulkSpec
	if err := job.Decode(&spec); err != nil {
		return nil, err
	}
	b := bulkCounting(job.Rec)
	b.user, b.seed = client.NewUser(client.UserOptions{Token: spec.Token, Session: spec.Session, Relays: spec.Relays}), spec.Seed
	if err := b.open(ctx, &spec); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// bulkCounting returns a worker with its counters.
func bulkCounting(rec *measure.Recorder) *bulkWorker {
	return &bulkWorker{
		rec: rec, output: rec.Counter("bulk_output"), download: rec.Counter("bulk_download"), skipped: rec.Counter(bulkSkipped),
		exact: [3]*measure.Counter{rec.Counter("lost_bytes"), rec.Counter("duplicate_bytes"), rec.Counter("corrupt_streams")},
	}
}

func (b *bulkWorker) open(ctx context.Context, spec *bulkSpec) (err error) {
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
	return b.user.PutFile(ctx, bulkFile, bytes.NewReader(noise(spec.Seed, bulkFileBytes)))
}

// noise returns bytes that don't compress.
func noise(seed uint64, n int) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	b := make([]byte, n)
	_, _ = random.Read(b) // never fails
	return b
}

// Do implements [generator.Worker].
func (b *bulkWorker) Do(ctx context.Context, order string, _ json.RawMessage) (any, error) {
	switch order {
	case orderBulk:
		return nil, b.begin(ctx)
	case orderBulkEnd:
		return nil, b.end(ctx)
	}
	return nil, fmt.Errorf("no order is called %q", order)
}

func (b *bulkWorker) begin(ctx context.Context) error {
	spec := pattern.Spec{Seed: b.seed, Chunk: bulkChunk, Start: time.Now()}
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
func (b *bulkWorker) keepDownloading(ctx context.Context) {
	for ctx.Err() == nil {
		if err := b.user.GetFile(ctx, bulkFile, counting{b.download}); err != nil && ctx.Err() == nil {
			b.rec.Fail("download", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// A counting writer counts bytes.
type counting struct{ n *measure.Counter }

func (c counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// end ends the flood and says whether every byte of it came.
func (b *bulkWorker) end(ctx context.Context) error {
	b.halt()
	if err := b.terminal.Order(ctx, "stop"); err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	b.terminal.Viewer.Do(b.tell)
	b.terminal.Follow(nil)
	return nil
}

// tell counts what came of the flood. The caller holds the viewer's lock.
func (b *bulkWorker) tell() {
	r := b.checker.Report()
	b.skipped.Add(r.SkippedBytes)
	b.exact[0].Add(r.LostBytes)
	b.exact[1].Add(r.DuplicateBytes)
	if r.CorruptBytes > 0 {
		b.exact[2].Add(1)
	}
}

// quiet waits until no output has come for a while.
func (b *bulkWorker) quiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, echoWait)
	defer cancel()
	ticker := time.NewTicker(bulkQuiet / 10)
	defer ticker.Stop()
	for {
		over := false
		b.terminal.Viewer.Do(func() { over = time.Since(b.last) > bulkQuiet })
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

func (b *bulkWorker) halt() {
	if b.stop != nil {
		b.stop()
		b.loading.Wait()
		b.stop = nil
	}
}

// Output implements [client.Handler].
func (b *bulkWorker) Output(p []byte, at time.Time) {
	b.last = at
	b.output.Add(int64(len(p)))
	b.checker.Write(p, at)
}

// Jump implements [client.Handler]. What was skipped for a viewer that can't
// keep up was announced: it isn't lost, but counted.
func (b *bulkWorker) Jump(j client.Jump) {
	if !j.Continues() && j.To.Epoch == j.From.Epoch {
		b.checker.Skip(j.From.Offset, j.To.Offset)
	}
}

// Lost implements [client.Handler].
func (b *bulkWorker) Lost(time.Time, error) {}

// Close implements [generator.Worker].
func (b *bulkWorker) Close() {
	b.halt()
	ctx, cancel := context.WithTimeout(context.Background(), endWait)
	defer cancel()
	if b.terminal != nil {
		// The stack may be gone already: there is nobody left to tell.
		_ = b.terminal.Close(ctx)
		_ = b.user.DeleteFile(ctx, bulkFile)
	}
	if b.loop != nil {
		b.loop.Close()
	}
	b.user.Close()
}
