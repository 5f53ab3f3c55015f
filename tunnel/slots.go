package tunnel

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connectIdle is how long a connection carries nothing before another of its
// own address may take its slot.
const connectIdle = time.Second

// slots bound the proxied connections of agents that aren't registered. One
// address may have all slots while no other needs one. When all are taken, the
// address with the most loses its longest idle slot to any address that would
// still have fewer.
type slots struct {
	max int // static

	mu   sync.Mutex
	held map[*connectSlot]struct{} // guarded by mu; few enough to be looked through
}

// A connectSlot belongs to one connection.
type connectSlot struct {
	address netip.Prefix // static
	evict   func()       // static; is called on a goroutine of its own, at most once

	carried atomic.Int64 // when it last carried a byte, in Unix nanoseconds
	evicted atomic.Bool
}

func newSlots(most int) *slots {
	return &slots{max: most, held: map[*connectSlot]struct{}{}}
}

// enter returns a slot for a connection from address, nil if there is none.
func (s *slots) enter(address netip.Prefix, evict func()) *connectSlot {
	next := &connectSlot{address: address, evict: evict}
	next.touch()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= s.max {
		first := s.givesWay(address)
		if first == nil {
			return nil
		}
		delete(s.held, first)
		first.evicted.Store(true)
		go first.evict() // ends with the close of a connection, which waits for nobody
	}
	s.held[next] = struct{}{}
	return next
}

// givesWay returns the slot that a connection from address may take over, nil for
// none.
// The caller holds mu.
func (s *slots) givesWay(address netip.Prefix) (first *connectSlot) {
	counts := map[netip.Prefix]int{}
	for slot := range s.held {
		counts[slot.address]++
	}
	for slot := range s.held {
		if first == nil || counts[slot.address] > counts[first.address] ||
			counts[slot.address] == counts[first.address] && slot.carried.Load() < first.carried.Load() {
			first = slot
		}
	}
	if counts[first.address] > counts[address]+1 || time.Since(time.Unix(0, first.carried.Load())) >= connectIdle {
		return first
	}
	return nil
}

func (s *slots) leave(slot *connectSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, slot)
}

// touch notes that the connection carries something.
func (s *connectSlot) touch() { s.carried.Store(time.Now().UnixNano()) }

// watch returns r with its reads counted as activity.
func (s *connectSlot) watch(r io.Reader) io.Reader { return lively{r, s} }

type lively struct {
	io.Reader
	slot *connectSlot
}

func (l lively) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if n > 0 {
		l.slot.touch()
	}
	return n, err
}
