package e2e

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	chaosKills   = flag.Int("chaos.kills", 15, "how often the chaos test kills the relay")
	chaosViewers = flag.Int("chaos.viewers", 20, "how many watch meanwhile, half of them every byte")
	chaosSeed    = flag.Uint64("chaos.seed", 0, "seed of the chaos; 0: a new one")
)

// A chaos is one run: a terminal that prints, viewers who come and go, and a
// relay that is killed again and again.
type chaos struct {
	t       *testing.T
	s       *Stack
	printer *printer
	rng     *rand.Rand
	seats   []*seat
	turn    int // which manner of output is next

	mu sync.Mutex
	// Guarded by mu.
	past  []past // of those who left for good
	check *screenCheck

	// From a kill to a relay that answers, and to a viewer's next socket,
	// greeting and live byte.
	ready, opened, greeted, live []time.Duration
}

// A seat is taken by one viewer after another, all of one sort.
type seat struct {
	sort   string
	user   User // Reload, after a kill, writes to what it was looked up in
	opts   Viewing
	viewer *Viewer
}

type past struct {
	seat *seat
	*Transcript
}

// TestChaos: the relay is killed again and again while a terminal prints, from
// a trickle to a flood, and viewers come and go. Those who want every byte get
// exactly what was printed, the others that without what they were told is
// missing, and all see the right screen.
func TestChaos(t *testing.T) {
	c := newChaos(t, *chaosViewers, []string{"exact", "counting", "exact", "plain"})
	c.run(*chaosKills)
}

// TestChaosWithoutPaceSetters: nobody holds the terminal back, and so viewers
// fall behind in a flood, which they are told.
func TestChaosWithoutPaceSetters(t *testing.T) {
	c := newChaos(t, (*chaosViewers+1)/2, []string{"counting", "plain"})
	c.run((*chaosKills + 4) / 5)
}

func newChaos(t *testing.T, viewers int, sorts []string) *chaos {
	t.Helper()
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-chaos.seed=%d", seed)
	s := own(t)
	c := &chaos{t: t, s: s, printer: startPrinter(t, s, seed), rng: rand.New(rand.NewPCG(seed, 1))}
	c.check = &screenCheck{t: t, stream: c.printer.Stream}
	for i := range viewers {
		c.seats = append(c.seats, c.newSeat(i, sorts[i%len(sorts)]))
	}
	return c
}

func (c *chaos) run(kills int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*patience+time.Duration(kills)*10*time.Second)
	defer cancel()
	for _, st := range c.seats {
		c.sit(ctx, st, "")
	}
	began := time.Now()
	for range kills {
		c.round(ctx)
	}
	took := time.Since(began)
	began = time.Now()
	end := c.printer.finish()
	c.arrive(ctx, end)
	c.t.Logf("%d kills in %v, %d viewers, %d bytes printed; all had them %v after the last kill",
		kills, took.Round(time.Millisecond), len(c.past), end, time.Since(began).Round(time.Millisecond))
	c.t.Logf("from a kill to a relay that answers: %v", quantiles(c.ready))
	c.t.Logf("to a viewer's next socket: %v", quantiles(c.opened))
	c.t.Logf("to its being attached: %v", quantiles(c.greeted))
	c.t.Logf("to its next live byte: %v", quantiles(c.live))
	c.verify()
}

// newSeat returns a seat for one sort of viewer: "exact" wants every byte,
// "counting" speaks terminal.v2, "plain" doesn't.
func (c *chaos) newSeat(i int, sort string) *seat {
	// A name of its own makes a pace-setter the same one when it comes back: one
	// that the relay's death kept from saying goodbye is waited for.
	st := &seat{sort: sort, user: c.s.Ready.User("bob"), opts: Viewing{
		Session: c.s.Ready.SessionID, PTY: c.printer.id, Source: c.printer.Stream, Client: fmt.Sprintf("seat-%d", i),
		Exact: sort == "exact", Plain: sort == "plain",
	}}
	if st.opts.Exact {
		st.user = c.s.Ready.User("alice")
	}
	return st
}

func (c *chaos) sit(ctx context.Context, st *seat, since string) {
	opts := st.opts
	opts.Since = since
	st.viewer = st.user.Watch(ctx, opts)
}

// leave has a seat's viewer leave for good.
func (c *chaos) leave(st *seat) {
	transcript := st.viewer.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range transcript.shown {
		c.check.add(fmt.Sprintf("viewer %d (%s)", len(c.past), st.sort), k, transcript.position)
	}
	transcript.shown = nil
	c.past = append(c.past, past{st, transcript})
}

// upTo returns a random time.
func (c *chaos) upTo(most time.Duration) time.Duration {
	return time.Duration(c.rng.Int64N(int64(most)))
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// output has the terminal print in the next manner, a flood every fourth time.
func (c *chaos) output() {
	c.turn++
	switch c.turn % 4 {
	case 0:
		c.printer.rate(1000 + c.rng.IntN(100_000))
	case 1:
		c.printer.rate(20_000)
		for range 1 + c.rng.IntN(4) {
			c.printer.burst(1 + c.rng.IntN(1<<20))
		}
	case 2:
		c.printer.rate(1_000_000 + c.rng.IntN(10_000_000))
	default:
		c.printer.rate(-1)
	}
}

// round kills the relay once.
func (c *chaos) round(ctx context.Context) {
	c.t.Helper()
	c.output()
	var moving sync.WaitGroup
	for _, st := range c.seats {
		if c.rng.IntN(5) > 0 {
			continue
		}
		before, after := c.upTo(300*time.Millisecond), c.upTo(300*time.Millisecond)
		// One that wants every byte would have to be back before the log, which
		// waits for nobody who has left, has moved on.
		goesOn := !st.opts.Exact && c.rng.IntN(2) == 0
		moving.Go(func() { c.comeAndGo(ctx, st, before, after, goesOn) })
	}
	pause(ctx, c.upTo(400*time.Millisecond))
	pid := c.s.Ready.Relays[0].PID
	killed := time.Now()
	must(c.t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, c.t, c.s, 0, pid)
	c.ready = append(c.ready, time.Since(killed))
	moving.Wait()
	if c.rng.IntN(2) == 0 {
		return // the next kill finds some on their way back
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, st := range c.seats {
		first := func() time.Time {
			if len(st.viewer.connections) == 0 {
				return time.Time{}
			}
			return st.viewer.present().First
		}
		must(c.t, st.viewer.Await(ctx, "live output after a kill", func() bool { return first().After(killed) }))
		if cs := st.viewer.Connections(); len(cs) > 1 && cs[0].Opened.Before(killed) { // who was there
			if back := cs[len(cs)-1]; back.First.After(killed) && cs[len(cs)-2].Opened.Before(killed) {
				c.opened = append(c.opened, back.Opened.Sub(killed))
				c.greeted = append(c.greeted, back.Greeted.Sub(killed))
				c.live = append(c.live, back.First.Sub(killed))
			}
		}
	}
}

// comeAndGo has a viewer leave, and another one come in its place that goes on
// at its position or has none.
func (c *chaos) comeAndGo(ctx context.Context, st *seat, before, after time.Duration, goesOn bool) {
	pause(ctx, before)
	at := st.viewer.Position()
	c.leave(st)
	pause(ctx, after)
	since := ""
	if at.Epoch != 0 && goesOn {
		since = at.String()
	}
	c.sit(ctx, st, since)
}

// arrive waits until everybody has everything, and sees them off.
func (c *chaos) arrive(ctx context.Context, end uint64) {
	c.t.Helper()
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for i, st := range c.seats {
		if err := st.viewer.AwaitOffset(within, end); err != nil {
			c.t.Errorf("viewer %d: %v", i, err)
		}
		c.leave(st)
	}
}

func (c *chaos) verify() {
	c.t.Helper()
	type part struct{ from, to uint64 }
	digests := map[part][sha256.Size]byte{}
	digest := func(from, to uint64) [sha256.Size]byte {
		if _, ok := digests[part{from, to}]; !ok {
			digests[part{from, to}] = c.printer.Digest(from, to)
		}
		return digests[part{from, to}]
	}
	var skips int
	var missing, received uint64
	how := map[string]int{}
	for i, p := range c.past {
		err := p.Verify()
		if p.seat.opts.Exact {
			err = p.VerifyExact(digest)
		}
		if err != nil {
			c.t.Errorf("viewer %d (%s): %v", i, p.seat.sort, err)
		}
		for _, s := range p.Skips() {
			skips++
			how[s.How]++
			missing += s.To - s.From
		}
		received += p.bytes
	}
	c.t.Logf("%d bytes received, %d skips %v of %d bytes", received, skips, how, missing)
	c.check.run()
}

// awaitRelay waits until another process than pid is relay i, and answers.
func awaitRelay(ctx context.Context, t *testing.T, s *Stack, i, pid int) {
	t.Helper()
	await(t, "another relay", func() bool {
		must(t, s.Reload(time.Second))
		return s.Ready.Relays[i].PID != pid
	})
	await(t, "its listeners", func() bool {
		status, _, err := Call(ctx, "GET", s.Ready.Relays[i].AdminURL+"/healthz", "", nil)
		return err == nil && status == 200
	})
}

// quantiles describes durations.
func quantiles(ds []time.Duration) string {
	if len(ds) == 0 {
		return "none"
	}
	slices.Sort(ds)
	q := func(part float64) time.Duration {
		return ds[min(len(ds)-1, int(part*float64(len(ds))))].Round(time.Millisecond / 10)
	}
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, most %v (%d)", q(0.5), q(0.9), q(0.99), ds[len(ds)-1].Round(time.Millisecond/10), len(ds))
}
