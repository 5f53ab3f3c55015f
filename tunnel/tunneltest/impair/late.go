package impair

import (
	"math/bits"
	"time"
)

// A Late says how much later than it should things were sent, because this
// process didn't get its turn: much of it makes what is measured over the link
// meaningless. It is 0 for what is sent at once.
type Late struct {
	P50 time.Duration `json:"p50_ns"` // at most, and half of it at least
	P99 time.Duration `json:"p99_ns"` // at most, and half of it at least
	Max time.Duration `json:"max_ns"`
}

// A lateness counts how late things were, by powers of two of a microsecond.
type lateness struct {
	counts [40]int64
	total  int64
	most   time.Duration
}

func (l *lateness) add(d time.Duration) {
	d = max(d, 0)
	l.counts[min(bits.Len64(uint64(d/time.Microsecond)), len(l.counts)-1)]++
	l.total++
	l.most = max(l.most, d)
}

func (l *lateness) quantile(q float64) time.Duration {
	below := int64(0)
	for i, n := range l.counts {
		below += n
		if n > 0 && float64(below) >= q*float64(l.total) {
			return min(time.Microsecond<<i, l.most)
		}
	}
	return 0
}
