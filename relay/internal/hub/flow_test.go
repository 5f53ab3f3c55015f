package hub

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// flood sends n bytes of output from offset 0, and returns their hash.
func flood(a *attach, n int) [sha256.Size]byte {
	a.t.Helper()
	sum := sha256.New()
	chunk := make([]byte, protocol.MaxDataBytes)
	for offset := 0; offset < n; {
		piece := chunk[:min(len(chunk), n-offset)]
		for i := range piece {
			piece[i] = byte((offset + i) % 251)
		}
		sum.Write(piece)
		a.say(protocol.Data{Offset: uint64(offset), Bytes: piece})
		offset += len(piece)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

// swallow reads n bytes of output into h.
func swallow(x *watcher, n int, h hash.Hash) {
	x.t.Helper()
	for n > 0 {
		piece := x.gets(output).bytes
		h.Write(piece)
		n -= len(piece)
	}
}

func TestASlowViewerHoldsNobodyUp(t *testing.T) {
	const total = 3 * protocol.RingBytes
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	fast, slow := w.join(alice, nil), w.join(bob, nil)
	fast.greeted()
	slow.greeted()
	slow.sink.block(true)
	a := w.attached()

	// The fast one keeps up, or it would fall out of the ring as well.
	got := sha256.New()
	sum := sha256.New()
	chunk := bytes.Repeat([]byte("0123456789abcde\n"), 1<<9)
	for offset := 0; offset < total; offset += len(chunk) {
		sum.Write(chunk)
		a.say(protocol.Data{Offset: uint64(offset), Bytes: chunk})
		swallow(fast, len(chunk), got)
	}
	if !bytes.Equal(got.Sum(nil), sum.Sum(nil)) {
		t.Error("the fast viewer got other bytes")
	}
	slow.sink.mu.Lock()
	writes := slow.sink.writes
	slow.sink.mu.Unlock()
	if writes > 8 { // its greeting, and the write that it is stuck in
		t.Errorf("%d writes to a socket that takes none", writes)
	}

	slow.sink.block(false)
	if want := a.answersKeyframe(total); want.History {
		t.Error("one who merely was slow gets what was above")
	}
	had := 0
	for it := slow.next(); it.kind != protocol.ServerResync; it = slow.next() {
		if it.kind != output {
			t.Fatalf("%s before the resync", it)
		}
		had += len(it.bytes)
	}
	// What follows is the screen, and a full control_state comes.
	slow.reads(screen(total, false))
	control(t, slow.gets(protocol.ServerControlState), relaytest.User, 2)
	a.data(total, "on")
	slow.reads("on")
	if n := testutil.ToFloat64(w.set.metrics.Resyncs.WithLabelValues(feed.ResyncRing)); n != 1 {
		t.Errorf("%v resyncs are counted", n)
	}
	if n := testutil.ToFloat64(w.set.metrics.Skipped); n != float64(total-had) {
		t.Errorf("%v bytes were skipped by one who had %d of %d", n, had, total)
	}
	if n := testutil.ToFloat64(w.set.metrics.OutputBytes); n < total {
		t.Errorf("%v bytes of output are counted", n)
	}
}

// A viewer that is behind, but not out of the ring, gets everything, in few
// writes.
func TestAViewerCatchesUp(t *testing.T) {
	const total = protocol.RingBytes / 2
	w := newWorld(t, protocol.TerminalOpened{Epoch: 7, Lease: held(3, 2)})
	fast, slow := w.join(alice, nil), w.join(bob, nil)
	fast.greeted()
	slow.greeted()
	slow.sink.block(true)
	sum := flood(w.attached(), total)
	swallow(fast, total, sha256.New())
	slow.sink.block(false)
	got := sha256.New()
	swallow(slow, total, got)
	if [sha256.Size]byte(got.Sum(nil)) != sum {
		t.Error("other bytes")
	}
	slow.sink.mu.Lock()
	defer slow.sink.mu.Unlock()
	if most := total/feed.MaxBatch + 8; slow.sink.writes > most {
		t.Errorf("%d writes, want %d at most", slow.sink.writes, most)
	}
}
