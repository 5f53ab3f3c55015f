package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// spillingStack starts a stack whose agent is replaced by one that spills to
// dir, and a printer in its sandbox.
func spillingStack(ctx context.Context, t *testing.T, dir string, perTerminal int, seed uint64) (*Stack, *printer) {
	t.Helper()
	s := own(t)
	agent, output := startAgent(t, copyState(t, s), "--spill-dir", dir, "--spill-per-terminal", strconv.Itoa(perTerminal))
	awaitText(ctx, t, output.String, "connected")
	awaitText(ctx, t, func() string { return s.Logs("sandbox-agent-1") }, "took over")
	t.Cleanup(func() {
		if t.Failed() {
			log := output.String()
			t.Logf("the spilling agent:\n%s", log[max(0, len(log)-4000):])
		}
	})
	p := startPrinterIn(t, seed, agent.Process.Pid, func(command string) protocol.PTYID { return newPTY(t, s, command) })
	return s, p
}

// TestSpilledOutput: with a place on disk an agent serves what its memory and
// the relay's hold no longer, to viewers and to those who fetch it.
func TestSpilledOutput(t *testing.T) {
	ctx := within(t)
	s, p := spillingStack(ctx, t, filepath.Join(t.TempDir(), "spill"), 64<<20, 12)
	first := p.watch(ctx, s, "alice", Viewing{Exact: true})
	must(t, first.AwaitLive(ctx))
	p.burst(20_000_000)
	end := p.finish()
	must(t, first.AwaitOffset(ctx, end))
	epoch := first.Position().Epoch
	must(t, first.Close().VerifyExact(p.Digest))

	asked := time.Now()
	for _, at := range []uint64{0, 7_777_777, end - 2_000_000} {
		v := p.watch(ctx, s, "bob", Viewing{Since: protocol.Position{Epoch: epoch, Offset: at}.String()})
		must(t, v.AwaitOffset(ctx, end))
		a := v.Connections()[0].Attached
		transcript := v.Close()
		must(t, transcript.Verify())
		if a.Mode != protocol.ModeResume || len(transcript.Segments()) != 1 {
			t.Errorf("since %d: attached %+v, segments %v", at, a, transcript.Segments())
		}
	}
	t.Logf("%d old bytes to three viewers in %v", 3*end-7_777_777-(end-2_000_000), time.Since(asked).Round(time.Millisecond))
	status, position, body := getLog(ctx, t, s, p.id, fmt.Sprintf("from=%v:0", epoch))
	if status != http.StatusOK || uint64(len(body)) != end || p.Mismatch(0, body) >= 0 {
		t.Errorf("the log: status %d, %d bytes from %s of %d", status, len(body), position, end)
	}
}

// TestSpillIsBounded: what no longer fits is missing, and everybody is told.
func TestSpillIsBounded(t *testing.T) {
	ctx := within(t)
	s, p := spillingStack(ctx, t, filepath.Join(t.TempDir(), "spill"), 8<<20, 13)
	spilled(ctx, t, s, p)
}

// TestSpillDiskFull: a full disk costs old output and nothing else.
func TestSpillDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a small disk")
	}
	ctx := within(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	s, p := spillingStack(ctx, t, filepath.Join(dir, "spill"), 64<<20, 14)
	spilled(ctx, t, s, p)
}

// spilled prints more than can be kept. Who watches gets it all; who asks for
// the beginning afterwards is told that it is missing, and gets the rest.
func spilled(ctx context.Context, t *testing.T, s *Stack, p *printer) {
	t.Helper()
	first := p.watch(ctx, s, "alice", Viewing{Exact: true})
	must(t, first.AwaitLive(ctx))
	p.burst(30_000_000)
	end := p.finish()
	must(t, first.AwaitOffset(ctx, end))
	epoch := first.Position().Epoch
	must(t, first.Close().VerifyExact(p.Digest))
	v := p.watch(ctx, s, "bob", Viewing{Since: protocol.Position{Epoch: epoch}.String()})
	must(t, v.AwaitOffset(ctx, end))
	a := v.Connections()[0].Attached
	transcript := v.Close()
	must(t, transcript.Verify())
	if len(transcript.Skips()) == 0 && a.Offset == 0 {
		t.Errorf("nothing is missing: attached %+v", a)
	}
	status, position, body := getLog(ctx, t, s, p.id, fmt.Sprintf("from=%v:0", epoch))
	at, err := protocol.ParsePosition(position)
	if status != http.StatusOK || err != nil || at.Offset == 0 || at.Offset+uint64(len(body)) != end || p.Mismatch(at.Offset, body) >= 0 {
		t.Errorf("the log: status %d, %d bytes from %q, of %d", status, len(body), position, end)
	}
	t.Logf("of %d bytes the last %d are held; who asked for the first one was attached with %q at %d, skips %v",
		end, len(body), a.Mode, a.Offset, transcript.Skips())
}
