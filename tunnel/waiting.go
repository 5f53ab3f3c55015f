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
	// maxUpgrades bounds the connections that are to become WebSockets.
	maxUpgrades = maxHandshakes
	// maxWaitingPerAddress bounds the connections from one address in a waitlist.
	// Many agents may share one.
	maxWaitingPerAddress = maxHandshakes / 2
)

// A waitlist bounds the unauthenticated connections, which have not sent HELLO
// yet. When it is full, or has too many from one address, the oldest of them
// loses its slot, so connections that never send HELLO keep nobody out. An
// honest agent sends it within a few round trips.
type waitlist struct {
	max int // static

	mu sync.Mutex
	// Guarded by mu.
	slots     *list.List // of *slot, the oldest first
	addresses map[netip.Prefix]int
}

// A slot belongs to one connection.
type slot struct {
	// Static after construction.
	list    *waitlist
	address netip.Prefix
	evict   func(*protocol.Error)

	at *list.Element // guarded by waitlist.mu; nil once it has left
}

func newWaitlist(most int) *waitlist {
	return &waitlist{max: most, slots: list.New(), addresses: map[netip.Prefix]int{}}
}

// enter returns a slot for a connection from addr. evict is called, on a
// goroutine of its own, when another connection gets the slot.
func (w *waitlist) enter(addr net.Addr, evict func(*protocol.Error)) *slot {
	s := &slot{list: w, address: keyOf(addr), evict: evict}
	w.mu.Lock()
	defer w.mu.Unlock()
	if many := w.addresses[s.address] >= maxWaitingPerAddress; many || w.slots.Len() >= w.max {
		oldest := w.oldest(s.address, many)
		oldest.remove()
		go oldest.evict(errBusy) // ends with the close of a connection, which waits for nobody
	}
	w.addresses[s.address]++
	s.at = w.slots.PushBack(s)
	return s
}

// oldest returns the oldest slot of all, or of one address, which has some. The caller
// holds mu.
func (w *waitlist) oldest(address netip.Prefix, its bool) *slot {
	at := w.slots.Front()
	for its && at.Value.(*slot).address != address {
		at = at.Next()
	}
	return at.Value.(*slot)
}

// errBusy is the reason for which a connection lost its slot.
var errBusy = protocol.Errorf(protocol.KindTooMany, "too many handshakes")

// upgrades returns a function that gives slots to connections that are no
// WebSockets yet. They have a list of their own, because they precede those
// without HELLO and cost less.
func upgrades() wsslink.Enter {
	waiting := newWaitlist(maxUpgrades)
	return func(from net.Addr, evict func()) (leave func()) {
		return waiting.enter(from, func(*protocol.Error) { evict() }).leave
	}
}

// leave frees the slot: HELLO has come, or the connection is over. It may be
// called again.
func (s *slot) leave() {
	s.list.mu.Lock()
	defer s.list.mu.Unlock()
	if s.at != nil {
		s.remove()
	}
}

// remove removes the slot. The caller holds waitlist.mu.
func (s *slot) remove() {
	s.list.slots.Remove(s.at)
	s.at = nil
	if s.list.addresses[s.address]--; s.list.addresses[s.address] == 0 {
		delete(s.list.addresses, s.address)
	}
}
