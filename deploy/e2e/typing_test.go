package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

var (
	typingKeys = flag.Int("typing.keys", 1000, "how many keystrokes are typed")
	typingCuts = flag.Int("typing.cuts", 10, "how often the browser's socket is cut meanwhile")
	typingLoss = flag.Float64("typing.loss", 0.1, "part of the datagrams between agent and relay that gets lost")
	typingSeed = flag.Uint64("typing.seed", 1, "decides which")
)

// key is the i-th keystroke: no two are alike.
func key(i int) string { return fmt.Sprintf("%06d;", i) }

// recorder is a command that keeps what is typed in the file typed. What is
// typed before it says ready may be echoed by the terminal too.
const (
	recorder = "stty raw -echo -opost; printf " + ready + "; exec tee typed"
	ready    = "ready"
)

// typeAll types keystrokes [from, to).
func typeAll(ctx context.Context, t *testing.T, v *Viewer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		_, err := v.Type(ctx, key(i))
		must(t, err)
	}
}

// compareKeys compares what a program read with the first n keystrokes.
func compareKeys(t *testing.T, read []byte, n int) {
	t.Helper()
	var want bytes.Buffer
	for i := range n {
		want.WriteString(key(i))
	}
	if bytes.Equal(read, want.Bytes()) {
		return
	}
	at := 0
	for at < min(len(read), want.Len()) && read[at] == want.Bytes()[at] {
		at++
	}
	t.Errorf("%d bytes were read, %d typed; they differ from %d on: %.40q, want %.40q", len(read), want.Len(), at, read[at:], want.Bytes()[at:])
}

// typed returns what recorder has kept, once that is n keystrokes: what it shows
// of them may be there before they are in its file.
func typed(t *testing.T, agent, n int) (read []byte) {
	t.Helper()
	path := filepath.Join(workspace(t, agent), "typed")
	await(t, "what was typed", func() bool {
		var err error
		read, err = os.ReadFile(path)
		must(t, err)
		return len(read) >= n*len(key(0))
	})
	return read
}

// TestEveryKeystrokeOnce: the browser's socket is cut again and again while
// somebody types, and datagrams between relay and agent get lost. The program
// reads every keystroke once, in order.
func TestEveryKeystrokeOnce(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience+time.Duration(*typingCuts)*5*time.Second)
	defer cancel()
	s := own(t)
	lossy, err := impair.ListenUDP(impair.UDPConfig{Target: s.Ready.Relays[0].Tunnel, Seed: *typingSeed})
	must(t, err)
	t.Cleanup(func() { lossy.Close() })
	agent, output := startAgent(t, copyState(t, s), "--relays", lossy.Addr())
	awaitText(ctx, t, output.String, "connected")
	awaitText(ctx, t, func() string { return s.Logs("sandbox-agent-1") }, "took over")

	id := newPTY(t, s, recorder)
	line := slowLine(t, s)
	alice := s.Ready.User("alice").Watch(ctx, Viewing{
		Session: s.Ready.SessionID, PTY: id, Dial: line.Dial, Keep: 16 * *typingKeys,
	})
	t.Cleanup(func() { alice.Close() })
	must(t, alice.Await(ctx, "control", func() bool { return alice.control.Controller == alice.user.ID }))
	must(t, alice.AwaitOffset(ctx, uint64(len(ready))))
	must(t, lossy.SetProfile(impair.Both(impair.Path{Loss: *typingLoss})))
	began := time.Now()
	for cut := range *typingCuts {
		from, to := cut**typingKeys / *typingCuts, (cut+1)**typingKeys / *typingCuts
		sockets := len(alice.Connections())
		typeAll(ctx, t, alice, from, (from+to)/2)
		line.Cut()
		typeAll(ctx, t, alice, (from+to)/2, to)
		must(t, alice.Await(ctx, "another socket", func() bool { return len(alice.connections) > sockets && alice.live }))
	}
	refused, err := alice.AwaitWritten(ctx)
	must(t, err)
	took := time.Since(began)
	must(t, lossy.SetProfile(impair.Profile{}))
	if len(refused) > 0 {
		t.Fatalf("%d keystrokes were refused, the first as %v", len(refused), refused[0])
	}
	must(t, alice.AwaitOffset(ctx, uint64(len(ready)+*typingKeys*len(key(0)))))
	compareKeys(t, typed(t, agent.Process.Pid, *typingKeys), *typingKeys)
	transcript := alice.Close()
	must(t, transcript.Verify())
	compareKeys(t, bytes.TrimPrefix(transcript.Kept(), []byte(ready)), *typingKeys)
	counts := lossy.Counts()
	passed, lost := counts.Up.Passed+counts.Down.Passed, counts.Up.Lost+counts.Down.Lost
	t.Logf("%d keystrokes over %d sockets in %v, %d of %d datagrams lost", *typingKeys, len(alice.Connections()), took.Round(time.Millisecond), lost, passed+lost)
}

// TestTypingAcrossAKill: what is typed while the relay dies and comes back is
// read once.
func TestTypingAcrossAKill(t *testing.T) {
	ctx := within(t)
	s := own(t)
	id := newPTY(t, s, recorder)
	alice := s.Ready.User("alice").Watch(ctx, Viewing{Session: s.Ready.SessionID, PTY: id, Keep: 1 << 20})
	t.Cleanup(func() { alice.Close() })
	must(t, alice.Await(ctx, "control", func() bool { return alice.control.Controller == alice.user.ID }))
	must(t, alice.AwaitOffset(ctx, uint64(len(ready))))
	const kills, keys = 3, 200
	for i := range kills {
		typeAll(ctx, t, alice, i*keys, i*keys+keys/2)
		pid := s.Ready.Relays[0].PID
		must(t, syscall.Kill(pid, syscall.SIGKILL))
		typeAll(ctx, t, alice, i*keys+keys/2, (i+1)*keys)
		awaitRelay(ctx, t, s, 0, pid)
	}
	refused, err := alice.AwaitWritten(ctx)
	must(t, err)
	if len(refused) > 0 {
		t.Fatalf("%d keystrokes were refused, the first as %v", len(refused), refused[0])
	}
	must(t, alice.AwaitOffset(ctx, uint64(len(ready)+kills*keys*len(key(0)))))
	compareKeys(t, typed(t, s.Ready.Sandboxes[0].PID, kills*keys), kills*keys)
	if got := alice.Control(); got.Controller != s.Ready.User("alice").ID {
		t.Errorf("control is now %+v", got)
	}
	if closed := alice.Close(); closed.Verify() != nil {
		t.Error(closed.Verify())
	}
}
