package feed

import (
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newFeed returns a feed of a terminal that has said nothing yet.
func newFeed() *Feed {
	return New(Options{
		Opened: protocol.TerminalOpened{Epoch: 7, Cols: 80, Rows: 24}, Window: protocol.RingBytes,
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
}

// A consumer counts what a feed wants of it.
type consumer struct{ pushes, wakes int }

// push counts what a feed offers.
func push(batch []*Reader) {
	for _, r := range batch {
		r.consumer.(*consumer).pushes++
	}
}

func (c *consumer) Wake() { c.wakes++ }

// attach returns a reader of f that acknowledges, where a newcomer begins.
func attach(t *testing.T, f *Feed) *Reader {
	t.Helper()
	r := &Reader{}
	r.Init(f, &consumer{}, Start{}, true, false)
	if _, ok := r.Attach(false); !ok {
		t.Fatal("not attached")
	}
	return r
}

// says appends output up to an offset.
func says(t *testing.T, f *Feed, to uint64) {
	t.Helper()
	for from := f.Head().Offset; from < to; {
		n := min(to-from, protocol.MaxDataBytes)
		if err := f.Append(protocol.Data{Offset: from, Bytes: make([]byte, n)}); err != nil {
			t.Fatal(err)
		}
		f.Deliver(push)
		from += n
	}
}

// takes has r's consumer send all it may, and returns how many bytes of output
// and keyframes that was.
func takes(t *testing.T, r *Reader) (n int, out Outcome) {
	t.Helper()
	for {
		frames, out := r.Next(nil, false)
		for _, b := range frames {
			for len(b) > 0 {
				head := b
				payload, rest, err := relaytest.Frame(head)
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
		if !out.More {
			return n, out
		}
	}
}

// screenAt gives f a keyframe of a size, with or without history.
func screenAt(t *testing.T, f *Feed, offset uint64, bytes int) *Keyframe {
	t.Helper()
	kf := &Keyframe{offset: offset, cols: 80, rows: 24, bytes: bytes, frames: net.Buffers{{0x82, 0}}}
	if err := f.AddKeyframe(kf); err != nil {
		t.Fatal(err)
	}
	return kf
}

// tooSlow takes r's output away, as an ack of a reader that is too slow does.
func tooSlow(r *Reader) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.lose(ResyncUnacked)
	r.pos.told = true
}

// TestNobodyIsMovedBack: a reader that was too slow, and for whom no keyframe comes,
// is moved ahead to a line, or stays where it is, but never goes back.
func TestNobodyIsMovedBack(t *testing.T) {
	f := newFeed()
	r := attach(t, f)
	says(t, f, 100_000)
	takes(t, r)
	at := r.pos.sent()
	if at == 0 {
		t.Fatal("nothing was taken")
	}
	tooSlow(r)
	if skipped := r.SkipToLine(); skipped != 0 || r.pos.sent() != at {
		t.Errorf("%d bytes were skipped, from %d to %d", skipped, at, r.pos.sent())
	}
	says(t, f, at+protocol.MaxReplayBytes+50_000)
	tooSlow(r)
	if skipped := r.SkipToLine(); skipped == 0 || r.pos.sent() != at+skipped {
		t.Errorf("%d bytes were skipped, from %d to %d", skipped, at, r.pos.sent())
	}
}
