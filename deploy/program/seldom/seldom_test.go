package seldom

import (
	"testing"
	"time"
)

// The first of each sort is logged at once, and later what has happened since.
func TestLimit(t *testing.T) {
	var l Limit[string]
	now := time.Time{}
	for _, step := range []struct {
		sort  string
		after time.Duration
		want  int64
	}{{"a", 0, 1}, {"a", 0, 0}, {"b", 0, 1}, {"a", Interval - 1, 0}, {"a", 1, 3}, {"a", 0, 0}, {"b", Interval, 1}, {"a", 0, 2}} {
		now = now.Add(step.after)
		if n := l.Happened(step.sort, now); n != step.want {
			t.Errorf("%+v: a line stands for %d", step, n)
		}
	}
}
