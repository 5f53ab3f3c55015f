package e2e

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

var (
	joinViewers = flag.Int("join.viewers", 200, "how many join a terminal that prints, within join.within")
	joinWithin  = flag.Duration("join.within", slowdown*2*time.Second, "how soon they all join")
)

// joinSample is how many of those who join have their screens compared.
const joinSample = 50

// joinAll has joinViewers join within joinWithin.
func joinAll(ctx context.Context, t *testing.T, user User, opts Viewing) []*Viewer {
	t.Helper()
	viewers := make([]*Viewer, *joinViewers)
	began := time.Now()
	for i := range viewers {
		pause(ctx, time.Until(began.Add(time.Duration(i)**joinWithin/time.Duration(len(viewers)))))
		viewers[i] = user.Watch(ctx, opts)
		t.Cleanup(func() { viewers[i].Close() })
	}
	return viewers
}

// TestManyJoin: a crowd joins a terminal in the middle of its output. Each
// gets a keyframe and the live bytes after it, and so the screen that
// somebody sees who was there from the start; keyframes are shared.
func TestManyJoin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := own(t)
	p := startPrinter(t, s, 3)
	first := p.watch(ctx, s, "bob", Viewing{})
	must(t, first.AwaitLive(ctx))
	p.burst(2<<20 + 12345)
	p.rate(10_000_000 / *joinViewers / (slowdown * slowdown))
	must(t, first.AwaitOffset(ctx, 2<<20))
	carol := s.Ready.User("carol")
	grant, err := carol.Grant(ctx, s.Ready.SessionID)
	must(t, err)

	began := time.Now()
	viewers := joinAll(ctx, t, carol, Viewing{Session: s.Ready.SessionID, PTY: p.id, Source: p.Stream, Grant: grant})
	for _, v := range viewers {
		must(t, v.Await(ctx, "the first output", func() bool { return len(v.connections) > 0 && !v.present().First.IsZero() }))
	}
	joined := time.Since(began)
	end := p.finish()
	check := &screenCheck{t: t, stream: p.Stream}
	keyframes := map[[sha256.Size]byte]int{}
	modes := map[string]int{}
	var took []time.Duration
	skipped := 0
	for i, v := range viewers {
		must(t, v.AwaitOffset(ctx, end))
		transcript := v.Close()
		if err := transcript.Verify(); err != nil {
			t.Errorf("viewer %d: %v", i, err)
		}
		if len(transcript.Segments()) != 1 || len(v.Connections()) != 1 {
			skipped++
		}
		c := v.Connections()[0]
		modes[c.Attached.Mode]++
		took = append(took, c.First.Sub(c.Began))
		for _, k := range transcript.Keyframes() {
			keyframes[sha256.Sum256(k.Bytes)]++
			if i%max(1, len(viewers)/joinSample) == 0 {
				check.add(fmt.Sprintf("viewer %d", i), k, end)
			}
		}
	}
	t.Logf("%d joined in %v; from asking for a ticket to the first frame: %v; modes %v, %d different keyframes",
		len(viewers), joined.Round(time.Millisecond), quantiles(took), modes, len(keyframes))
	if skipped > 0 {
		t.Errorf("%d viewers were skipped or cut", skipped)
	}
	if modes[protocol.ModeKeyframe] != len(viewers) {
		t.Errorf("modes %v, want a keyframe for everybody", modes)
	}
	// One is made each KeyframeInterval at most, and lives for the ring's 1 MiB
	// or until 64 KiB were printed after it.
	if most := 2 + int(joined/protocol.KeyframeInterval); len(keyframes) > most {
		t.Errorf("%d different keyframes within %v, more than %d", len(keyframes), joined, most)
	}
	check.run()
}

// TestJoinAtTheStart: of a terminal that has printed little a newcomer gets
// everything, without a keyframe.
func TestJoinAtTheStart(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	p := startPrinter(t, s, 4)
	p.burst(10_000)
	end := p.stop() - mostHeld
	first := p.watch(ctx, s, "bob", Viewing{})
	must(t, first.AwaitOffset(ctx, end))
	v := p.watch(ctx, s, "carol", Viewing{})
	must(t, v.AwaitOffset(ctx, end))
	for _, v := range []*Viewer{first, v} {
		if a := v.Connections()[0].Attached; a.Mode != protocol.ModeResume || a.Offset != 0 || a.KeyframeBytes != 0 {
			t.Errorf("attached %+v", a)
		}
		must(t, v.Close().Verify())
	}
}

// mostHeld is how much the agent may hold back of output that ends in what
// could become a terminal query, in bytes.
const mostHeld = 256

// TestJoinAnywhere: viewers join at many moments of an output that stands
// still there, in the middle of characters and sequences, too.
func TestJoinAnywhere(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	p := startPrinter(t, s, 5)
	p.burst(3 << 20)
	check := &screenCheck{t: t, stream: p.Stream}
	for i := range 12 {
		p.burst(40_000 + 7*i)
		at := p.stop()
		v := p.watch(ctx, s, "carol", Viewing{})
		must(t, v.AwaitLive(ctx))
		p.burst(1000)
		must(t, v.AwaitOffset(ctx, p.stop()-mostHeld))
		transcript := v.Close()
		must(t, transcript.Verify())
		for _, k := range transcript.Keyframes() {
			check.add(fmt.Sprintf("joined at %d", at), k, transcript.Position().Offset)
		}
	}
	check.run()
}
