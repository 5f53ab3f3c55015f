package hub

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// keyed returns a hub with a keyframe for whoever comes.
func keyed(t testing.TB) *Hub {
	t.Helper()
	h := still()
	h.feed.Replace(protocol.Position{Epoch: testEpoch, Offset: 1 << 30}, 80, 24)
	screen := h.feed.Assemble()
	if _, err := screen.Add(protocol.Keyframe{Offset: 1 << 30, History: true, Bytes: []byte("x")}, false); err != nil {
		t.Fatal(err)
	}
	kf, _ := screen.Take()
	if err := h.feed.AddKeyframe(kf); err != nil {
		t.Fatal(err)
	}
	return h
}

// seatCrowd has viewers join, each another person.
func (h *Hub) seatCrowd(from, to int, until time.Time) {
	for i := from; i < to; i++ {
		seat(h, turn.SocketID(i), protocol.UserID(fmt.Sprint("usr_", i)), until)
	}
}

// BenchmarkJoin lets viewers, each another person, join a terminal of which there
// is a keyframe.
func BenchmarkJoin(b *testing.B) {
	for _, viewers := range []int{1_000, 5_000} {
		b.Run(fmt.Sprint(viewers), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				keyed(b).seatCrowd(0, viewers, time.Now().Add(time.Hour))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*viewers), "ns/join")
		})
	}
}

// joinCost returns the allocations, and their bytes, of one who joins a crowd.
func joinCost(t *testing.T, crowd int) (allocations, bytes uint64) {
	const times = 200
	h, until := keyed(t), time.Now().Add(time.Hour)
	h.seatCrowd(0, crowd, until)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h.seatCrowd(crowd, crowd+times, until)
	runtime.ReadMemStats(&after)
	return (after.Mallocs - before.Mallocs) / times, (after.TotalAlloc - before.TotalAlloc) / times
}

// TestJoinBudget: what one who joins costs doesn't grow with how many are there,
// but for some nodes of a tree. What isn't allocated isn't encoded either.
func TestJoinBudget(t *testing.T) {
	few, fewBytes := joinCost(t, 200)
	many, manyBytes := joinCost(t, 4_000)
	t.Logf("among 200: %d allocations, %d B; among 4,000: %d, %d B", few, fewBytes, many, manyBytes)
	if many > few+20 || manyBytes > 2*fewBytes {
		t.Errorf("%d allocations and %d B among 4,000, %d and %d B among 200", many, manyBytes, few, fewBytes)
	}
}
