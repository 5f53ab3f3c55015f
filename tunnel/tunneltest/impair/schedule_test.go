package impair

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHeap: what is due first comes first, and of several that are due at the
// same time, what was put in first.
func TestHeap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var q items[uint64]
	var want []item[uint64]
	for i := range uint64(1000) {
		x := item[uint64]{time.Duration(rng.IntN(100)), i, i}
		q.push(x)
		want = append(want, x)
	}
	slices.SortStableFunc(want, func(a, b item[uint64]) int { return int(a.due - b.due) })
	for i, x := range want {
		if got := q.pop(); got != x.value {
			t.Fatalf("the %d. is number %d, not %d", i, got, x.value)
		}
	}
	if len(q) != 0 {
		t.Errorf("%d are left", len(q))
	}
}

// TestSchedule: nothing comes before it is due, and all that was put in comes.
func TestSchedule(t *testing.T) {
	s, err := newSchedule[time.Duration](time.Now())
	must(t, err)
	const n = 200
	got := make(chan time.Duration, n)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.run(func(batch []time.Duration) {
			for _, due := range batch {
				if now := s.now(); now < due-slack {
					t.Errorf("%v too early", due-now)
				}
				got <- due
			}
		})
	}()
	for range n {
		due := s.now() + time.Duration(rand.IntN(20_000))*time.Microsecond
		s.put(due, due)
	}
	for range n {
		<-got
	}
	s.put(s.now()+time.Hour, 0)
	if s.idle() {
		t.Error("something waits")
	}
	s.close()
	<-done
	s.put(0, 0) // does nothing
	if late := s.lateOf(); late.Max == 0 || late.P50 > late.P99 || late.P99 > late.Max {
		t.Errorf("late by %+v", late)
	}
}

func TestLateness(t *testing.T) {
	var l lateness
	if l.quantile(0.5) != 0 {
		t.Error("nothing was late")
	}
	for range 98 {
		l.add(100 * time.Microsecond)
	}
	l.add(-time.Second)
	l.add(30 * time.Millisecond)
	if l.quantile(0.5) != 128*time.Microsecond || l.quantile(1) != l.most || l.most != 30*time.Millisecond {
		t.Errorf("p50 %v, p100 %v, most %v", l.quantile(0.5), l.quantile(1), l.most)
	}
}
