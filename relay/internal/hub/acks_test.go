package hub

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// counting seats a viewer that acknowledges, in a hub that no goroutine runs.
func counting(h *Hub, id turn.SocketID) *Viewer {
	return seatAs(h, id, "usr_counts", time.Now().Add(time.Hour), Guest{Counts: true})
}

// says appends content up to an offset to a still hub's feed.
func says(t *testing.T, h *Hub, to uint64) {
	t.Helper()
	for from := h.feed.Head().Offset; from < to; {
		n := min(to-from, protocol.MaxDataBytes)
		if err := h.feed.Append(protocol.Data{Offset: from, Bytes: content(from, from+n)}); err != nil {
			t.Fatal(err)
		}
		h.fanout().deliver()
		from += n
	}
}

// Who doesn't speak terminal.v2 has nothing to acknowledge.
func TestAPlainViewersAck(t *testing.T) {
	h := still()
	plain := seat(h, 2, "usr_plain", time.Now().Add(time.Hour))
	plain.Ack(5)
	if kinds := told(t, plain); kinds[len(kinds)-1] != protocol.ServerError {
		t.Errorf("told %q", kinds)
	}
}

// A stalled viewer costs nothing for each chunk: nobody looks at its position, and
// nobody wakes its writer.
func TestAStalledViewerCostsNothing(t *testing.T) {
	h := still()
	v := counting(h, 1)
	says(t, h, 600_000)
	for more := true; more; {
		_, out := v.reader.Next(nil, false)
		more = out.More
	}
	if !v.reader.Standing().Blocked {
		t.Fatal("it isn't stalled")
	}
	offers := &offering{}
	v.socket.offer = offers
	state := &v.socket.writer.state
	state.Store(writerBusy) // so that a wake-up shows
	before := testing.AllocsPerRun(1, func() {})
	says(t, h, 600_000+protocol.RingBytes/2)
	if offers.begun != 0 || state.Load() != writerBusy || before != 0 {
		t.Errorf("%d offers, writer %d", offers.begun, state.Load())
	}
	v.reader.Acked(100_000)
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
	x.v.reader.StalledFor(protocol.SlowAfter)
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
	if n := testutil.ToFloat64(w.set.metrics.Resyncs.WithLabelValues(feed.ResyncUnacked)); n != 1 {
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
