package e2e

import (
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// TestControlOutlivesTheRelay: the relay dies under a controller. Others are
// back first and can't take over; the controller is back within the grace and
// types as before, under the same term.
func TestControlOutlivesTheRelay(t *testing.T) {
	ctx := within(t)
	s := own(t)
	line := slowLine(t, s)
	watch := func(name string, opts Viewing) *Viewer {
		opts.Session, opts.PTY, opts.Keep = s.Ready.SessionID, s.Ready.PTYID, 1<<20
		v := s.Ready.User(name).Watch(ctx, opts)
		t.Cleanup(func() { v.Close() })
		return v
	}
	alice := watch("alice", Viewing{Dial: line.Dial})
	must(t, alice.Await(ctx, "control", func() bool { return alice.live && alice.control.Controller == alice.user.ID }))
	bob := watch("bob", Viewing{})
	must(t, bob.AwaitLive(ctx))
	term := alice.Control().Term

	line.Refuse(true)
	line.Cut()
	killed := time.Now()
	pid := s.Ready.Relays[0].PID
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	_, err := alice.Type(ctx, "echo back-$((6*7))\r") // while there is no relay
	must(t, err)
	must(t, bob.Await(ctx, "back", func() bool { return bob.live && bob.present().Greeted.After(killed) }))
	bobs := time.Since(killed)
	if got := bob.Control(); got.Controller != s.Ready.User("alice").ID || got.Term != term {
		t.Errorf("bob is back and told %+v", got)
	}
	intruder, err := s.Ready.User("bob").Attach(ctx, s.Ready.SessionID, s.Ready.PTYID, "")
	must(t, err)
	t.Cleanup(intruder.Close)
	must(t, intruder.Say(ctx, Message{"type": "take_control"}))
	must(t, intruder.Type(ctx, "echo intruder\r"))
	_, err = intruder.ExpectMessage(ctx, protocol.ServerInputRefused, nil)
	must(t, err)

	line.Refuse(false)
	must(t, alice.Await(ctx, "back", func() bool { return alice.live && alice.present().Greeted.After(killed) }))
	alices := time.Since(killed)
	if got := alice.Control(); got.Controller != s.Ready.User("alice").ID || got.Term != term {
		t.Errorf("alice is back and told %+v, term before %d", got, term)
	}
	must(t, alice.Await(ctx, "the end of the grace", func() bool { return alice.control.GraceMS == 0 }))
	refused, err := alice.AwaitWritten(ctx)
	must(t, err)
	if len(refused) > 0 {
		t.Errorf("refused: %v", refused)
	}
	must(t, intruder.Expect(ctx, "back-42\r\n"))
	t.Logf("bob was back after %v, the controller after %v", bobs.Round(time.Millisecond), alices.Round(time.Millisecond))
}

// TestControlIsReleasedOnce: a controller who doesn't come back after the
// relay's death has lost control after the grace, and everybody hears it once.
func TestControlIsReleasedOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the grace of 10 s")
	}
	t.Parallel()
	ctx := within(t)
	s := own(t)
	alice := attach(t, s, "alice", s.Ready.PTYID)
	_, err := alice.ExpectMessage(ctx, protocol.ServerControlState, controller(s.Ready.User("alice").ID))
	must(t, err)
	pid := s.Ready.Relays[0].PID
	killed := time.Now()
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, t, s, 0, pid)
	bob := attach(t, s, "bob", s.Ready.PTYID)
	_, err = bob.ExpectMessage(ctx, protocol.ServerControlExpired, nil)
	must(t, err)
	after := time.Since(killed)
	// The agent's grace begins when it notices, or when the new relay tells it,
	// which may be late on a busy machine, and never early.
	if after < protocol.ControlGrace-time.Second || after > 3*protocol.ControlGrace {
		t.Errorf("control was released %v after the kill", after)
	}
	must(t, bob.Say(ctx, Message{"type": "take_control"}))
	_, err = bob.ExpectMessage(ctx, protocol.ServerControlTaken, controller(s.Ready.User("bob").ID))
	must(t, err)
	expired := 0
	for _, m := range bob.Messages() {
		if m.Type() == protocol.ServerControlExpired {
			expired++
		}
	}
	if expired != 1 {
		t.Errorf("control_expired came %d times", expired)
	}
	t.Logf("released %v after the kill", after.Round(time.Millisecond))
}

// drainTimeout is a relay's default.
const drainTimeout = 10 * time.Second

// TestDrain: a relay that is told to end says that it isn't ready, sends its
// viewers away with 1012, and is gone within its time.
func TestDrain(t *testing.T) {
	ctx := within(t)
	s := own(t)
	p := startPrinter(t, s, 9)
	var viewers []*Viewer
	for range 10 {
		viewers = append(viewers, p.watch(ctx, s, "bob", Viewing{}))
	}
	exact := p.watch(ctx, s, "alice", Viewing{Exact: true})
	viewers = append(viewers, exact)
	for _, v := range viewers {
		must(t, v.AwaitLive(ctx))
	}
	p.rate(1_000_000)
	must(t, exact.AwaitOffset(ctx, 100_000))
	before := s.Ready.Relays[0]
	told := time.Now()
	must(t, syscall.Kill(before.PID, syscall.SIGTERM))
	notReady := false
	await(t, "the end of the relay", func() bool {
		status, _, err := Call(ctx, http.MethodGet, before.AdminURL+"/readyz", "", nil)
		notReady = notReady || err == nil && status == http.StatusServiceUnavailable
		return !alive(before.PID)
	})
	ended := time.Since(told)
	if ended > drainTimeout+held {
		t.Errorf("the relay ended %v after SIGTERM", ended)
	}
	var away []time.Duration
	for i, v := range viewers {
		must(t, v.Await(ctx, "another socket", func() bool { return len(v.connections) > 1 && v.live }))
		first := v.Connections()[0]
		if first.Code != websocket.StatusServiceRestart {
			t.Errorf("viewer %d was closed with %v", i, first.Code)
		}
		away = append(away, v.Connections()[1].Greeted.Sub(first.Ended))
	}
	end := p.finish()
	for _, v := range viewers {
		must(t, v.AwaitOffset(ctx, end))
	}
	must(t, exact.Close().VerifyExact(p.Digest))
	t.Logf("ended %v after SIGTERM, seen not ready: %v; viewers were away for %v", ended.Round(time.Millisecond), notReady, quantiles(away))
}

// TestDrainMovesViewers: with another relay at hand they are told where to go,
// and miss nothing.
func TestDrainMovesViewers(t *testing.T) {
	ctx := within(t)
	s := own(t, "--relays", "2")
	p := startPrinter(t, s, 10)
	origins := map[string]int{s.Ready.Relays[0].URL: 0, s.Ready.Relays[1].URL: 1}
	exact := p.watch(ctx, s, "alice", Viewing{Exact: true})
	must(t, exact.AwaitLive(ctx))
	primary := 0
	if moved := exact.Connections()[0].Moved; moved != "" {
		primary = origins[moved]
	}
	p.rate(1_000_000)
	must(t, exact.AwaitOffset(ctx, 100_000))
	sockets := len(exact.Connections())
	told := time.Now()
	must(t, syscall.Kill(s.Ready.Relays[primary].PID, syscall.SIGTERM))
	must(t, exact.Await(ctx, "another socket", func() bool { return len(exact.connections) > sockets && exact.live && !exact.present().First.IsZero() }))
	cs := exact.Connections()
	last := cs[sockets-1]
	if want := s.Ready.Relays[1-primary].URL; last.Moved != want || last.Code != websocket.StatusServiceRestart {
		t.Errorf("sent away with %v to %q, want 1012 to %q", last.Code, last.Moved, want)
	}
	end := p.finish()
	must(t, exact.AwaitOffset(ctx, end))
	must(t, exact.Close().VerifyExact(p.Digest))
	t.Logf("live at the other relay %v after SIGTERM, away for %v", cs[len(cs)-1].First.Sub(told).Round(time.Millisecond), cs[len(cs)-1].First.Sub(last.Ended).Round(time.Millisecond))
}
