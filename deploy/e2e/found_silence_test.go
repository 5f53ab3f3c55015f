package e2e

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/protocol"
)

// A ping is answered, and many are, however fast they come.
func TestFound24PingIsAnswered(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	term := attach(t, s, "carol", s.Ready.PTYID)
	_, err := term.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	for range 1000 {
		must(t, term.Text(ctx, `{"type":"ping"}`))
	}
	_, err = term.ExpectMessage(ctx, "pong", nil)
	must(t, err)
	must(t, term.Text(ctx, `{"type":"ping"}`))
	must(t, term.Text(ctx, `{"type":"nonsense"}`))
	_, err = term.ExpectMessage(ctx, protocol.ServerError, nil)
	must(t, err)
}

// A relay that stands still, with its sockets open, is left for the other one
// while control is kept, and nothing that was typed is lost.
func TestFound24ARelayStandsStill(t *testing.T) {
	s := own(t, "--relays", "2")
	ctx := within(t)
	relays := []string{s.Ready.Relays[0].URL, s.Ready.Relays[1].URL}
	pty, err := newTerminal(ctx, s.Ready.User("alice"), s.Ready.SessionID, "")
	must(t, err)
	watch := func(name string) *Viewer {
		v := s.Ready.User(name).Watch(ctx, Viewing{Session: s.Ready.SessionID, PTY: pty, Relays: relays, Keep: 64 << 10})
		t.Cleanup(func() { v.Close() })
		must(t, v.AwaitLive(ctx))
		return v
	}
	alice, bob := watch("alice"), watch("bob")
	must(t, alice.Await(ctx, "control", func() bool { return alice.control.Controller == alice.user.ID }))
	_, err = alice.Type(ctx, "echo before-$((6*7))\r")
	must(t, err)
	must(t, bob.Await(ctx, "output", func() bool { return bytes.Contains(bob.transcript.Kept(), []byte("before-42")) }))

	home := alice.Connections()[len(alice.Connections())-1].Relay
	i := 0
	if home == relays[1] {
		i = 1
	}
	must(t, syscall.Kill(s.Ready.Relays[i].PID, syscall.SIGSTOP))
	stopped := time.Now()
	goOn := func() { _ = syscall.Kill(s.Ready.Relays[i].PID, syscall.SIGCONT) }
	t.Cleanup(goOn)
	_, err = alice.Type(ctx, "echo during-$((7*7))\r") // nobody answers that for now
	must(t, err)
	for _, v := range []*Viewer{alice, bob} {
		must(t, v.Await(ctx, "the other relay", func() bool { return v.live && v.present().Relay == relays[1-i] }))
		t.Logf("%s is at the other relay after %v", v.user.ID, time.Since(stopped).Round(time.Millisecond))
		must(t, v.Await(ctx, "what was typed meanwhile", func() bool { return bytes.Contains(v.transcript.Kept(), []byte("during-49")) }))
	}
	echoed := time.Since(stopped)
	t.Logf("typed while it stood still, echoed after %v", echoed)
	must(t, alice.Await(ctx, "control", func() bool { return alice.control.Controller == alice.user.ID }))
	if left := alice.Connections()[0]; left.Silent < client.Silence || left.Relay != home {
		t.Errorf("the silent relay was left so: %+v", left)
	}
	// It goes on, and nothing of what it had is done again.
	goOn()
	_, err = alice.Type(ctx, "echo after-$((8*8))\r")
	must(t, err)
	must(t, bob.Await(ctx, "output", func() bool { return bytes.Contains(bob.transcript.Kept(), []byte("after-64")) }))
	if n := bytes.Count(bob.transcript.Kept(), []byte("during-49")); n != 1 {
		t.Errorf("what was typed was executed %d times", n)
	}
}

// The console leaves a relay that stands still, keeps control, and what was typed
// meanwhile is executed.
func TestFound24BrowserLeavesASilentRelay(t *testing.T) {
	s := own(t, "--relays", "2")
	alice := openWindow(t, "silence", s.Ready.Relays[0].URL+"/#token="+s.Ready.Users["alice"].Token, 1440, 900)
	alice.untilText("controller", "You have control")
	alice.typeLine("echo here-$((6*7))")
	alice.untilScreen("\nhere-42")
	// The page is at whichever relay has the terminal.
	i := 0
	if eval[string](alice, `sessionStorage.getItem("fairlead.origin") ?? location.origin`) == s.Ready.Relays[1].URL {
		i = 1
	}
	must(t, syscall.Kill(s.Ready.Relays[i].PID, syscall.SIGSTOP))
	stopped := time.Now()
	t.Cleanup(func() { _ = syscall.Kill(s.Ready.Relays[i].PID, syscall.SIGCONT) })
	alice.typeLine("echo still-$((7*7))")
	alice.untilScreen("\nstill-49")
	t.Logf("echoed %v after the relay stood still", time.Since(stopped).Round(time.Millisecond))
	alice.untilText("controller", "You have control")
	alice.shoot("left")
}
