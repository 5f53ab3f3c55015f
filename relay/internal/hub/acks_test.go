package hub

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// counting seats a viewer that acknowledges, in a hub that no goroutine runs.
func counting(h *Hub, id turn.SocketID) *Viewer {
	v := seat(h, id, "usr_counts", time.Now().Add(time.Hour))
	v.counts = true
	return v
}

// says appends content up to an offset to a still hub's feed.
func says(t *testing.T, h *Hub, to uint64) {
	t.Helper()
	for from := h.feed.position().Offset; from < to; {
		n := min(to-from, protocol.MaxDataBytes)
		if err := h.feed.data(protocol.Data{Offset: from, Bytes: content(from, from+n)}); err != nil {
			t.Fatal(err)
		}
		h.feed.deliver()
		from += n
	}
}

// takes has v's writer send all it may, and returns how many bytes of output
// and keyframes that was.
func takes(t *testing.T, v *Viewer) (n int, out outcome) {
	t.Helper()
	for {
		frames, out := v.hub.feed.next(v, nil)
		for _, b := range frames {
			for len(b) > 0 {
				head := b
				payload, rest, err := parse(head)
				if err != nil {
					frames[0] = nil // a header apart from its payload: the rest of a frame
					n += len(b)
					break
				}
				if head[0] == 0x82 {
					n += len(payload)
				}
				b = rest
			}
		}
		if !out.more {
			return n, out
		}
	}
}

func TestWhatIsUnacknowledgedIsBounded(t *testing.T) {
	h := still()
	v := counting(h, 1)
	says(t, h, 900_000)
	n, _ := takes(t, v)
	if n > protocol.MaxOutputUnacked || n < protocol.MaxOutputUnacked-2*protocol.MaxDataBytes {
		t.Errorf("%d bytes are sent", n)
	}
	for acked := uint64(0); acked < 900_000; {
		acked = min(acked+protocol.AckBytes, uint64(n))
		out := h.feed.acked(v, acked)
		if out.lost != "" {
			t.Fatalf("moved ahead: %s", out.lost)
		}
		more, _ := takes(t, v)
		n += more
		if n-int(acked) > protocol.MaxOutputUnacked {
			t.Fatalf("%d bytes are unacknowledged", n-int(acked))
		}
	}
	if n != 900_000 || v.held.Load() {
		t.Errorf("%d bytes came, held %v", n, v.held.Load())
	}
}

// Acks of what was never sent, or sent before, change nothing.
func TestNonsenseAcks(t *testing.T) {
	h := still()
	v := counting(h, 1)
	says(t, h, 600_000)
	n, _ := takes(t, v)
	for _, offset := range []uint64{uint64(n) + 1, 1 << 62, 0} {
		if out := h.feed.acked(v, offset); out != (ackOutcome{}) {
			t.Errorf("an ack of %d: %+v", offset, out)
		}
	}
	if more, _ := takes(t, v); more != 0 {
		t.Errorf("%d bytes more are sent", more)
	}
	plain := seat(h, 2, "usr_plain", time.Now().Add(time.Hour))
	plain.Ack(5)
	if kinds := told(t, plain); kinds[len(kinds)-1] != protocol.ServerError {
		t.Errorf("told %q", kinds)
	}
}

// One that stands at its limit is moved ahead by the next ack, and not before.
func TestOneWhoStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := still()
		v := counting(h, 1)
		says(t, h, 300_000)
		n, _ := takes(t, v)
		time.Sleep(protocol.SlowAfter - time.Millisecond)
		if out := h.feed.acked(v, 20_000); out.lost != "" || !out.wake {
			t.Fatalf("%+v in time", out)
		}
		more, _ := takes(t, v)
		time.Sleep(protocol.SlowAfter)
		if more, out := takes(t, v); more != 0 || out.lost != "" {
			t.Fatalf("%d bytes, %+v without an ack", more, out)
		}
		if out := h.feed.acked(v, 40_000); out.lost != resyncUnacked {
			t.Fatalf("%+v, though it stood for %v", out, 2*protocol.SlowAfter)
		}
		if out := h.feed.acked(v, 50_000); out.lost != "" {
			t.Fatalf("moved ahead twice: %+v", out)
		}

		// It gets a keyframe, whose bytes are on its account with all that it
		// had not acknowledged, until it has shown it.
		kf := &keyframe{offset: 300_000, bytes: 10_000, frames: net.Buffers{{0x82, 0}}}
		if err := h.feed.keyframe(kf); err != nil {
			t.Fatal(err)
		}
		h.feed.moveBehind(v, kf)
		if got, want := v.place.unacked(), 10_000+n+more-50_000; got != want {
			t.Errorf("%d bytes are unacknowledged, want %d", got, want)
		}
		h.feed.acked(v, 300_000) // before the keyframe was sent: of another time
		if v.place.window.debt == 0 {
			t.Error("paid before it was sent")
		}
		takes(t, v)
		h.feed.acked(v, 300_000)
		if got := v.place.unacked(); got != 0 {
			t.Errorf("%d bytes are unacknowledged", got)
		}
	})
}

// One that acknowledges too little at a time is as slow as one that stands;
// one that moves is not.
// TestOneWhoseSocketIsFull: a writer that waits at the socket is as slow as one
// that stands at its limit, and what is taken from it meanwhile says so.
func TestOneWhoseSocketIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := still()
		v := counting(h, 1)
		says(t, h, 100_000)
		takes(t, v)
		says(t, h, 200_000) // which the writer has no chance to take
		for at := uint64(10_000); at < 30_000; at += 10_000 {
			if out := h.feed.acked(v, at); out.lost != "" {
				t.Fatalf("%+v in time", out)
			}
			time.Sleep(protocol.SlowAfter - time.Millisecond)
		}
		if out := h.feed.acked(v, 30_000); out.lost != resyncUnacked {
			t.Fatalf("%+v after %v", out, 2*protocol.SlowAfter)
		}
	})
}

// TestNothingBehindAKeyframe: who was too slow gets no more until the keyframe
// is shown, and then the next one if that is better than what has come since.
func TestNothingBehindAKeyframe(t *testing.T) {
	for name, tt := range map[string]struct {
		since uint64 // bytes behind the keyframe when it is shown
		again bool
	}{
		"little": {protocol.AckBytes, false},
		"much":   {protocol.AckBytes + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := still()
			v := counting(h, 1)
			says(t, h, 300_000)
			h.feed.mu.Lock()
			h.feed.lose(v, resyncUnacked)
			v.place.told = true
			h.feed.mu.Unlock()
			kf := &keyframe{offset: 300_000, bytes: 10, frames: net.Buffers{{0x82, 0}}}
			if err := h.feed.keyframe(kf); err != nil {
				t.Fatal(err)
			}
			h.feed.moveBehind(v, kf)
			says(t, h, 300_000+tt.since)
			takes(t, v)
			if at := v.place.sent(); at != 300_000 {
				t.Fatalf("it was sent what is behind the keyframe, up to %d", at)
			}
			out := h.feed.acked(v, 300_000)
			if again := out.lost == resyncUnacked; again != tt.again || out.wake == tt.again {
				t.Errorf("%+v, %d bytes behind", out, tt.since)
			}
			if n, _ := takes(t, v); !tt.again && n != int(tt.since) {
				t.Errorf("%d bytes follow, want %d", n, tt.since)
			}
		})
	}
}

func TestHowSlowIsSlow(t *testing.T) {
	for name, c := range map[string]struct {
		rate int // bytes a second
		want string
	}{
		"64 kbit/s": {8_000, resyncUnacked},
		"1 Mbit/s":  {125_000, resyncUnacked},
		"4 Mbit/s":  {500_000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := still()
				v := counting(h, 1)
				head, acked := uint64(0), uint64(0)
				for range 100 {
					head += uint64(c.rate)/10 + 10_000 // ever a little more than it takes
					says(t, h, head)
					takes(t, v)
					time.Sleep(100 * time.Millisecond)
					acked = min(acked+uint64(c.rate)/10, v.place.sent())
					if out := h.feed.acked(v, acked); out.lost != "" {
						if out.lost != c.want && out.lost != resyncRing {
							t.Errorf("moved ahead: %s", out.lost)
						}
						if c.want == "" && out.lost == resyncUnacked {
							t.Error("one that moves is moved ahead")
						}
						return
					}
				}
				if c.want != "" {
					t.Error("never moved ahead")
				}
			})
		})
	}
}

// Who fell out of the ring is moved by its next ack; at once when it owes none.
func TestOneWhoFallsOut(t *testing.T) {
	h := still()
	v := counting(h, 1)
	says(t, h, 100_000)
	n, _ := takes(t, v)
	says(t, h, 100_000+2*protocol.RingBytes)
	if _, out := takes(t, v); out.lost != "" {
		t.Errorf("moved ahead without an ack")
	}
	if out := h.feed.acked(v, uint64(n)/2); out.lost != resyncRing {
		t.Errorf("%+v", out)
	}

	idle := counting(h, 2) // begins at a line, near the head
	n, _ = takes(t, idle)
	h.feed.acked(idle, idle.place.sent())
	n2, _ := takes(t, idle)
	for idle.place.sent() < h.feed.position().Offset {
		h.feed.acked(idle, idle.place.sent())
		more, _ := takes(t, idle)
		n2 += more
	}
	h.feed.acked(idle, idle.place.sent())
	says(t, h, 100_000+4*protocol.RingBytes)
	if _, out := takes(t, idle); out.lost != resyncRing {
		t.Errorf("%+v, after %d and %d bytes", out, n, n2)
	}
}

// One who gets every byte is never moved ahead: it reads the agent's log.
func TestExactIsNeverSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := still()
		v := counting(h, 1)
		v.exact = true
		says(t, h, 600_000)
		takes(t, v)
		time.Sleep(10 * protocol.SlowAfter)
		if out := h.feed.acked(v, 1000); out.lost != "" {
			t.Errorf("%+v", out)
		}
		at := v.place.sent()
		says(t, h, 600_000+8*protocol.RingBytes)
		_, out := takes(t, v)
		if out.lost != "" || !out.fill || v.place.state != filling || v.place.sent() != at {
			t.Errorf("%+v, state %d at %d, want %d", out, v.place.state, v.place.sent(), at)
		}
	})
}

// A stalled viewer costs nothing for each chunk: nobody looks at its place, and
// nobody wakes its writer.
func TestAStalledViewerCostsNothing(t *testing.T) {
	h := still()
	v := counting(h, 1)
	says(t, h, 600_000)
	takes(t, v)
	if !v.held.Load() {
		t.Fatal("it isn't stalled")
	}
	offers := &offering{}
	v.offer = offers
	for len(v.wake) > 0 {
		<-v.wake
	}
	before := testing.AllocsPerRun(1, func() {})
	says(t, h, 600_000+protocol.RingBytes/2)
	if offers.begun != 0 || len(v.wake) != 0 || before != 0 {
		t.Errorf("%d offers, %d wake-ups", offers.begun, len(v.wake))
	}
	h.feed.acked(v, 100_000)
	says(t, h, 600_000+protocol.RingBytes/2+1)
	if offers.begun != 1 {
		t.Errorf("%d offers after an ack", offers.begun)
	}
}

// offering counts what the stream's reader does with it.
type offering struct {
	sink
	begun int
}

func (o *offering) Begin() bool { o.begun++; return false }

func (o *offering) Offer(net.Buffers) (bool, error) { return true, nil }

// A slow viewer of the real thing: it stops acknowledging, and is shown the
// present when it does again.
func TestASlowViewerIsShownThePresent(t *testing.T) {
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Lease: held(3, 2)})
	x := w.joinAs(bob, Guest{Counts: true, Since: at(0)})
	fast := reads(w.joinAs(carol, Guest{Counts: true, Since: at(0)}))
	fast.ack = true
	a := w.attached()
	var head uint64
	for range 4 { // the fast one has nothing to stand still for
		head = a.prints(head, head+100_000)
		fast.to(head)
	}
	r := reads(x)
	for r.at < protocol.MaxOutputUnacked-protocol.MaxDataBytes {
		r.step()
	}
	x.v.hub.feed.mu.Lock()
	x.v.place.window.stint.since = time.Now().Add(-protocol.SlowAfter)
	x.v.hub.feed.mu.Unlock()
	x.v.Ack(r.at)
	if want := a.answersKeyframe(head); want.History {
		t.Error("with history")
	}
	head = a.prints(head, head+50_000)
	r.ack = true
	for r.resyncs == 0 {
		r.step()
	}
	r.to(head)
	fast.to(head)
	for range 4 {
		head = a.prints(head, head+100_000)
		r.to(head)
		fast.to(head)
	}
	if r.keyed != 1 || fast.resyncs != 0 {
		t.Errorf("%d keyframes, %d resyncs of the fast one", r.keyed, fast.resyncs)
	}
	if n := testutil.ToFloat64(w.set.metrics.Resyncs.WithLabelValues(resyncUnacked)); n != 1 {
		t.Errorf("%v resyncs are counted", n)
	}
}

// A terminal floods while viewers of all sorts come, from anywhere in its log:
// each gets a keyframe's state, then every byte from there on.
func TestJoiningAFlood(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const total = 6 << 20
	w := newWorld(t, protocol.TerminalOpened{Epoch: testEpoch, Offset: 500_000, Head: 500_000, Lease: held(3, 2)})
	w.serves(0, 0)
	first := reads(w.joinAs(carol, Guest{Since: at(500_000)}))
	a := w.attached()

	var running sync.WaitGroup // waited for below
	progress := make(chan uint64, 1)
	go func() { floods(a, 500_000, total, progress) }() // ends with the stream
	running.Go(func() { first.to(total) })
	for range 24 {
		g := Guest{Counts: random.IntN(2) == 0}
		head, more := <-progress
		if !more {
			head = total
		}
		switch random.IntN(4) {
		case 0: // a newcomer
		case 1:
			g.Since = at(random.Uint64N(head))
		case 2:
			g.Since = &protocol.Position{Epoch: 99, Offset: random.Uint64N(head)}
		case 3:
			g.Astray = true
		}
		g.Exact = random.IntN(4) == 0
		r := reads(w.joinAs(record(bob), g))
		r.ack = true
		running.Go(func() {
			r.to(total)
			if r.attached.Mode == protocol.ModeResume && r.attached.Offset != 0 && (g.Since == nil || r.attached.Offset != g.Since.Offset) {
				t.Errorf("%+v of %+v", r.attached, g)
			}
			if g.Exact && r.resyncs > 0 {
				t.Errorf("%d resyncs of one who gets every byte", r.resyncs)
			}
		})
	}
	running.Wait()
}

// floods prints content as fast as it is taken, with keyframes in between where
// the hub wants some, and says how far it has come.
func floods(a *attach, from, to uint64, progress chan uint64) {
	for ; from < to; from = a.prints(from, min(from+100_000, to)) {
		select {
		case progress <- from:
		default:
		}
		for waits := true; waits; {
			select {
			case m, ok := <-a.heard:
				if want, is := m.(protocol.WantKeyframe); ok && is {
					a.keyframe(from, want.History)
				}
				waits = ok
			default:
				waits = false
			}
		}
	}
	close(progress)
	for m := range a.heard { // until the stream ends
		if want, is := m.(protocol.WantKeyframe); is {
			a.keyframe(to, want.History)
		}
	}
}

// TestEveryByteBehindAnOldKeyframe: a keyframe is shown late, and the ring has
// gone on. Who gets every byte misses none behind it, others get the next one.
func TestEveryByteBehindAnOldKeyframe(t *testing.T) {
	for _, exact := range []bool{false, true} {
		h := still()
		v := counting(h, 1)
		v.exact = exact
		says(t, h, 100_000)
		kf := &keyframe{offset: 100_000, cols: 80, rows: 24, bytes: 10_000, frames: net.Buffers{{0x82, 0}}}
		if err := h.feed.keyframe(kf); err != nil {
			t.Fatal(err)
		}
		says(t, h, 100_000+2*protocol.RingBytes)
		h.feed.mu.Lock()
		h.feed.sitBehind(v, kf)
		h.feed.mu.Unlock()
		_, out := h.feed.next(v, nil)
		if v.place.offset != kf.offset || (v.place.state == filling) != exact || out.fill != exact {
			t.Errorf("exact %v: %+v, %+v", exact, v.place, out)
		}
	}
}

// TestFound28KeyframeDebtIsNotPaidEarly: only an ack that nobody can send who has
// not shown the keyframe gives back what it took. One that was under way before,
// or is of an offset before it, doesn't, however the window came to be so.
func TestFound28KeyframeDebtIsNotPaidEarly(t *testing.T) {
	behind := func(t *testing.T, h *Hub, v *Viewer) int {
		says(t, h, 100_000)
		takes(t, v)
		h.feed.mu.Lock()
		h.feed.lose(v, resyncUnacked)
		v.place.told = true
		h.feed.mu.Unlock()
		says(t, h, 300_000)
		kf := &keyframe{offset: 300_000, bytes: 10_000, frames: net.Buffers{{0x82, 0}}}
		if err := h.feed.keyframe(kf); err != nil {
			t.Fatal(err)
		}
		h.feed.moveBehind(v, kf)
		return v.place.window.debt
	}
	for name, c := range map[string]struct {
		before func(v *Viewer)
		ack    uint64
		paid   bool
	}{
		"the keyframe isn't sent": {func(*Viewer) {}, 300_000, false},
		"of what came before": {func(v *Viewer) {
			takes(t, v)
			v.place.window.acked = 50_000
		}, 100_000, false},
		"a byte before it": {func(v *Viewer) {
			takes(t, v)
			v.place.window.acked = 0
		}, 299_999, false},
		"older than the last": {func(v *Viewer) { takes(t, v) }, 299_999, false},
		"of another log": {func(v *Viewer) {
			takes(t, v)
			v.place.run++
		}, 300_000, false},
		"of the keyframe": {func(v *Viewer) { takes(t, v) }, 300_000, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := still()
			v := counting(h, 1)
			debt := behind(t, h, v)
			if debt < 10_000 {
				t.Fatalf("a debt of %d", debt)
			}
			c.before(v)
			out := h.feed.acked(v, c.ack)
			if got := v.place.window.debt; (got == 0) != c.paid || got != 0 && got != debt {
				t.Errorf("%d of %d are owed after an ack of %d: %+v", got, debt, c.ack, out)
			}
			if !c.paid && out != (ackOutcome{}) {
				t.Errorf("%+v", out)
			}
		})
	}
}

// TestFound28AcksDontGoBack: an ack that was overtaken by a later one takes
// nothing back.
func TestFound28AcksDontGoBack(t *testing.T) {
	h := still()
	v := counting(h, 1)
	says(t, h, 200_000)
	takes(t, v)
	h.feed.acked(v, 150_000)
	if out := h.feed.acked(v, 100_000); out != (ackOutcome{}) || v.place.unacked() != 50_000 {
		t.Errorf("%+v, %d bytes are unacknowledged", out, v.place.unacked())
	}
}
