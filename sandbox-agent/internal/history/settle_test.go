package history

import (
	"testing"
	"time"
)

// TestSettling: a change is told 500 ms after the last one, and at the latest 2 s
// after the first.
func TestSettling(t *testing.T) {
	var s settling[string]
	begin := time.Unix(1000, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	expect := func(ms, due int, next int) {
		t.Helper()
		got, when, waits := s.take(at(ms))
		if len(got) != due || waits != (next > 0) || (waits && !when.Equal(at(next))) {
			t.Errorf("at %d ms: %v, then %v", ms, got, when.Sub(begin))
		}
	}
	s.touch("a", at(0))
	expect(499, 0, 500)
	s.touch("a", at(400))
	s.touch("b", at(450))
	expect(900, 1, 950)
	expect(950, 1, 0)
	for ms := 1000; ms < 4000; ms += 100 {
		s.touch("c", at(ms))
		if ms < 3000 {
			expect(ms, 0, min(ms+500, 3000))
		}
	}
	expect(4000, 1, 0)
	s.touch("d", at(5000))
	s.drop(func(k string) bool { return k == "d" })
	expect(9000, 0, 0)
}
