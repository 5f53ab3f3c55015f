package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound22DeadKeyboardAfterARelayStoodStill: the relay stands still until the
// grace is over, and somebody types meanwhile. What was typed then is refused,
// for control is gone; what is typed on the same socket after control was taken
// anew arrives.
func TestFound22DeadKeyboardAfterARelayStoodStill(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes the grace of 10 s")
	}
	t.Parallel() // it mostly waits
	ctx := within(t)
	s := own(t)
	id := newPTY(t, s, recorder)
	alice := s.Ready.User("alice").Watch(ctx, Viewing{Session: s.Ready.SessionID, PTY: id, Keep: 1 << 20, Once: true})
	t.Cleanup(func() { alice.Close() })
	must(t, alice.Await(ctx, "control", func() bool { return alice.live && alice.control.Controller == alice.user.ID }))
	must(t, alice.AwaitOffset(ctx, uint64(len(ready))))
	typeAll(ctx, t, alice, 0, 10)
	_, err := alice.AwaitWritten(ctx)
	must(t, err)
	term := alice.Control().Term

	relay := s.Ready.Relays[0].PID
	must(t, syscall.Kill(relay, syscall.SIGSTOP))
	await(t, "the relay to stand still", func() bool { return stands(t, relay) }) // a busy machine lets it run on a little
	t.Cleanup(func() { syscall.Kill(relay, syscall.SIGCONT) })
	const lost = 20
	keys := time.NewTicker((protocol.ControlGrace + 4*time.Second) / lost)
	defer keys.Stop()
	for i := range lost { // all along
		_, err := alice.Type(ctx, key(900_000+i))
		must(t, err)
		<-keys.C
	}
	must(t, syscall.Kill(relay, syscall.SIGCONT))
	must(t, alice.Await(ctx, "the loss of control", func() bool { return alice.control.Controller == "" }))
	must(t, alice.Say(ctx, protocol.ClientTakeControl))
	must(t, alice.Await(ctx, "control again", func() bool {
		return alice.control.Controller == alice.user.ID && alice.control.Term > term
	}))
	typeAll(ctx, t, alice, 10, 20)
	must(t, alice.AwaitOffset(ctx, uint64(len(ready)+20*len(key(0)))))
	refused, err := alice.AwaitWritten(ctx)
	must(t, err)
	compareKeys(t, typed(t, s.Ready.Sandboxes[0].PID, 20), 20)
	if len(refused) != lost {
		t.Errorf("%d inputs were refused, want %d: %v", len(refused), lost, refused)
	}
	if n := len(alice.Connections()); n != 1 {
		t.Errorf("%d sockets", n)
	}
}
