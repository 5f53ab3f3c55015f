package impair

import (
	"math/rand/v2"
	"time"
)

// A Side is a direction, or both.
type Side int

const (
	Up   Side = iota // from those who dial to the target
	Down             // back to them
	Duplex
)

// String returns "up", "down" or "both".
func (s Side) String() string { return [...]string{"up", "down", "both"}[s] }

// covers reports whether s means direction d.
func (s Side) covers(d Side) bool { return s == d || s == Duplex }

// A line is one direction of a link. It decides what happens to each datagram
// and when, and does nothing itself: it has no clock and sends nothing. The
// same seed, profile, sizes and times give the same decisions.
type line struct {
	path      Path
	blackhole bool

	rng  *rand.Rand
	seed uint64        // of the jitter
	free time.Duration // when the line has sent all that waits for the rate
}

func newLine(seed uint64, side Side) *line {
	return &line{rng: rand.New(rand.NewPCG(seed, uint64(side))), seed: seed<<1 + uint64(side)}
}

// A fate is what happens to a datagram.
type fate uint8

const (
	passes    fate = iota
	lost           // by chance
	overflown      // the queue is full
	swallowed      // by a blackhole
)

// A decision is the fate of one datagram.
type decision struct {
	fate      fate
	due       time.Duration // when it is to be sent
	duplicate bool          // twice
	reordered bool          // those after it may overtake it
}

// decide decides on a datagram of so many bytes that came at now. Each takes
// the same number of random values, whatever becomes of it, so that the same
// ones are lost when something else changes.
func (l *line) decide(now time.Duration, size int) decision {
	luck, again, overtaken, hold := l.rng.Float64(), l.rng.Float64(), l.rng.Float64(), l.rng.Float64()
	if l.blackhole {
		return decision{fate: swallowed}
	}
	left, ok := l.transmit(now, size)
	if !ok {
		return decision{fate: overflown}
	}
	if luck < l.path.Loss {
		return decision{fate: lost}
	}
	d := decision{due: l.arrival(left), duplicate: again < l.path.Duplicate}
	if overtaken < l.path.Reorder {
		most := l.path.Hold
		if most == 0 {
			most = DefaultHold
		}
		d.reordered = true
		d.due += most/10 + time.Duration(hold*float64(most-most/10))
	}
	return d
}

// arrival returns when what left at a time is due at the other end.
func (l *line) arrival(left time.Duration) time.Duration {
	return left + l.path.Delay + l.wander(left)
}

// transmit returns when the last bit of so many bytes has left at the line's
// rate, or that the queue has no room for them.
func (l *line) transmit(now time.Duration, size int) (left time.Duration, ok bool) {
	if l.path.Rate == 0 {
		return now, true
	}
	if l.wait(now, size) > 0 {
		return 0, false
	}
	l.free = max(now, l.free) + l.duration(size)
	return l.free, true
}

// wait returns how long it takes until the queue has room for so many bytes.
func (l *line) wait(now time.Duration, size int) time.Duration {
	if l.path.Rate == 0 || l.free <= now {
		return 0
	}
	over := l.bytes(l.free-now) + int64(size) - l.queue()
	if over <= 0 {
		return 0
	}
	return min(l.duration(int(over)), l.free-now)
}

func (l *line) queue() int64 {
	if l.path.Queue == 0 {
		return DefaultQueue
	}
	return l.path.Queue
}

// bytes returns how much the line sends in a time.
func (l *line) bytes(d time.Duration) int64 {
	return int64(d.Seconds() * float64(l.path.Rate) / 8)
}

// duration returns how long the line sends so many bytes.
func (l *line) duration(size int) time.Duration {
	return time.Duration(float64(size) * 8 * float64(time.Second) / float64(l.path.Rate))
}

// wander returns how much the delay is off at a time: a random value between
// -Jitter and +Jitter every four Jitters, and a straight line from each to the
// next. So it changes by half a millisecond in each at most, and what comes
// later is never due earlier.
func (l *line) wander(at time.Duration) time.Duration {
	if l.path.Jitter == 0 {
		return 0
	}
	step := 4 * l.path.Jitter
	n, rest := at/step, at%step
	from, to := l.noise(uint64(n)), l.noise(uint64(n)+1)
	return time.Duration((from + (to-from)*float64(rest)/float64(step)) * float64(l.path.Jitter))
}

// noise returns the n-th of a sequence of random values between -1 and 1.
func (l *line) noise(n uint64) float64 {
	x := l.seed ^ n*0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11)/(1<<52) - 1
}
