package tunnel_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// Registrations keep to their rate; who would wait for too long is refused, and
// pauses.
func TestTurns(t *testing.T) {
	turns, now := tunnel.NewTurns(109), time.Now()
	var last time.Duration
	for i := range 1000 {
		wait, ok := turns.Take(now)
		if want := max(time.Duration(i-9)*10*time.Millisecond, 0); ok != (want <= 2*time.Second) || ok && wait != want {
			t.Fatalf("turn %d is in %s, %v; want %s", i, wait, ok, want)
		}
		if ok {
			last = wait
		}
	}
	if wait, ok := turns.Take(now.Add(time.Second)); !ok || wait != last+10*time.Millisecond-time.Second {
		t.Errorf("a second later: %s, %v", wait, ok)
	}
	if wait, ok := turns.Take(now.Add(time.Hour)); !ok || wait != 0 {
		t.Errorf("an hour later: %s, %v", wait, ok)
	}
	slow := tunnel.NewTurns(0.5)
	if wait, ok := slow.Take(now); !ok || wait != 0 {
		t.Errorf("the first of a slow rate: %s, %v", wait, ok)
	}
}

// In no second there are more turns than the rate, however many agents come.
func TestTurnsOfASecond(t *testing.T) {
	for _, rate := range []int{1, 9, 10, 19, 20, 100, 200, 1000} {
		turns, began := tunnel.NewTurns(float64(rate)), time.Now()
		var at []time.Duration
		for ms := range 5000 {
			now := time.Duration(ms) * time.Millisecond
			for range 3 {
				if wait, ok := turns.Take(began.Add(now)); ok {
					at = append(at, now+wait)
				}
			}
		}
		if len(at) < 4*rate {
			t.Errorf("rate %d: %d turns in 5 s", rate, len(at))
		}
		for i := range len(at) - rate {
			if within := at[i+rate] - at[i]; within < time.Second {
				t.Fatalf("rate %d: %d turns in %v", rate, rate+1, within)
			}
		}
	}
}

// Turns that come late, all at once, still begin at the rate.
func TestLateTurns(t *testing.T) {
	turns, now := tunnel.NewTurns(10), time.Now()
	for i := range 10 {
		if wait := turns.Begin(now.Add(time.Duration(i) * time.Millisecond)); wait != 0 {
			t.Fatalf("turn %d waits %v", i, wait)
		}
	}
	if wait := turns.Begin(now.Add(400 * time.Millisecond)); wait != 600*time.Millisecond {
		t.Errorf("the eleventh within a second waits %v", wait)
	}
	if wait := turns.Begin(now.Add(time.Second)); wait != 0 {
		t.Errorf("after a second it waits %v", wait)
	}
	if wait := turns.Begin(now.Add(time.Second)); wait != time.Millisecond {
		t.Errorf("the next waits %v", wait)
	}
}

// Many agents come in at the rate, and who would wait for too long is refused.
func TestReturningAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const agents = 300
		var waited atomic.Int32
		cfg := tunnel.ListenConfig{
			RelayID: tunneltest.RelayID, Registrations: 109,
			Admit: func(ctx context.Context, r *tunnel.Registration) error { return r.AwaitTurn(ctx) },
			Events: &tunnel.Events{Waited: func(d time.Duration) {
				if d > 0 {
					waited.Add(1)
				}
			}},
		}
		tunnel.Ration(&cfg)
		began := time.Now()
		in := make(chan time.Duration, agents)
		var registering sync.WaitGroup
		for range agents {
			near, far := tunneltest.Conns()
			registering.Go(func() {
				if s, err := tunnel.Admit(t.Context(), far, &cfg); err == nil {
					<-s.Done()
					s.Close()
				}
			})
			registering.Go(func() {
				s, err := tunnel.Register(t.Context(), near, tunnel.DialConfig{
					Hello: func(protocol.Challenge, []byte) (protocol.Hello, error) { return tunneltest.Hello(), nil },
				})
				if err == nil {
					in <- time.Since(began)
					s.Close()
				} else if protocol.KindOf(err) != protocol.KindTooMany {
					t.Errorf("refused with %v", err)
				}
			})
		}
		registering.Wait()
		close(in)
		n := 0
		for at := range in {
			if want := max(n-9, 0) * 10; at != time.Duration(want)*time.Millisecond {
				t.Errorf("agent %d is in after %s, not %d ms", n, at, want)
			}
			n++
		}
		if n != 210 || waited.Load() != 200 {
			t.Errorf("%d agents got in, %d waited", n, waited.Load())
		}
	})
}

// Who is refused for the rate is told so, and counted.
func TestRegistrationRate(t *testing.T) {
	outcomes := make(chan tunnel.HandshakeOutcome, 2)
	listener, cfg := listenBoth(t, func(c *tunnel.ListenConfig) {
		c.Registrations = 0.1
		c.Admit = func(ctx context.Context, r *tunnel.Registration) error { return r.AwaitTurn(ctx) }
		c.Events = &tunnel.Events{Handshake: func(_ tunnel.Carrier, o tunnel.HandshakeOutcome, _ time.Duration) { outcomes <- o }}
	})
	agent, err := tunnel.Dial(within(t), cfg)
	must(t, err)
	defer agent.Close()
	_, err = listener.Accept(within(t))
	must(t, err)
	if _, err := tunnel.Dial(within(t), cfg); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("the second is refused with %v", err)
	}
	if first, second := <-outcomes, <-outcomes; first != tunnel.HandshakeRegistered || second != tunnel.HandshakeRate {
		t.Errorf("counted %s and %s", first, second)
	}
}

// An agent that was refused for the rate leaves the relay alone for a while.
func TestBusyPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fatal := errors.New("fatal")
		var last time.Time
		n := 0
		err := tunnel.Run(t.Context(), tunnel.RunConfig{
			Logger: discard(),
			Keeper: dialling{fatal, func(context.Context, string) (*tunnel.Session, error) {
				if pause := time.Since(last); n > 0 && (pause < time.Second || pause > 5*time.Second) {
					t.Errorf("pause %d is %s", n, pause)
				}
				last = time.Now()
				if n++; n == 50 {
					return nil, fatal
				}
				return nil, protocol.Errorf(protocol.KindTooMany, "too many registrations")
			}},
		})
		if !errors.Is(err, fatal) {
			t.Errorf("ended with %v", err)
		}
	})
}
