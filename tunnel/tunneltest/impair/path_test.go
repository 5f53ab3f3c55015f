package impair

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// decisions returns what a line decides on n datagrams of 1,000 bytes, one
// each step.
func decisions(seed uint64, p Path, n int, step time.Duration) []decision {
	l := newLine(seed, Up)
	l.path = p
	var list []decision
	for i := range n {
		list = append(list, l.decide(time.Duration(i)*step, 1000))
	}
	return list
}

func count(list []decision, is func(decision) bool) (n int) {
	for _, d := range list {
		if is(d) {
			n++
		}
	}
	return n
}

func isLost(d decision) bool      { return d.fate == lost }
func isDuplicate(d decision) bool { return d.duplicate }
func isReordered(d decision) bool { return d.reordered }

func TestSameSeedSameFate(t *testing.T) {
	all := Path{Delay: 20 * ms, Jitter: 10 * ms, Rate: 10e6, Queue: 20_000, Loss: 0.1, Duplicate: 0.1, Reorder: 0.1}
	one, two, other := decisions(1, all, 1000, 5*ms), decisions(1, all, 1000, 5*ms), decisions(2, all, 1000, 5*ms)
	same := 0
	for i := range one {
		if one[i] != two[i] {
			t.Fatalf("datagram %d: %+v, then %+v", i, one[i], two[i])
		}
		if one[i] == other[i] {
			same++
		}
	}
	if same > 100 {
		t.Errorf("%d of 1000 decisions are the same with another seed", same)
	}
}

// TestChoicesAreIndependent: the same datagrams are lost whatever else happens
// to others.
func TestChoicesAreIndependent(t *testing.T) {
	alone := decisions(1, Path{Loss: 0.1}, 1000, ms)
	with := decisions(1, Path{Loss: 0.1, Duplicate: 0.5, Reorder: 0.5, Delay: 10 * ms, Jitter: 5 * ms}, 1000, ms)
	for i := range alone {
		if isLost(alone[i]) != isLost(with[i]) {
			t.Fatalf("datagram %d: %+v alone, %+v", i, alone[i], with[i])
		}
	}
}

func TestParts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	list := decisions(seed, Path{Loss: 0.02, Duplicate: 0.1, Reorder: 0.05}, 100_000, ms)
	for _, c := range []struct {
		name string
		is   func(decision) bool
		want float64
	}{{"lost", isLost, 0.02}, {"twice", isDuplicate, 0.1 * 0.98}, {"late", isReordered, 0.05 * 0.98}} {
		if got := float64(count(list, c.is)) / 100_000; got < c.want*0.85 || got > c.want*1.15 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if n := count(decisions(seed, Path{Loss: 1}, 100, ms), isLost); n != 100 {
		t.Errorf("%d of 100 are lost at 100%%", n)
	}
}

func TestDelayIsExact(t *testing.T) {
	for i, d := range decisions(1, Path{Delay: 25 * ms}, 100, ms) {
		if d.due != time.Duration(i)*ms+25*ms {
			t.Fatalf("datagram %d is due at %v", i, d.due)
		}
	}
}

// TestJitterWandersWithoutReordering: it uses all its range, its mean is the
// delay, and nothing overtakes.
func TestJitterWandersWithoutReordering(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var least, most, sum, last time.Duration
	least = time.Hour
	const n, step = 200_000, 100 * time.Microsecond
	for i, d := range decisions(seed, Path{Delay: 25 * ms, Jitter: 5 * ms}, n, step) {
		if d.due < last {
			t.Fatalf("datagram %d overtakes", i)
		}
		last = d.due
		delay := d.due - time.Duration(i)*step
		least, most, sum = min(least, delay), max(most, delay), sum+delay
	}
	mean := sum / n
	if least < 20*ms || least > 21*ms || most > 30*ms || most < 29*ms || mean < 24500*time.Microsecond || mean > 25500*time.Microsecond {
		t.Errorf("from %v to %v, mean %v", least, most, mean)
	}
}

// TestReorderedComeLater: up to the hold later, and only they.
func TestReorderedComeLater(t *testing.T) {
	for i, d := range decisions(1, Path{Delay: 10 * ms, Reorder: 0.3, Hold: 5 * ms}, 1000, ms) {
		late := d.due - time.Duration(i)*ms - 10*ms
		if d.reordered && (late < 500*time.Microsecond || late > 5*ms) || !d.reordered && late != 0 {
			t.Fatalf("datagram %d is %v late: %+v", i, late, d)
		}
	}
}

func TestRateSpacesAndDrops(t *testing.T) {
	l := newLine(1, Up)
	l.path = Path{Rate: 8_000_000, Queue: 5000} // 1,000 bytes take 1 ms
	for i := range 10 {
		d := l.decide(0, 1000)
		if i < 5 && (d.fate != passes || d.due != time.Duration(i+1)*ms) {
			t.Errorf("datagram %d: %+v", i, d)
		}
		if i >= 5 && d.fate != overflown {
			t.Errorf("datagram %d has room: %+v", i, d)
		}
	}
	if d := l.decide(1*ms, 1000); d.fate != passes || d.due != 6*ms {
		t.Errorf("after one has left: %+v", d)
	}
	if d := l.decide(50*ms, 9000); d.fate != passes || d.due != 59*ms {
		t.Errorf("one that is larger than the queue, over an idle line: %+v", d)
	}
}

// TestRateHolds: what passes is the rate, whatever comes.
func TestRateHolds(t *testing.T) {
	list := decisions(1, Path{Rate: 4_000_000, Queue: 50_000}, 20_000, 500*time.Microsecond) // 16 Mbit/s for 10 s
	passed := count(list, func(d decision) bool { return d.fate == passes })
	if passed < 4990 || passed > 5060 { // and one queue
		t.Errorf("%d datagrams passed in 10 s", passed)
	}
}

func TestBlackholeSwallowsAll(t *testing.T) {
	l := newLine(1, Down)
	l.blackhole = true
	if d := l.decide(0, 1); d.fate != swallowed {
		t.Errorf("%+v", d)
	}
	l.blackhole = false
	if d := l.decide(0, 1); d.fate != passes {
		t.Errorf("%+v", d)
	}
}
