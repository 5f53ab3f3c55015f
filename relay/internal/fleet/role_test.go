package fleet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

const elsewhere = "https://two.example"

// say sends a ROLE and waits until the relay's end has heard it.
func say(t *testing.T, agent, relay *tunnel.Session, role protocol.Role) {
	t.Helper()
	_, _, changed := relay.Role()
	if err := agent.SendRole(role); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("the relay doesn't hear the role")
	}
}

func primary(generation uint64) protocol.Role {
	return protocol.Role{Primary: true, Generation: generation}
}

func standby(generation uint64, origin string) protocol.Role {
	return protocol.Role{Generation: generation, Origin: origin}
}

// wait calls Wait for at most so long.
func (w *world) wait(d time.Duration) (*tunnel.Session, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	return w.fleet.Wait(ctx, "sb_a")
}

func TestAStandbyIsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		agent, relay := w.mustDial(w.sandbox("sb_a"))
		say(t, agent, relay, standby(2, elsewhere))
		began := time.Now()
		_, err := w.wait(time.Minute)
		moved, ok := errors.AsType[*tunnel.StandbyError](err)
		if !ok || moved.Origin != elsewhere || protocol.KindOf(err) != protocol.KindRestarting {
			t.Errorf("Wait: %v", err)
		}
		if took := time.Since(began); took != patience {
			t.Errorf("sent away after %v", took)
		}
		if session, err := w.fleet.Session("sb_a"); session != relay || err != nil {
			t.Errorf("Session: %p, %v; commands need no primary", session, err)
		}
		say(t, agent, relay, primary(3))
		if session, err := w.wait(time.Minute); err != nil || session != relay {
			t.Errorf("Wait after the promotion: %p, %v", session, err)
		}
		say(t, agent, relay, standby(4, elsewhere))
		if _, err := w.wait(time.Minute); err == nil {
			t.Error("a tunnel that was demoted is used")
		}
		if list := w.fleet.List(); list[0].Role != "standby" {
			t.Errorf("status %+v", list[0])
		}
	})
}

// Waiters go on when the tunnel becomes primary, also those that were about
// to be sent away.
func TestPromotionWakesWaiters(t *testing.T) {
	for _, origin := range []string{"", elsewhere} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			agent, relay := w.mustDial(w.sandbox("sb_a"))
			say(t, agent, relay, standby(2, origin))
			go func() {
				time.Sleep(patience / 2)
				agent.SendRole(primary(3))
			}()
			began := time.Now()
			session, err := w.wait(time.Minute)
			if err != nil || session != relay || time.Since(began) != patience/2 {
				t.Errorf("Wait: %p, %v after %v", session, err, time.Since(began))
			}
		})
	}
}

func TestAStandbyWithoutOriginIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		agent, relay := w.mustDial(w.sandbox("sb_a"))
		say(t, agent, relay, standby(2, ""))
		if _, err := w.wait(time.Minute); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Errorf("Wait: %v", err)
		}
	})
}

// An agent that says no role is primary, once it has had the time to.
func TestSilenceIsPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		_, relay := w.mustDial(w.sandbox("sb_a"))
		began := time.Now()
		for range 2 {
			session, err := w.wait(time.Minute)
			if err != nil || session != relay || time.Since(began) != roleTime {
				t.Errorf("Wait: %p, %v after %v", session, err, time.Since(began))
			}
		}
	})
}

// An old ROLE that comes late changes nothing, and an origin that isn't ours
// is never passed on.
func TestRolesThatDontCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		agent, relay := w.mustDial(w.sandbox("sb_a"))
		say(t, agent, relay, primary(5))
		if err := agent.SendRole(standby(5, elsewhere)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if session, err := w.wait(time.Minute); err != nil || session != relay {
			t.Errorf("Wait: %p, %v", session, err)
		}
		say(t, agent, relay, standby(6, "https://evil.example"))
		if _, err := w.wait(time.Minute); protocol.KindOf(err) != protocol.KindUnavailable {
			t.Errorf("Wait: %v", err)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, firstRelay := w.mustDial(w.sandbox("sb_a"))
		second, secondRelay := w.mustDial(w.sandbox("sb_b"))
		say(t, first, firstRelay, primary(1))
		say(t, second, secondRelay, standby(1, elsewhere))
		w.fleet.Drain([]string{"two.example:4433"}, 9*time.Second)
		for _, agent := range []*tunnel.Session{first, second} {
			m := <-agent.GoAways()
			if m.Reason != protocol.KindRestarting || len(m.Alternates) != 1 || m.DeadlineMS != 9000 {
				t.Errorf("GOAWAY %+v", m)
			}
		}
		if _, _, err := w.dial(w.sandbox("sb_c")); protocol.KindOf(err) != protocol.KindRestarting {
			t.Errorf("a newcomer gets %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			first.SendRole(standby(2, elsewhere))
			time.Sleep(time.Second)
			first.Close()
			second.Close()
		}()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if w.fleet.AwaitHandover(ctx) {
			t.Error("handed over already")
		}
		if !w.fleet.AwaitHandover(t.Context()) || time.Since(began) != time.Second {
			t.Errorf("handed over after %v", time.Since(began))
		}
		if !w.fleet.AwaitEmpty(t.Context()) || time.Since(began) < 2*time.Second {
			t.Errorf("empty after %v", time.Since(began))
		}
	})
}
