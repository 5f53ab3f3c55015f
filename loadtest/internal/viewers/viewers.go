package viewers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/loadtest/internal/eventloop"
	"github.com/fairlead/fairlead/loadtest/internal/generator"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/peer"
)

const (
	// together is how many viewers connect at once, when nobody says.
	together = 48
	// pollEvery is how often a condition over all viewers is looked at.
	pollEvery = 5 * time.Millisecond
)

// A worker has the viewers of one process.
type worker struct {
	// Static after construction.
	spec   Spec
	index  int
	of     int
	rec    *measure.Recorder
	loop   *eventloop.Loop
	users  []*client.User  // take turns; of a URL one, who is nobody
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	open   atomic.Int64 // checks that aren't done

	mu       sync.Mutex
	watchers []*watcher // guarded by mu
	armed    *Arm       // guarded by mu
}

// New makes a worker; it is a [generator.Kind].
func New(_ context.Context, job *generator.Job) (generator.Worker, error) {
	var spec Spec
	if err := job.Decode(&spec); err != nil {
		return nil, err
	}
	return newWorker(spec, job.Index, job.Of, job.Rec)
}

func newWorker(spec Spec, index, of int, rec *measure.Recorder) (*worker, error) {
	if spec.URL == "" && (len(spec.PTYs) == 0 || len(spec.Relays) == 0 || len(spec.Tokens) == 0) {
		return nil, errors.New("viewers without a terminal, a relay or people")
	}
	c := &worker{spec: spec, index: index, of: of, rec: rec}
	loop, err := eventloop.NewGathering(rec.Latency(measure.LagName).Record, spec.Gather)
	if err != nil {
		return nil, err
	}
	c.loop = loop
	for _, token := range share(spec.Tokens, index, of) {
		c.users = append(c.users, client.NewUser(client.UserOptions{Token: token, Session: spec.Session, Relays: spec.Relays}))
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// share returns the people of one of several workers: some of its own, so that a
// person's grants are few, or all where they are fewer than workers.
func share(tokens []string, index, of int) (own []string) {
	if len(tokens) == 0 {
		return []string{""}
	}
	if len(tokens) < of {
		return tokens
	}
	for i := index; i < len(tokens); i += of {
		own = append(own, tokens[i])
	}
	return own
}

// Close implements [generator.Worker].
func (c *worker) Close() {
	c.cancel()
	c.leave()
	for _, user := range c.users {
		user.Close()
	}
	c.loop.Close()
}

// Do implements [generator.Worker].
func (c *worker) Do(ctx context.Context, order string, arg json.RawMessage) (any, error) {
	switch order {
	case OrderJoin:
		return obey(ctx, arg, c.join)
	case OrderArm:
		return obey(ctx, arg, c.arm)
	case OrderFinish:
		return obey(ctx, arg, c.finish)
	case OrderResume:
		return obey(ctx, arg, c.resume)
	case OrderCounts:
		return c.counts(), nil
	case OrderLeave:
		c.leave()
		return nil, nil
	}
	return nil, fmt.Errorf("viewers know no order %q", order)
}

func obey[A, R any](ctx context.Context, arg json.RawMessage, do func(context.Context, A) (R, error)) (any, error) {
	var a A
	if err := json.Unmarshal(arg, &a); err != nil {
		return nil, err
	}
	return do(ctx, a)
}

// all returns the viewers so far.
func (c *worker) all() []*watcher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watchers[:len(c.watchers):len(c.watchers)]
}

// join has the viewers come, and waits until they are in.
func (c *worker) join(ctx context.Context, j Join) (Joined, error) {
	ctx, cancel := context.WithTimeout(ctx, j.Within)
	defer cancel()
	if j.Together <= 0 {
		j.Together = together
	}
	dialing := make(chan struct{}, j.Together)
	name := cmp.Or(c.spec.Join, c.spec.Prefix+"join")
	latency, failures := c.rec.Latency(cmp.Or(j.As, name)), c.rec.Counter(name+"_failures")
	n := c.spec.Viewers * max(1, len(c.spec.PTYs))
	if j.Part > 0 {
		n = max(1, int(j.Part*float64(n)+0.5))
	}
	var answer Joined
	var mu sync.Mutex
	var coming sync.WaitGroup
	for i := range n {
		due := time.Now()
		if j.Rate > 0 {
			due = j.Start.Add(time.Duration(float64(i) / j.Rate * float64(time.Second)))
			_ = pause.Until(ctx, due) // whose end everybody notices
		}
		w := c.come(i, dialing)
		coming.Go(func() {
			joining, err := w.viewer.AwaitJoined(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				answer.Failed++
				answer.Why = err.Error()
				failures.Add(1)
				c.rec.Fail("join", err)
				return
			}
			answer.Add(Joined{In: 1, Last: joining.Complete})
			if j.Rate <= 0 {
				due = joining.Asked // all at once: who waits for others isn't asked yet
			}
			latency.Record(due, joining.Complete)
		})
	}
	coming.Wait()
	return answer, nil
}

// come starts viewer i.
func (c *worker) come(i int, dialing chan struct{}) *watcher {
	terminals := max(1, len(c.spec.PTYs))
	w := &watcher{
		terminal: i % terminals, slow: c.spec.Slow, noSum: c.spec.NoSum, open: &c.open,
		received: c.rec.Counter(c.spec.Prefix + "received_bytes"),
	}
	o := client.Options{
		// The viewers of a terminal are spread over the relays, those of
		// several processes as well.
		Relay: i/terminals*c.of + c.index,
		Exact: c.spec.Exact, URL: c.spec.URL, Dialing: dialing, Transport: c.loop,
	}
	if c.spec.Peer == peer.Centrifugo {
		o.Transport = peer.Subscribers(c.loop)
	}
	if c.spec.Rate > 0 {
		o.Transport = c.loop.Limited(c.spec.Rate)
	}
	if c.spec.Receive > 0 {
		o.Dial = eventloop.Dialer(c.spec.Receive)
	}
	if o.URL == "" {
		o.PTY = c.spec.PTYs[w.terminal]
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed != nil {
		w.arm(*c.armed) // nobody calls the watcher yet
	}
	user := c.users[i%len(c.users)]
	if c.spec.OwnGrants {
		user = user.Apart()
	}
	w.viewer = client.Watch(c.ctx, user, o, w)
	c.watchers = append(c.watchers, w)
	return w
}

// arm begins a check of all viewers, those to come as well.
func (c *worker) arm(_ context.Context, a Arm) (struct{}, error) {
	if len(a.Streams) == 0 {
		return struct{}{}, errors.New("a check without a stream")
	}
	for _, s := range a.Streams {
		if err := s.Validate(); err != nil {
			return struct{}{}, err
		}
	}
	a.Delivery = cmp.Or(a.Delivery, c.spec.Prefix+"delivery")
	a.latency = c.rec.Latency(a.Delivery)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = &a
	for _, w := range c.watchers {
		w.viewer.Do(func() { w.arm(a) })
	}
	return struct{}{}, nil
}

// finish ends the check.
func (c *worker) finish(ctx context.Context, f Finish) (Tally, error) {
	c.poll(ctx, f.Deadline, func() bool { return c.open.Load() <= 0 })
	c.poll(ctx, time.Now().Add(f.Settle), func() bool { return false })
	c.mu.Lock()
	c.armed = nil
	c.mu.Unlock()
	var sum Tally
	cut := ctx.Err() != nil
	for _, w := range c.all() {
		w.viewer.Do(func() { sum.Add(w.finish(cut)) })
	}
	prefix := c.spec.Prefix
	for name, n := range map[string]int64{
		"lost_bytes": sum.Lost, "duplicate_bytes": sum.Duplicate, "skipped_bytes": sum.Skipped,
		"corrupt_streams": int64(sum.Viewers - sum.Clean),
	} {
		c.rec.Counter(prefix + name).Add(n)
	}
	if sum.Worst != "" && !c.spec.Slow {
		c.rec.Fail("a viewer didn't get what was printed", errors.New(sum.Worst))
	}
	return sum, nil
}

// poll waits until done, deadline or the end of ctx.
func (c *worker) poll(ctx context.Context, deadline time.Time, done func() bool) {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for !done() && time.Now().Before(deadline) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

const (
	// resumeEarly is how long before its noted time a kill may take effect.
	resumeEarly = 20 * time.Millisecond
	// A socket that is still there resumeQuiet after a kill was not affected.
	resumeQuiet = 2 * time.Second
)

// resume waits until all viewers that lost their sockets have output again.
func (c *worker) resume(ctx context.Context, r Resume) (Resumed, error) {
	var answer Resumed
	all := c.all()
	c.poll(ctx, r.At.Add(r.Within), func() bool {
		answer = Resumed{}
		for _, w := range all {
			w.viewer.Do(func() {
				switch {
				case w.lostAt.Before(r.At.Add(-resumeEarly)):
					answer.Untouched++
				case w.waiting:
					answer.Affected++
				default:
					answer.Affected++
					answer.Back++
				}
			})
		}
		settled := answer.Untouched == 0 || time.Since(r.At) > resumeQuiet
		return settled && answer.Back == answer.Affected
	})
	latency := c.rec.Latency(c.spec.Prefix + "resume")
	for _, w := range all {
		w.viewer.Do(func() {
			switch {
			case w.lostAt.Before(r.At.Add(-resumeEarly)):
			case w.waiting:
				c.rec.Fail("a viewer had no output again in time", w.viewer.LastFailure())
			default:
				latency.Record(r.At, w.backAt)
			}
		})
	}
	return answer, nil
}

func (c *worker) counts() Counts {
	var sum Counts
	for _, w := range c.all() {
		n := w.viewer.Counts()
		sum.Add(Counts{Sockets: n.Sockets, Resyncs: n.Resyncs, Gaps: n.Gaps, Bytes: n.Bytes})
		if w.viewer.Connected() {
			sum.Connected++
		}
	}
	return sum
}

// leave ends all viewers.
func (c *worker) leave() {
	c.mu.Lock()
	all := c.watchers
	c.watchers = nil
	c.mu.Unlock()
	var leaving sync.WaitGroup
	for _, w := range all {
		leaving.Go(w.viewer.Close)
	}
	leaving.Wait()
}
