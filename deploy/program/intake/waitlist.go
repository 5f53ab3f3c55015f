package intake

import (
	"container/list"
	"net/netip"
	"sync"
)

// A waitlist holds the requests that wait for bytes of unauthenticated clients,
// in the order of arrival. When there are too many, of one address or in all,
// the first one is removed and has to hurry.
type waitlist struct {
	perAddress, most int // static

	mu        sync.Mutex
	all       list.List                   // of *waiter; guarded by mu
	addresses map[netip.Prefix]*list.List // guarded by mu
}

// A waiter is a request that may be in a waitlist.
type waiter struct {
	address netip.Prefix
	hurry   func() // is called without a lock, after the waiter was removed

	// Guarded by waitlist.mu. Both are nil while it isn't in the list.
	among, own *list.Element
}

func newWaitlist(perAddress, most int) *waitlist {
	return &waitlist{perAddress: perAddress, most: most, addresses: map[netip.Prefix]*list.List{}}
}

// join appends a waiter. The first one may have to hurry.
func (l *waitlist) join(w *waiter) {
	if first := l.add(w); first != nil {
		first.hurry()
	}
}

func (l *waitlist) add(w *waiter) (first *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.addresses[w.address]
	if own == nil {
		own = list.New()
		l.addresses[w.address] = own
	}
	switch {
	case own.Len() >= l.perAddress:
		first = own.Front().Value.(*waiter)
	case l.all.Len() >= l.most:
		first = l.all.Front().Value.(*waiter)
	}
	if first != nil {
		l.remove(first)
		l.addresses[w.address] = own // it may have been the only one
	}
	w.among, w.own = l.all.PushBack(w), own.PushBack(w)
	return first
}

// leave removes a waiter that is in the list.
func (l *waitlist) leave(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.among != nil {
		l.remove(w)
	}
}

// remove removes a waiter. The caller holds mu.
func (l *waitlist) remove(w *waiter) {
	l.all.Remove(w.among)
	own := l.addresses[w.address]
	if own.Remove(w.own); own.Len() == 0 {
		delete(l.addresses, w.address)
	}
	w.among, w.own = nil, nil
}
