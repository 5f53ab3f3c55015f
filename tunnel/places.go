package tunnel

import (
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// connectIdle is how long a connection carries nothing before it may have to
// give way to another one of its own address.
const connectIdle = time.Second

// places are those of the connections that agents have who aren't registered.
// One address may hold all of them while nobody else comes. When they are taken,
// the address that holds the most gives one up, the one that has carried nothing
// for longest, to any that has fewer still with one more.
type places struct {
	max int // static

	mu   sync.Mutex
	held map[*connectPlace]struct{} // guarded by mu; few enough to be looked through
}

// A connectPlace is one connection's.
type connectPlace struct {
	address netip.Prefix // static
	evict   func()       // static; is called on a goroutine of its own, at most once

	carried atomic.Int64 // when it last carried a byte, in Unix nanoseconds
	evicted atomic.Bool
}

func newPlaces(most int) *places {
	return &places{max: most, held: map[*connectPlace]struct{}{}}
}

// enter returns a place for a connection from address, nil if it can't have one.
func (p *places) enter(address netip.Prefix, evict func()) *connectPlace {
	next := &connectPlace{address: address, evict: evict}
	next.touch()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) >= p.max {
		first := p.givesWay(address)
		if first == nil {
			return nil
		}
		delete(p.held, first)
		first.evicted.Store(true)
		go first.evict() // ends with the close of a connection, which waits for nobody
	}
	p.held[next] = struct{}{}
	return next
}

// givesWay returns the place that somebody from address may have, nil for none.
// The caller holds mu.
func (p *places) givesWay(address netip.Prefix) (first *connectPlace) {
	counts := map[netip.Prefix]int{}
	for place := range p.held {
		counts[place.address]++
	}
	for place := range p.held {
		if first == nil || counts[place.address] > counts[first.address] ||
			counts[place.address] == counts[first.address] && place.carried.Load() < first.carried.Load() {
			first = place
		}
	}
	if counts[first.address] > counts[address]+1 || time.Since(time.Unix(0, first.carried.Load())) >= connectIdle {
		return first
	}
	return nil
}

func (p *places) leave(place *connectPlace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.held, place)
}

// touch notes that the connection carries something.
func (p *connectPlace) touch() { p.carried.Store(time.Now().UnixNano()) }

// watch returns r, whose bytes are a sign of life.
func (p *connectPlace) watch(r io.Reader) io.Reader { return lively{r, p} }

type lively struct {
	io.Reader
	place *connectPlace
}

func (l lively) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if n > 0 {
		l.place.touch()
	}
	return n, err
}
