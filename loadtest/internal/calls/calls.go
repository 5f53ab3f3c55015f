// Package calls is a kind of generator: commands and files, of a deployment or
// of a baseline.
package calls

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
	"github.com/fairlead/fairlead/loadtest/internal/openloop"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// Kind is the name under which [New] is registered.
const Kind = "calls"

// Orders to the worker. Each takes Args and answers Done.
const (
	OrderCommands = "commands" // at a rate
	OrderFlood    = "flood"    // as many commands as clients get done
	OrderSmall    = "small"    // small files, at a rate
	OrderUpload   = "upload"   // one large file
	OrderDownload = "download"
)

const (
	// Timeout bounds one call.
	Timeout = 30 * time.Second
	// maxCalls bounds the requests under way; what is due beyond it has failed.
	maxCalls = 2000
	// smallNames is how many small files there are.
	smallNames = 64
)

// A Spec says where calls go: to a deployment if Relays are given, else to a
// baseline.
type Spec struct {
	Command string // URL of a baseline for commands
	Files   string // and for files
	CA      []byte // PEM, of a baseline over TLS

	Token   string
	Session protocol.SessionID
	PTY     protocol.PTYID // gets the signals that the commands are
	Relays  []string

	Prefix string // of the names of what is recorded
	Seed   uint64
}

// Args are the argument of all orders, of which each uses a part.
type Args struct {
	Rate     float64
	Clients  int
	Duration time.Duration
	Bytes    int // of a file
}

// Done is how many calls were made, and how long that took.
type Done struct {
	Calls int
	Took  time.Duration
}

// A worker makes the calls.
type worker struct {
	// Static after construction.
	spec   Spec
	user   *client.User // of a deployment
	http   *http.Client // for a baseline
	rec    *measure.Recorder
	failed *measure.Counter
	wrong  *measure.Counter
	lag    *measure.Latency

	seeded bool // owned by the order small: the small files are there
}

// New makes a worker; it is a [generator.Kind].
func New(_ context.Context, job *generator.Job) (generator.Worker, error) {
	c := &worker{rec: job.Rec}
	if err := job.Decode(&c.spec); err != nil {
		return nil, err
	}
	c.failed, c.wrong = job.Rec.Counter("failed_calls"), job.Rec.Counter("corrupt_files")
	c.lag = job.Rec.Latency(measure.LagName)
	transport := &http.Transport{MaxIdleConnsPerHost: maxCalls}
	if len(c.spec.CA) > 0 {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(c.spec.CA)
		transport.TLSClientConfig = &tls.Config{RootCAs: pool} // HTTP/1.1, as with a relay
	}
	c.http = &http.Client{Transport: transport}
	if len(c.spec.Relays) > 0 {
		c.user = client.NewUser(client.UserOptions{Token: c.spec.Token, Session: c.spec.Session, Relays: c.spec.Relays})
	}
	return c, nil
}

// Close implements [generator.Worker].
func (c *worker) Close() {
	c.http.CloseIdleConnections()
	if c.user != nil {
		c.user.Close()
	}
}

// Do implements [generator.Worker].
func (c *worker) Do(ctx context.Context, order string, arg json.RawMessage) (any, error) {
	var a Args
	if err := json.Unmarshal(arg, &a); err != nil {
		return nil, err
	}
	switch order {
	case OrderCommands:
		return c.open(ctx, a, func(int) (string, func(context.Context) error) { return "command", c.command })
	case OrderFlood:
		return c.closed(ctx, a, c.command)
	case OrderSmall:
		if err := c.seedFiles(ctx, a.Bytes); err != nil {
			return nil, err
		}
		return c.open(ctx, a, func(n int) (string, func(context.Context) error) { return c.small(n, a.Bytes) })
	case OrderUpload:
		return c.upload(ctx, a)
	case OrderDownload:
		return c.download(ctx, a)
	}
	return nil, fmt.Errorf("no order is Done %q", order)
}

// open makes calls when they are due, however long those before take.
func (c *worker) open(ctx context.Context, a Args, next func(n int) (name string, call func(context.Context) error)) (Done, error) {
	var calls sync.WaitGroup
	room := make(chan struct{}, maxCalls)
	start := time.Now()
	n, err := openloop.Each(ctx, a.Rate, a.Duration, func(n int, due time.Time) error {
		c.lag.Record(due, time.Now())
		name, call := next(n)
		select {
		case room <- struct{}{}:
		default:
			c.fail(name, errors.New("too many are under way"))
			return nil
		}
		calls.Go(func() {
			defer func() { <-room }()
			if c.try(ctx, name, call) {
				c.rec.Latency(c.spec.Prefix+name).Record(due, time.Now())
			}
		})
		return nil
	})
	calls.Wait()
	if err != nil {
		return Done{}, err
	}
	return Done{n, time.Since(start)}, ctx.Err()
}

// closed has clients make one call after the other for a while.
func (c *worker) closed(ctx context.Context, a Args, call func(context.Context) error) (Done, error) {
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
	return Done{int(done.Load()), time.Since(start)}, ctx.Err()
}

// try makes a call and counts its failure.
func (c *worker) try(ctx context.Context, name string, call func(context.Context) error) bool {
	limited, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	err := call(limited)
	if err != nil && ctx.Err() == nil {
		c.fail(name, err)
	}
	return err == nil
}

func (c *worker) fail(name string, err error) {
	c.failed.Add(1)
	c.rec.Fail(c.spec.Prefix+name, err)
}

// command has a signal sent that changes nothing.
func (c *worker) command(ctx context.Context) error {
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
func (c *worker) seedFiles(ctx context.Context, size int) error {
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

func (c *worker) smallFile(k, size int) (name string, content []byte) {
	return fmt.Sprintf(".loadtest-small-%d", k), pattern.Noise(c.spec.Seed+uint64(k), size)
}

// small returns the n-th call on small files: one is written, the next one read.
func (c *worker) small(n, size int) (name string, call func(context.Context) error) {
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

func (c *worker) upload(ctx context.Context, a Args) (Done, error) {
	content := pattern.Noise(c.spec.Seed, a.Bytes)
	start := time.Now()
	err := c.put(ctx, largeFile, content)
	return Done{1, time.Since(start)}, err
}

func (c *worker) download(ctx context.Context, a Args) (Done, error) {
	got := &comparison{rest: pattern.Noise(c.spec.Seed, a.Bytes)}
	start := time.Now()
	err := c.get(ctx, largeFile, got)
	took := time.Since(start)
	if err == nil && (got.other || len(got.rest) > 0) {
		c.wrong.Add(1)
	}
	return Done{1, took}, err
}

// A comparison compares what is written to it, which is cheaper than a hash.
type comparison struct {
	rest  []byte // what must still come
	other bool   // something else came
}

func (c *comparison) Write(p []byte) (int, error) {
	n := min(len(p), len(c.rest))
	c.other = c.other || n < len(p) || !bytes.Equal(p, c.rest[:n])
	c.rest = c.rest[n:]
	return len(p), nil
}

func (c *worker) put(ctx context.Context, name string, content []byte) error {
	if c.user != nil {
		return c.user.PutFile(ctx, name, bytes.NewReader(content))
	}
	return c.exchange(ctx, http.MethodPut, c.spec.Files+"/"+name, bytes.NewReader(content), io.Discard)
}

func (c *worker) get(ctx context.Context, name string, to io.Writer) error {
	if c.user != nil {
		return c.user.GetFile(ctx, name, to)
	}
	return c.exchange(ctx, http.MethodGet, c.spec.Files+"/"+name, nil, to)
}

// exchange makes a request of a baseline.
func (c *worker) exchange(ctx context.Context, method, address string, body io.Reader, to io.Writer) error {
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

// Ask gives the one worker of a group an order and returns its answer.
func Ask(ctx context.Context, g *generator.Group, order string, args Args) (Done, error) {
	answers, err := generator.Ask[Done](ctx, g, order, args)
	if err != nil {
		return Done{}, err
	}
	return answers[0], nil
}
