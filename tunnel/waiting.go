package tunnel

import (
	"container/list"
	"net"
	"net/netip"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel/internal/wsslink"
)

const (
	// maxUpgrades bounds the connections for WebSockets that are none yet.
	maxUpgrades = maxHandshakes
	// maxWaitingPerAddress bounds the connections from one address in a
	// waitingRoom. Many agents may share one.
	maxWaitingPerAddress = maxHandshakes / 2
)

// A waitingRoom bounds the connections that have not said HELLO yet, so that
// those who never do keep nobody out: when it is full, or has too many from one
// address, the one of them that has waited longest makes room. Anybody may come
// that far, and an honest agent says HELLO within a few round trips.
type waitingRoom struct {
	max int // static

	// Guarded by mu.
	mu        sync.Mutex
	places    *list.List // of *place, the oldest first
	addresses map[netip.Prefix]int
}

// A place is one connection's.
type place struct {
	// Static after construction.
	room    *waitingRoom
	address netip.Prefix
	evict   func(*protocol.Error)

	at *list.Element // guarded by room.mu; nil once it has left
}

func newWaitingRoom(most int) *waitingRoom {
	return &waitingRoom{max: most, places: list.New(), addresses: map[netip.Prefix]int{}}
}

// enter returns a place for a connection from addr. evict is called, on a
// goroutine of its own, when somebody else needs the place.
func (r *waitingRoom) enter(addr net.Addr, evict func(*protocol.Error)) *place {
	p := &place{room: r, address: keyOf(addr), evict: evict}
	r.mu.Lock()
	defer r.mu.Unlock()
	if crowd := r.addresses[p.address] >= maxWaitingPerAddress; crowd || r.places.Len() >= r.max {
		oldest := r.oldest(p.address, crowd)
		oldest.remove()
		go oldest.evict(errCrowded) // ends with the close of a connection, which waits for nobody
	}
	r.addresses[p.address]++
	p.at = r.places.PushBack(p)
	return p
}

// oldest returns the place that was taken first, by all or by one address, which
// has some. The caller holds mu.
func (r *waitingRoom) oldest(address netip.Prefix, its bool) *place {
	at := r.places.Front()
	for its && at.Value.(*place).address != address {
		at = at.Next()
	}
	return at.Value.(*place)
}

// errCrowded is what a connection is told that had to make room.
var errCrowded = protocol.Errorf(protocol.KindTooMany, "too many handshakes")

// upgrades returns what gives places to connections that are no WebSockets yet:
// a room of their own, since they come before those without HELLO and cost less.
func upgrades() wsslink.Enter {
	room := newWaitingRoom(maxUpgrades)
	return func(from net.Addr, evict func()) (leave func()) {
		return room.enter(from, func(*protocol.Error) { evict() }).leave
	}
}

// leave gives the place up: HELLO was said, or the connection is over. It may be
// called again.
func (p *place) leave() {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	if p.at != nil {
		p.remove()
	}
}

// remove takes the place out. The caller holds room.mu.
func (p *place) remove() {
	p.room.places.Remove(p.at)
	p.at = nil
	if p.room.addresses[p.address]--; p.room.addresses[p.address] == 0 {
		delete(p.room.addresses, p.address)
	}
}
