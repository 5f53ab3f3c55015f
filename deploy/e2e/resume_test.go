package e2e

import (
	"context"
	"fmt"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// TestOldPositionsAfterAKill: a relay that has just started holds nothing.
// Viewers who ask it for old positions get the bytes from there on all the
// same, from the agent's log.
func TestOldPositionsAfterAKill(t *testing.T) {
	ctx := within(t)
	s := own(t)
	p := startPrinter(t, s, 6)
	first := p.watch(ctx, s, "alice", Viewing{Exact: true})
	must(t, first.AwaitLive(ctx))
	p.burst(3_500_000)
	end := p.finish()
	must(t, first.AwaitOffset(ctx, end))
	epoch := first.Position().Epoch
	must(t, first.Close().Verify())
	pid := s.Ready.Relays[0].PID
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, t, s, 0, pid)
	asked := time.Now()
	viewers := map[uint64]*Viewer{}
	for i := range uint64(6) {
		at := i*(end/6) + 17*i
		viewers[at] = p.watch(ctx, s, "bob", Viewing{Since: protocol.Position{Epoch: epoch, Offset: at}.String()})
	}
	var received uint64
	for at, v := range viewers {
		must(t, v.AwaitOffset(ctx, end))
		a := v.Connections()[0].Attached
		if a.Mode != protocol.ModeResume || a.Offset != at {
			t.Errorf("since %d: attached %+v", at, a)
		}
		received += end - at
	}
	t.Logf("%d viewers had %d old bytes %v after they asked", len(viewers), received, time.Since(asked).Round(time.Millisecond))
	p.burst(100_000)
	end = p.finish()
	for at, v := range viewers {
		must(t, v.AwaitOffset(ctx, end))
		transcript := v.Close()
		must(t, transcript.Verify())
		if len(transcript.Segments()) != 1 {
			t.Errorf("since %d: %v", at, transcript.Segments())
		}
	}
}

// TestPositionsThatNeverWere: whoever asks for one is told so and sees the
// terminal all the same.
func TestPositionsThatNeverWere(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	p := startPrinter(t, s, 7)
	first := p.watch(ctx, s, "bob", Viewing{})
	must(t, first.AwaitLive(ctx))
	p.burst(3 << 20)
	end := p.stop()
	must(t, first.AwaitOffset(ctx, end))
	epoch := first.Position().Epoch
	cases := map[string]string{
		"garbage":           "garbage",
		"no offset":         fmt.Sprintf("%v:", epoch),
		"an offset alone":   "12",
		"a negative offset": fmt.Sprintf("%v:-1", epoch),
		"a huge offset":     fmt.Sprintf("%v:99999999999999999999999", epoch),
		"another epoch":     protocol.Position{Epoch: epoch ^ 1, Offset: 10}.String(),
		"the future":        protocol.Position{Epoch: epoch, Offset: end + 1}.String(),
		"the far future":    protocol.Position{Epoch: epoch, Offset: 1 << 60}.String(),
	}
	viewers := map[string]*Viewer{}
	for name, since := range cases {
		viewers[name] = p.watch(ctx, s, "carol", Viewing{Since: since, Once: true})
	}
	for name, v := range viewers {
		if err := v.AwaitLive(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
			delete(viewers, name)
		}
	}
	p.burst(1000)
	end = p.finish()
	check := &screenCheck{t: t, stream: p.Stream}
	for name, v := range viewers {
		must(t, v.AwaitOffset(ctx, end))
		a := v.Connections()[0].Attached
		if a.Mode != protocol.ModeGap && a.Mode != protocol.ModeKeyframe {
			t.Errorf("%s: attached %+v", name, a)
		}
		transcript := v.Close()
		must(t, transcript.Verify())
		for _, k := range transcript.Keyframes() {
			k.Joined = true // it had nothing before
			check.add(name, k, end)
		}
	}
	check.run()
}

// getLog fetches a part of a terminal's log.
func getLog(ctx context.Context, t *testing.T, s *Stack, id protocol.PTYID, query string) (int, string, []byte) {
	t.Helper()
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("%s/sessions/%s/ptys/%s/log?%s", alice.Base, s.Ready.SessionID, id, query), nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+grant)
	return download(t, req)
}

// TestLogIsServed: any part of the log that the agent holds can be fetched.
func TestLogIsServed(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	p := startPrinter(t, s, 8)
	first := p.watch(ctx, s, "bob", Viewing{})
	must(t, first.AwaitLive(ctx))
	p.burst(2 << 20)
	end := p.stop()
	must(t, first.AwaitOffset(ctx, end))
	epoch := first.Position().Epoch
	for _, part := range []struct{ from, to uint64 }{{0, end}, {0, 1}, {100_000, 1_000_001}, {end - 1, end}, {end, end}} {
		status, position, body := getLog(ctx, t, s, p.id, fmt.Sprintf("from=%v:%d&to=%d", epoch, part.from, part.to))
		if status != http.StatusOK || uint64(len(body)) != part.to-part.from || p.Mismatch(part.from, body) >= 0 {
			t.Errorf("[%d, %d): status %d, %d bytes, the wrong one %d", part.from, part.to, status, len(body), p.Mismatch(part.from, body))
		}
		if want := (protocol.Position{Epoch: epoch, Offset: part.from}).String(); position != want {
			t.Errorf("position %q, want %q", position, want)
		}
	}
	status, _, body := getLog(ctx, t, s, p.id, fmt.Sprintf("from=%v:5", epoch))
	if status != http.StatusOK || uint64(len(body)) != end-5 {
		t.Errorf("without an end: status %d, %d bytes of %d", status, len(body), end)
	}
	for query, want := range map[string]int{
		"from=garbage":                    http.StatusBadRequest,
		fmt.Sprintf("from=%v:0", epoch^1): http.StatusNotFound,
	} {
		if status, _, body := getLog(ctx, t, s, p.id, query); status != want {
			t.Errorf("%s: status %d, want %d: %.200s", query, status, want, body)
		}
	}
}
