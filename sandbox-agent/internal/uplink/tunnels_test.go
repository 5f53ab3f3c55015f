package uplink

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// A fakeRelay is the relay's end of a tunnel in memory.
type fakeRelay struct {
	t       *testing.T
	session *tunnel.Session
	heard   uint64 // the generation of the last role
}

// connect registers at a relay in memory. Both ends end with the test.
func connect(t *testing.T, id protocol.RelayID, origin string, alternates ...string) (*tunnel.Session, *fakeRelay) {
	t.Helper()
	near, far := tunneltest.Conns()
	admitted := make(chan *tunnel.Session, 1)
	go func() { // connect waits for it below
		s, _ := tunnel.Admit(context.Background(), far, &tunnel.ListenConfig{
			RelayID: id, Origin: origin, Alternates: func() []string { return alternates },
			Admit:       func(context.Context, *tunnel.Registration) error { return nil },
			TrustOrigin: func(string) bool { return true },
		})
		admitted <- s
	}()
	agent, err := tunnel.Register(context.Background(), near, tunnel.DialConfig{
		Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
	})
	must(t, err)
	relay := <-admitted
	t.Cleanup(func() {
		agent.Close()
		relay.Close()
	})
	return agent, &fakeRelay{t: t, session: relay}
}

// hears waits for the next role and checks it.
func (r *fakeRelay) hears(primary bool, origin string) uint64 {
	r.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		role, _, changed := r.session.Role()
		if role.Generation > r.heard {
			r.heard = role.Generation
			if role.Primary != primary || role.Origin != origin {
				r.t.Errorf("role %+v; want primary %v, origin %q", role, primary, origin)
			}
			return role.Generation
		}
		select {
		case <-changed:
		case <-timeout.C:
			r.t.Fatal("no role comes")
		}
	}
}

// A numbering numbers generations as the ledger does, until it is broken.
type numbering struct {
	n      atomic.Uint64
	broken atomic.Bool
}

func counter() *numbering { return &numbering{} }

func (c *numbering) NextGeneration() (uint64, error) {
	if c.broken.Load() {
		return 0, errors.New("no disk")
	}
	return c.n.Add(1), nil
}

func newSet(addrs ...string) *Tunnels {
	return New(Options{Relays: addrs, Pinned: true, Generations: counter(), Log: slog.New(slog.DiscardHandler)})
}

const originOne, originTwo = "https://one.example", "https://two.example"

func TestTheStandbyIsPromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSet("one:1", "two:1")
		a, one := connect(t, "rl_1", originOne)
		b, two := connect(t, "rl_2", originTwo)
		first := set.arrive(a, "one:1")
		last := one.hears(true, "")
		second := set.arrive(b, "two:1")
		if g := two.hears(false, originOne); g <= last {
			t.Errorf("generation %d after %d", g, last)
		} else {
			last = g
		}
		if set.Primary() != a {
			t.Error("the first is not primary")
		}
		set.depart(first)
		set.depart(first) // is nothing the second time
		if g := two.hears(true, ""); g <= last {
			t.Errorf("generation %d after %d", g, last)
		}
		c, again := connect(t, "rl_1", originOne)
		third := set.arrive(c, "one:1")
		again.hears(false, originTwo)
		set.depart(third) // a standby's end changes nothing
		set.depart(second)
		if set.Primary() != nil {
			t.Error("a tunnel that is over is primary")
		}
		synctest.Wait()
		if role, _, _ := two.session.Role(); role.Generation != two.heard {
			t.Errorf("a superfluous role: %+v", role)
		}
	})
}

// A promotion doesn't wait for a disk: its generation is there already.
func TestPromotionNeedsNoGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		generations := counter()
		set := New(Options{Relays: []string{"one:1", "two:1"}, Pinned: true, Generations: generations, Log: slog.New(slog.DiscardHandler)})
		a, one := connect(t, "rl_1", originOne)
		b, two := connect(t, "rl_2", originTwo)
		first := set.arrive(a, "one:1")
		one.hears(true, "")
		set.arrive(b, "two:1")
		two.hears(false, originOne)
		generations.broken.Store(true)
		set.depart(first)
		two.hears(true, "")
		// Whoever can't be told its role any more is not kept.
		c, _ := connect(t, "rl_1", originOne)
		set.arrive(c, "one:1")
		<-c.Done()
	})
}

func TestMakeBeforeBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSet("one:1", "two:1")
		a, one := connect(t, "rl_1", originOne)
		first := set.arrive(a, "one:1")
		one.hears(true, "")
		if set.replaced(first) {
			t.Error("replaced while nobody else is there")
		}
		set.leave(first)
		synctest.Wait()
		if set.Primary() != a {
			t.Error("the last tunnel was given up")
		}
		select {
		case <-set.hurry[1]:
		default:
			t.Error("nobody hurries to another relay")
		}
		b, two := connect(t, "rl_2", originTwo)
		set.arrive(b, "two:1")
		promoted := two.hears(true, "")
		if demoted := one.hears(false, originTwo); demoted <= promoted {
			t.Errorf("demoted with generation %d, before the promotion with %d", demoted, promoted)
		}
		if !set.replaced(first) || set.Primary() != b {
			t.Error("not handed over")
		}
	})
}

// A tunnel that carries nothing is kept until there is another one, and its relay
// has heard so, or for a while.
func TestHandover(t *testing.T) {
	for _, c := range []struct {
		what          string
		another, kept time.Duration // another 0: none comes
	}{{"in vain", 0, handoverTime}, {"to another one", time.Second, time.Second}} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := newSet("one:1", "two:1")
				k := newKeeper(set, anybody{}, host{})
				near, one := connect(t, "rl_1", originOne)
				other, two := connect(t, "rl_2", originTwo)
				leaving := set.arrive(near, "one:1")
				one.hears(true, "")
				if c.another > 0 {
					time.AfterFunc(c.another, func() { set.arrive(other, "two:1") })
				}
				began := time.Now()
				must(t, k.leave(t.Context(), leaving, protocol.GoAway{Reason: protocol.KindRestarting, DeadlineMS: 20_000}))
				if took := time.Since(began); took < c.kept || took > c.kept+(farewellTicks+2)*streamsInterval {
					t.Errorf("left after %s", took)
				}
				if c.another > 0 {
					two.hears(true, "")
					one.hears(false, originTwo)
				}
			})
		})
	}
}

func TestTheOnlyRelayIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSet("one:1")
		a, _ := connect(t, "rl_1", originOne)
		c := set.arrive(a, "one:1")
		set.leave(c)
		if !set.replaced(c) {
			t.Error("another relay is waited for, and there is none")
		}
	})
}

func TestAddressesInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSet("one:1", "two:1")
		take := func(last string, again bool, want string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if got, err := set.take(ctx, last, again); got != want || (err == nil) != (want != "") {
				t.Errorf("take(%q, %v) = %q, %v; want %q", last, again, got, err, want)
			}
		}
		take("", false, "one:1")
		take("", false, "two:1")
		take("", false, "") // both are in use
		set.release("one:1")
		take("two:1", false, "one:1")
		set.release("one:1")
		take("one:1", true, "one:1")
		set.release("one:1")
		take("one:1", false, "one:1") // the other one is in use

		set.learn([]string{"three:1", "nonsense", "two:1"})
		take("one:1", false, "three:1")
		set.release("three:1")
		set.learn([]string{"four:1"})
		take("three:1", false, "four:1") // what was learned before is gone
		set.learn(nil)
		take("", false, "")

		// An address that leads to a relay that is connected is left out.
		a, _ := connect(t, "rl_1", originOne, "alias:1")
		c := set.arrive(a, "one:1")
		if err := set.meet("alias:1", "rl_1"); !errors.Is(err, errSameRelay) {
			t.Errorf("meet: %v", err)
		}
		take("one:1", false, "")
		set.depart(c)
		take("one:1", false, "alias:1")

		go func() {
			time.Sleep(time.Second / 2)
			set.release("two:1")
		}()
		take("alias:1", false, "two:1")
	})
}

func TestLearnedAddressesAreBounded(t *testing.T) {
	set := newSet("one:1")
	var many []string
	for i := range 100 {
		many = append(many, "relay.example:"+string(rune('1'+i%9))+string(rune('0'+i/9%10)))
	}
	set.learn(many)
	if n := len(set.where.learned); n != maxLearned {
		t.Errorf("%d addresses are kept", n)
	}
}

// A tunnel to a relay that has one takes its place and its role: viewers aren't
// sent to the standby in between.
func TestATunnelReplacesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := newSet("one:1", "two:1")
		a, one := connect(t, "rl_1", originOne)
		b, two := connect(t, "rl_2", originTwo)
		lower := set.arrive(a, "one:1")
		one.hears(true, "")
		set.arrive(b, "two:1")
		standby := two.hears(false, originOne)
		replaced := make(chan time.Duration)
		began := time.Now()
		go func() { // ends with the wait
			set.awaitReplaced(t.Context(), lower)
			replaced <- time.Since(began)
		}()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		c, upper := connect(t, "rl_1", originOne)
		third := set.arrive(c, "one:1")
		upper.hears(true, "")
		if waited := <-replaced; waited != 100*time.Millisecond {
			t.Errorf("waited %s", waited)
		}
		set.depart(lower) // is nothing any more
		if set.Primary() != c || len(set.Sessions()) != 2 {
			t.Errorf("%d tunnels, the primary is %v", len(set.Sessions()), set.Primary())
		}
		synctest.Wait()
		if role, _, _ := two.session.Role(); role.Generation != standby {
			t.Errorf("the standby heard %+v", role)
		}
		began = time.Now()
		set.awaitReplaced(t.Context(), third)
		if waited := time.Since(began); waited != replacedTime {
			t.Errorf("waited %s for nothing", waited)
		}
		c.Close()
		set.awaitReplaced(t.Context(), third)
		if waited := time.Since(began); waited != replacedTime {
			t.Errorf("waited %s for a tunnel that is over", waited-replacedTime)
		}
	})
}
