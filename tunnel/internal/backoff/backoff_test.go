package backoff

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	var b Backoff
	for i := range 40 {
		ceiling := min(Base<<min(i, 16), Cap)
		if d := b.Next(); d < 0 || d > ceiling {
			t.Fatalf("pause %d is %v, beyond %v", i+1, d, ceiling)
		}
	}
	b.Reset()
	for range 100 {
		b.Reset()
		if d := b.Next(); d > Base {
			t.Fatalf("first pause is %v", d)
		}
	}
}

func TestJitterSpreads(t *testing.T) {
	early, late := 0, 0
	for range 1000 {
		b := Backoff{failures: 10}
		if b.Next() < Cap/2 {
			early++
		} else {
			late++
		}
	}
	if early < 300 || late < 300 {
		t.Errorf("%d early, %d late: not spread over the whole range up to %v", early, late, time.Duration(Cap))
	}
}

func TestLived(t *testing.T) {
	for _, c := range []struct {
		failures int
		lived    time.Duration
		left     int
	}{{0, 0, 0}, {3, 0, 3}, {3, 8 * Base, 3}, {3, 8*Base + 1, 0}, {30, 0, 30}, {30, Cap, 4}, {30, Cap + 1, 0}} {
		b := Backoff{failures: c.failures}
		if b.Lived(c.lived); b.failures != c.left {
			t.Errorf("after %d failures and a life of %v: %d failures", c.failures, c.lived, b.failures)
		}
	}
}
