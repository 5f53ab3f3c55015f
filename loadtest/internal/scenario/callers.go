package scenario

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// callsKind is the kind of generator that makes requests: commands and files.
const callsKind = "calls"

// Orders of a callsKind worker.
const (
	orderCommands = "commands" // at a rate
	orderFlood    = "flood"    // as many as clients get done
	orderSmall    = "small"    // small files, at a rate
	orderUpload   = "upload"   // one large file
	orderDownload = "download"
)

const (
	// callTimeout bounds one request.
	callTimeout = 30 * time.Second
	// maxCalls bounds the requests under way; what is due beyond it has failed.
	maxCalls = 2000
	// smallNames is how many small files there are.
	smallNames = 64
)

// A callsSpec is what a worker is told. With Base it uses a baseline, else a
// deployment.
type callsSpec struct {
	Command string // URL of a baseline for commands
	Files   string // and for files

	Token   string
	Session protocol.SessionID
	PTY     protocol.PTYID // gets the signals that the commands are
	Relays  []string

	Prefix string // of the names of what is recorded
	Seed   uint64
}

// A calling is the argument of the orders, of which each uses a part.
type calling struct {
	Rate     float64
	Clients  int
	Duration time.Duration
	Bytes    int
}

// A called is the answer.
type called struct {
	Calls int
	Took  time.Duration
}

// A caller is a worker of callsKind.
type caller struct {
	// Static after construction.
	spec   callsSpec
	user   *client.User // of a deployment
	http   *http.Client // for a baseline
	rec    *measure.Recorder
	failed *measure.Counter
	wrong  *measure.Counter
	lag    *measure.Latency

	seeded bool // owned by the order small: the small files are there
}

func newCaller(_ context.Context, job *generator.Job) (generator.Worker, error) {
	c := &caller{rec: job.Rec}
	if err := job.Decode(&c.spec); err != nil {
		return nil, err
	}
	c.failed, c.wrong = job.Rec.Counter("failed_calls"), job.Rec.Counter("corrupt_files")
	c.lag = job.Rec.Latency(measure.LagName)
	c.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: maxCalls}}
	if len(c.spec.Relays) > 0 {
		c.user = client.NewUser(client.UserOptions{Token: c.spec.Token, Session: c.spec.Session, Relays: c.spec.Relays})
	}
	return c, nil
}

// Close implements [generator.Worker].
func (c *caller) Close() {
	c.http.CloseIdleConnections()
	if c.user != nil {
		c.user.Close()
	}
}

// Do implements [generator.Worker].
func (c *caller) Do(ctx context.Context, order string, arg json.RawMessage) (any, error) {
	var a calling
	if err := json.Unmarshal(arg, &a); err != nil {
		return nil, err
	}
	switch order {
	case orderCommands:
		return c.open(ctx, a, func(int) (string, func(context.Context) error) { return "command", c.command })
	case orderFlood:
		return c.closed(ctx, a, c.command)
	case orderSmall:
		if err := c.seedFiles(ctx, a.Bytes); err != nil {
			return nil, err
		}
		return c.open(ctx, a, func(n int) (string, func(context.Context) error) { return c.small(n, a.Bytes) })
	case orderUpload:
		return c.upload(ctx, a)
	case orderDownload:
		return c.download(ctx, a)
	}
	return nil, fmt.Errorf("no order is called %q", order)
}

// open makes calls when they are due, however long those before take.
func (c *caller) open(ctx context.Context, a calling, next func(n int) (name string, call func(context.Context) error)) (called, error) {
	wait, end := preciseWait()
	defer end()
	var calls sync.WaitGroup
	defer calls.Wait()
	room := make(chan struct{}, maxCalls)
	start := time.Now()
	n := 0
	for ; n < max(1, int(a.Rate*a.Duration.Seconds())); n++ {
		due := start.Add(time.Duration(float64(n) / a.Rate * float64(time.Second)))
		if err := wait(ctx, due); err != nil {
			return called{}, err
		}
		c.lag.Record(due, time.Now())
		name, call := next(n)
		select {
		case room <- struct{}{}:
		default:
			c.fail(name, errors.New("too many are under way"))
			continue
		}
		calls.Go(func() {
			defer func() { <-room }()
			if c.try(ctx, name, call) {
				c.rec.Latency(c.spec.Prefix+name).Record(due, time.Now())
			}
		})
	}
	calls.Wait()
	return called{n, time.Since(start)}, ctx.Err()
}

// closed has clients make one call after the other for a while.
func (c *caller) closed(ctx context.Context, a calling, call func(context.Context) error) (called, error) {
	var clients sync.WaitGroup
	var done atomic.Int64
	start := time.Now()
	for range a.Clients {
		clients.Go(func() {
			for time.Since(start) < a.Duration && ctx.Err() == nil {
				if c.try(ctx, "command", call) {
					done.Add(1)
				}
			}
		})
	}
	clients.Wait()
	return called{int(done.Load()), time.Since(start)}, ctx.Err()
}

// try makes a call and counts its failure.
func (c *caller) try(ctx context.Context, name string, call func(context.Context) error) bool {
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := call(calling)
	if err != nil && ctx.Err() == nil {
		c.fail(name, err)
	}
	return err == nil
}

func (c *caller) fail(name string, err error) {
	c.failed.Add(1)
	c.rec.Fail(c.spec.Prefix+name, err)
}

// command has a signal sent that changes nothing.
func (c *caller) command(ctx context.Context) error {
	if c.user == nil {
		return c.exchange(ctx, http.MethodPost, c.spec.Command, bytes.NewReader([]byte("{}")), io.Discard)
	}
	var outcome struct {
		Status string              `json:"status"`
		Error  *protocol.ErrorBody `json:"error"`
	}
	target := protocol.CommandTarget{SessionID: c.spec.Session, PTYID: c.spec.PTY}
	op := map[string]string{"kind": op.KindPTYSignal, "signal": "WINCH"}
	if err := c.user.Command(ctx, target, op, &outcome); err != nil {
		return err
	}
	if outcome.Status != protocol.StatusOK {
		return fmt.Errorf("outcome %s: %+v", outcome.Status, outcome.Error)
	}
	return nil
}

// seedFiles writes the small files once, so that each can be read from then on.
func (c *caller) seedFiles(ctx context.Context, size int) error {
	if c.seeded {
		return nil
	}
	for k := range smallNames {
		name, content := c.smallFile(k, size)
		if err := c.put(ctx, name, content); err != nil {
			return err
		}
	}
	c.seeded = true
	return nil
}

func (c *caller) smallFile(k, size int) (name string, content []byte) {
	return fmt.Sprintf(".loadtest-small-%d", k), noise(c.spec.Seed+uint64(k), size)
}

// small returns the n-th call on small files: one is written, the next one read.
func (c *caller) small(n, size int) (name string, call func(context.Context) error) {
	file, content := c.smallFile(n%smallNames, size)
	if n%2 == 0 {
		return "small_upload", func(ctx context.Context) error { return c.put(ctx, file, content) }
	}
	return "small_download", func(ctx context.Context) error {
		var got bytes.Buffer
		if err := c.get(ctx, file, &got); err != nil {
			return err
		}
		if !bytes.Equal(got.Bytes(), content) {
			c.wrong.Add(1)
		}
		return nil
	}
}

const largeFile = ".loadtest-large"

func (c *caller) upload(ctx context.Context, a calling) (called, error) {
	content := noise(c.spec.Seed, a.Bytes)
	start := time.Now()
	err := c.put(ctx, largeFile, content)
	return called{1, time.Since(start)}, err
}

func (c *caller) download(ctx context.Context, a calling) (called, error) {
	sum := sha256.New()
	start := time.Now()
	err := c.get(ctx, largeFile, sum)
	took := time.Since(start)
	if want := sha256.Sum256(noise(c.spec.Seed, a.Bytes)); err == nil && !bytes.Equal(sum.Sum(nil), want[:]) {
		c.wrong.Add(1)
	}
	return called{1, took}, err
}

func (c *caller) put(ctx context.Context, name string, content []byte) error {
	if c.user != nil {
		return c.user.PutFile(ctx, name, bytes.NewReader(content))
	}
	return c.exchange(ctx, http.MethodPut, c.spec.Files+"/"+name, bytes.NewReader(content), io.Discard)
}

func (c *caller) get(ctx context.Context, name string, to io.Writer) error {
	if c.user != nil {
		return c.user.GetFile(ctx, name, to)
	}
	return c.exchange(ctx, http.MethodGet, c.spec.Files+"/"+name, nil, to)
}

// exchange makes a request of a baseline.
func (c *caller) exchange(ctx context.Context, method, address string, body io.Reader, to io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if address, ok := errors.AsType[*url.Error](err); ok {
		return address.Err // without the address, which holds a secret of the baseline's
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("baseline: status %d", resp.StatusCode)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}

// callsAt starts a worker for the deployment; its commands are for a terminal.
func callsAt(ctx context.Context, s *stage, pty protocol.PTYID) (*generator.Group, error) {
	target := s.env.Target
	return s.env.Generators.Start(ctx, callsKind, []any{callsSpec{
		Token: target.Owner().Token, Session: target.Session, PTY: pty, Relays: origins(s.env), Seed: s.env.Options.Seed,
	}})
}

// callers starts a worker for the deployment, and one for the baseline (nil
// without).
func callers(ctx context.Context, s *stage) (near, bare *generator.Group, err error) {
	if near, err = callsAt(ctx, s, s.terminal[0].PTY); err != nil || s.env.Baseline == nil {
		return near, nil, err
	}
	bare, err = s.env.Generators.Start(ctx, callsKind, []any{callsSpec{
		Command: s.env.Baseline.CommandURL(), Files: s.env.Baseline.FilesURL(), Prefix: "direct_", Seed: s.env.Options.Seed,
	}})
	return near, bare, err
}

// ask gives the one worker of a group an order and returns its answer.
func ask(ctx context.Context, g *generator.Group, order string, a calling) (called, error) {
	answers, err := generator.Ask[called](ctx, g, order, a)
	if err != nil {
		return called{}, err
	}
	return answers[0], nil
}
