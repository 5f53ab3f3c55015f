package impair

import (
	"sync"
	"time"
)

const (
	// slack is how much too early something may be sent. It saves waking for
	// each of what is due in quick succession.
	slack = 20 * time.Microsecond
	// maxBatch bounds what is sent before the clock is asked again.
	maxBatch = 256
	// never is later than everything.
	never = time.Duration(1<<63 - 1)
)

// A schedule hands out what was put into it when it is due, what is due at the
// same time in the order in which it was put in.
type schedule[T any] struct {
	// Static after construction.
	epoch time.Time
	alarm alarm

	// Guarded by mu.
	mu     sync.Mutex
	items  items[T]
	next   uint64        // number of the next item
	armed  time.Duration // when the alarm goes off
	busy   bool          // what was due is being sent
	late   lateness
	closed bool
}

type item[T any] struct {
	due   time.Duration
	order uint64
	value T
}

func newSchedule[T any](epoch time.Time) (*schedule[T], error) {
	a, err := newAlarm()
	if err != nil {
		return nil, err
	}
	return &schedule[T]{epoch: epoch, alarm: a, armed: never}, nil
}

func (s *schedule[T]) now() time.Duration { return time.Since(s.epoch) }

// idle reports whether nothing waits and nothing is being sent, so that what
// is due at once need not be put in.
func (s *schedule[T]) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.items) == 0 && !s.busy
}

// put has value handed out when it is due, since the epoch.
func (s *schedule[T]) put(due time.Duration, value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.items.push(item[T]{due, s.next, value})
	s.next++
	if due < s.armed && !s.busy {
		s.armed = due
		s.alarm.set(due - s.now())
	}
}

// run calls send with what is due, until close.
func (s *schedule[T]) run(send func([]T)) {
	var batch []T
	for open := true; open; {
		batch, open = s.due(batch[:0])
		if len(batch) > 0 {
			send(batch)
			clear(batch)
		} else if open {
			s.alarm.wait()
		}
	}
}

// due appends what is due to batch, or sets the alarm when nothing is. It
// reports whether there may be more.
func (s *schedule[T]) due(batch []T) (_ []T, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return batch, false
	}
	now := s.now()
	for len(s.items) > 0 && s.items[0].due <= now+slack && len(batch) < maxBatch {
		s.late.add(now - s.items[0].due)
		batch = append(batch, s.items.pop())
	}
	s.busy = len(batch) > 0
	if s.busy {
		return batch, true
	}
	s.armed = never
	if len(s.items) > 0 {
		s.armed = s.items[0].due
		s.alarm.set(s.armed - now)
	}
	return batch, true
}

// lateOf returns by how much things were late so far.
func (s *schedule[T]) lateOf() Late {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Late{P50: s.late.quantile(0.5), P99: s.late.quantile(0.99), Max: s.late.most}
}

// close ends run. What waits is dropped.
func (s *schedule[T]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.items = nil
	s.alarm.close()
}

// items is a heap: each is before the two at twice its index.
type items[T any] []item[T]

func (q items[T]) before(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].order < q[j].order
}

func (q *items[T]) push(x item[T]) {
	*q = append(*q, x)
	list := *q
	for i := len(list) - 1; i > 0; {
		parent := (i - 1) / 2
		if !list.before(i, parent) {
			return
		}
		list[i], list[parent] = list[parent], list[i]
		i = parent
	}
}

// pop takes the first one out.
func (q *items[T]) pop() T {
	list := *q
	first, last := list[0].value, len(list)-1
	list[0], list[last] = list[last], item[T]{}
	list = list[:last]
	*q = list
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && list.before(child+1, child) {
			child++
		}
		if child >= last || !list.before(child, i) {
			return first
		}
		list[i], list[child] = list[child], list[i]
		i = child
	}
}
