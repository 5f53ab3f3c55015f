package e2e

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

var (
	flowRate    = flag.Int("flow.rate", 32_000, "bytes per second of the slow line; 8000 is 64 kbit/s")
	flowViewers = flag.Int("flow.viewers", 20, "how many watch beside one whose line stands still")
)

// relayHeap returns the relay's live heap in bytes, after a collection.
func relayHeap(ctx context.Context, t *testing.T, s *Stack) int {
	t.Helper()
	status, body, err := Call(ctx, http.MethodGet, s.Ready.Relays[0].AdminURL+"/debug/pprof/heap?gc=1&debug=1", "", nil)
	must(t, err)
	_, rest, ok := bytes.Cut(body, []byte("# HeapAlloc = "))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(line))
	if status != http.StatusOK || !ok || err != nil {
		t.Fatalf("the relay's heap: status %d, %q", status, line)
	}
	return n
}

// metric returns the sum of a counter of the first relay over all its labels.
func metric(ctx context.Context, t *testing.T, s *Stack, name string) float64 {
	t.Helper()
	return metricAt(ctx, t, s, 0, name)
}

// metricAt is metric of another relay.
func metricAt(ctx context.Context, t *testing.T, s *Stack, relay int, name string) float64 {
	t.Helper()
	_, body, err := Call(ctx, http.MethodGet, s.Ready.Relays[relay].AdminURL+"/metrics", "", nil)
	must(t, err)
	sum := 0.0
	for scanner := bufio.NewScanner(bytes.NewReader(body)); scanner.Scan(); {
		series, value, _ := strings.Cut(scanner.Text(), " ")
		if base, _, _ := strings.Cut(series, "{"); base == name {
			n, err := strconv.ParseFloat(value, 64)
			must(t, err)
			sum += n
		}
	}
	return sum
}

// slowLine dials the stack's relay through a line of its own.
func slowLine(t *testing.T, s *Stack) *impair.TCP {
	t.Helper()
	_, addr, _ := strings.Cut(s.Ready.Relays[0].URL, "://")
	l, err := impair.ListenTCP(impair.TCPConfig{Target: addr})
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// Of a burst that runs for burstTime.
const (
	burstRate = 5_000_000
	burstTime = 3 * time.Second
)

// burstHeap has the printer print a burst and returns the median of the
// relay's heap meanwhile.
func burstHeap(ctx context.Context, t *testing.T, s *Stack, p *printer) int {
	t.Helper()
	p.rate(burstRate / slowdown)
	var heaps []int
	for began := time.Now(); time.Since(began) < burstTime; {
		heaps = append(heaps, relayHeap(ctx, t, s))
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	slices.Sort(heaps)
	return heaps[len(heaps)/2]
}

// held is how long a busy machine may hold up what follows the pace of a line.
const held = 8 * time.Second

// TestSlowLineShowsThePresent: somebody on a slow line, of a terminal that
// prints far more than it takes, costs the relay little and sees the right
// screen as soon as the line can bring what is in flight and a keyframe.
func TestSlowLineShowsThePresent(t *testing.T) {
	ctx := within(t)
	s := own(t)
	p := startPrinter(t, s, 1)
	fast := p.watch(ctx, s, "bob", Viewing{})
	must(t, fast.AwaitLive(ctx))
	burstHeap(ctx, t, s, p) // grows what grows once
	without := burstHeap(ctx, t, s, p)
	must(t, fast.AwaitOffset(ctx, p.stop()-mostHeld))

	line := slowLine(t, s)
	must(t, line.SetProfile(impair.Both(impair.Path{Rate: 8 * int64(*flowRate), Queue: 4 << 10})))
	var got []time.Time // when a frame came
	var sizes []int
	slow := p.watch(ctx, s, "bob", Viewing{Dial: line.Dial, Render: func(b []byte) {
		got, sizes = append(got, time.Now()), append(sizes, len(b)) // one at a time
	}})
	must(t, slow.AwaitLive(ctx))
	with := burstHeap(ctx, t, s, p)
	burst := time.Now()
	end := p.finish()
	must(t, fast.AwaitOffset(ctx, end))
	ended := time.Now()
	must(t, slow.AwaitOffset(ctx, end))
	took := time.Since(ended)

	t.Logf("heap of the relay in a burst: %d KiB without, %d KiB with a viewer on a slow line", without>>10, with>>10)
	if extra := with - without; extra > 512<<10 {
		t.Errorf("the viewer on the slow line takes %d KiB of the relay's memory", extra>>10)
	}
	transcript := slow.Close()
	must(t, transcript.Verify())
	late := 0 // bytes, in flight and of the keyframe
	for i, at := range got {
		if at.After(ended) {
			late += sizes[i]
		}
	}
	allowed := time.Duration(late)*time.Second/time.Duration(*flowRate) + held
	keyframes := transcript.Keyframes()
	t.Logf("at %d bytes/s: the right screen %v after the end of %v of output (%v after its last byte was elsewhere), with %d bytes that came meanwhile; %d resyncs, skips %v",
		*flowRate, took.Round(time.Millisecond), burstTime, ended.Sub(burst).Round(time.Millisecond), late, slow.Resyncs(), transcript.Skips())
	if took > allowed {
		t.Errorf("it took %v, longer than the line needs, %v", took, allowed)
	}
	if most := protocol.MaxOutputUnacked + 64<<10; late > most {
		t.Errorf("%d bytes were under way when the output ended, more than %d", late, most)
	}
	if slow.Resyncs() == 0 {
		t.Error("it was never moved ahead")
	}
	check := &screenCheck{t: t, stream: p.Stream}
	for i, k := range keyframes {
		check.add(fmt.Sprintf("keyframe %d", i), k, end)
	}
	check.run()
}

// TestViewerWhoStandsStill: one viewer whose line stands still holds up none
// of the others, and is counted.
func TestViewerWhoStandsStill(t *testing.T) {
	ctx := within(t)
	s := own(t)
	p := startPrinter(t, s, 2)
	line := slowLine(t, s)
	stalled := p.watch(ctx, s, "bob", Viewing{Dial: line.Dial})
	var others []*Viewer
	for range *flowViewers {
		others = append(others, p.watch(ctx, s, "carol", Viewing{}))
	}
	for _, v := range append(others, stalled) {
		must(t, v.AwaitLive(ctx))
	}
	line.Stall(impair.Duplex, true)
	began := time.Now()
	// No faster than a line that can't be read, and no faster than the others on
	// a busy machine: they must not seem slow.
	const bursts, pace = 50, 100 * time.Millisecond
	size := 100_000 / slowdown
	for i := range bursts {
		p.burst(size)
		for _, v := range others {
			must(t, v.AwaitOffset(ctx, uint64((i+1)*size-mostHeld)))
		}
		pause(ctx, time.Until(began.Add(time.Duration(i+1)*pace)))
	}
	end := p.finish()
	for _, v := range others {
		must(t, v.AwaitOffset(ctx, end))
	}
	t.Logf("%d viewers had %d bytes after %v", len(others), end, time.Since(began).Round(time.Millisecond))
	behind := stalled.Position()
	line.Stall(impair.Duplex, false)
	must(t, stalled.AwaitOffset(ctx, end))
	for i, v := range others {
		transcript := v.Close()
		must(t, transcript.Verify())
		if len(transcript.Skips()) > 0 || v.Resyncs() > 0 {
			t.Errorf("viewer %d was skipped: %v", i, transcript.Skips())
		}
	}
	must(t, stalled.transcript.Verify())
	resyncs, cut := metric(ctx, t, s, "fairlead_resyncs_total"), metric(ctx, t, s, "fairlead_viewers_cut_total")
	t.Logf("the other one stood at %d; resyncs %d, sockets %d; counted: %v resyncs, %v cut",
		behind.Offset, stalled.Resyncs(), len(stalled.Connections()), resyncs, cut)
	if stalled.Resyncs() == 0 && len(stalled.Connections()) == 1 {
		t.Error("it was neither moved ahead nor cut")
	}
	if resyncs+cut < 1 {
		t.Error("nothing was counted")
	}
}
