package turn_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// crowd returns a terminal with so many viewers, each another person.
func crowd(viewers int) turn.State {
	s := turn.New(protocol.TerminalOpened{Claimed: true, Lease: protocol.Lease{Revision: 1, Term: 1, Holder: alice}})
	for i := range viewers {
		s, _ = turn.Step(s, comes(i))
	}
	return s
}

func comes(i int) turn.Joined {
	return turn.Joined{Socket: turn.SocketID(i + 1), User: protocol.UserID(fmt.Sprint("usr_", i)), GrantID: "gr", CanControl: i%2 == 0}
}

// cost returns the bytes that one more viewer takes, to come and to go.
func cost(viewers int) uint64 {
	const times = 100
	s := crowd(viewers)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range times {
		next, _ := turn.Step(s, comes(viewers+i))
		turn.Step(next, turn.Left{Socket: turn.SocketID(viewers + i + 1)})
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / times
}

// TestACrowdIsCheap: what it costs that one more comes and goes doesn't grow with
// how many are there, but by a node on the way down.
func TestACrowdIsCheap(t *testing.T) {
	few, many := cost(100), cost(10_000)
	t.Logf("%d B among 100, %d B among 10,000", few, many)
	if many > 3*few {
		t.Errorf("%d B among 10,000, %d B among 100", many, few)
	}
}

func BenchmarkJoined(b *testing.B) {
	for _, viewers := range []int{1_000, 5_000, 50_000} {
		b.Run(fmt.Sprint(viewers), func(b *testing.B) {
			s, next := crowd(viewers), comes(viewers)
			b.ReportAllocs()
			for b.Loop() {
				turn.Step(s, next)
			}
		})
	}
}
