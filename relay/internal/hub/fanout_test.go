package hub

import (
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/batchsend"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/relay/internal/turn"
	"github.com/fairlead/fairlead/tunnel/quiet"
)

// TestFanOutCosts: what a chunk costs for viewers who keep up is bounded in what can be
// counted: calls of the kernel, and memory.
func TestFanOutCosts(t *testing.T) {
	const viewers = 200
	listener := listening(t)
	for _, direct := range []bool{false, true} {
		h := still()
		out := h.fanout()
		out.sender = batchsend.New(batchsend.Options{Direct: direct, Calls: h.metrics.Calls})
		defer out.sender.Close()
		for i := range viewers {
			seatAs(h, turn.SocketID(i), "usr_1", time.Now().Add(time.Hour), Guest{Counts: i%2 == 0, Socket: newTCPSink(t, listener)})
		}
		chunk := make([]byte, 100)
		deliver := func() {
			if err := h.feed.Append(protocol.Data{Offset: h.feed.Head().Offset, Bytes: chunk}); err != nil {
				t.Fatal(err)
			}
			out.deliver()
		}
		deliver() // with what each was told before
		deliver()
		most := (viewers + feed.MaxAtOnce - 1) / feed.MaxAtOnce
		if direct = direct || out.sender.Rings() == 0; direct { // or this machine has no io_uring
			most = viewers
		}
		const rounds = 20
		before := testutil.ToFloat64(h.metrics.Calls)
		allocations := testing.AllocsPerRun(rounds-1, deliver) // and one to begin with
		if calls := int(testutil.ToFloat64(h.metrics.Calls) - before); calls > rounds*most {
			t.Errorf("direct %t: %d system calls for %d chunks, want %d for each", direct, calls, rounds, most)
		}
		for range 10 { // who reads the sockets may have allocated as well
			allocations = min(allocations, testing.AllocsPerRun(rounds, deliver))
		}
		if allocations > 2 { // whatever the number of viewers
			t.Errorf("direct %t: %v allocations for each chunk", direct, allocations)
		}
		if n := testutil.ToFloat64(h.metrics.Deferred); n > 0 {
			t.Errorf("direct %t: %v deliveries were left to a writer", direct, n)
		}
	}
}

// listening returns a listener on loopback, which ends with the test.
func listening(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// seatSockets seats so many viewers, each at a socket.
func seatSockets(t testing.TB, h *Hub, listener net.Listener, viewers int) {
	t.Helper()
	for i := range viewers {
		seatAs(h, turn.SocketID(i), "usr_1", time.Now().Add(time.Hour), Guest{Socket: newTCPSink(t, listener)})
	}
}

// TestFanOutAcrossSlabs: output that isn't in one piece in the ring is joined once for
// all who get it, and sent to them together.
func TestFanOutAcrossSlabs(t *testing.T) {
	const viewers, rounds = 200, 20
	listener := listening(t)
	h := still()
	out := h.fanout()
	out.sender = batchsend.New(batchsend.Options{Direct: true, Calls: h.metrics.Calls})
	seatSockets(t, h, listener, viewers)
	chunk := make([]byte, 3<<10)
	deliver := func() {
		for range 4 {
			if err := h.feed.Append(protocol.Data{Offset: h.feed.Head().Offset, Bytes: chunk}); err != nil {
				t.Fatal(err)
			}
		}
		out.deliver()
	}
	deliver() // with what each was told before
	before := testutil.ToFloat64(h.metrics.Calls)
	allocations := testing.AllocsPerRun(rounds-1, deliver) // and one to begin with
	calls := int(testutil.ToFloat64(h.metrics.Calls) - before + testutil.ToFloat64(h.metrics.Deferred))
	if calls != rounds*viewers {
		t.Errorf("%d of %d were sent together with others", calls, rounds*viewers)
	}
	for range 10 { // who reads the sockets may have allocated as well
		allocations = min(allocations, testing.AllocsPerRun(rounds, deliver))
	}
	if allocations > 6 { // a slab, and what is joined at its end
		t.Errorf("%v allocations for each delivery", allocations)
	}
	if out.gathered.bytes != nil {
		t.Error("what was joined is kept after the delivery")
	}
}

// TestFanOutLeavesRoomForKeys: with one processor, who waits for a socket runs while a
// chunk is delivered to a crowd, not behind it.
func TestFanOutLeavesRoomForKeys(t *testing.T) {
	const viewers, rounds = 5 * feed.MaxAtOnce, 100
	listener := listening(t)
	h := still()
	out := h.fanout()
	defer out.sender.Close()
	seatSockets(t, h, listener, viewers)
	types, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer types.Close()
	keys, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var heard atomic.Int64
	ended := make(chan struct{})
	go func() { // ends with keys
		defer close(ended)
		for p := make([]byte, 1); ; heard.Add(1) {
			if _, err := keys.Read(p); err != nil {
				return
			}
		}
	}()
	late := 0
	for i := range int64(rounds) {
		if err := h.feed.Append(protocol.Data{Offset: h.feed.Head().Offset, Bytes: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
		if _, err := types.Write([]byte("k")); err != nil {
			t.Fatal(err)
		}
		out.deliver()
		for late += int(i + 1 - heard.Load()); heard.Load() != i+1; {
			quiet.Yield()
		}
	}
	if late > rounds/2 { // on a machine with much load some are; without yields all are
		t.Errorf("%d of %d keys are read behind a delivery", late, rounds)
	}
	keys.Close()
	<-ended
}
