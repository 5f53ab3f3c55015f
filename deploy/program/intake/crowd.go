package intake

import (
	"container/list"
	"net/netip"
	"sync"
)

// A crowd is who waits for bytes of clients that nobody knows yet, the one that
// has waited longest first. Where there are too many from one address, or in
// all, the first has to hurry.
type crowd struct {
	perAddress, most int // static

	mu        sync.Mutex
	all       list.List // of *member; guarded by mu
	addresses map[netip.Prefix]*list.List
}

// A member of a crowd is one that waits.
type member struct {
	address netip.Prefix
	hurry   func() // is called without a lock, once it is no member any more

	// Guarded by the crowd's mu; nil for who is no member.
	among, own *list.Element
}

func newCrowd(perAddress, most int) *crowd {
	return &crowd{perAddress: perAddress, most: most, addresses: map[netip.Prefix]*list.List{}}
}

// join makes m a member, the last one. Another may have to hurry.
func (c *crowd) join(m *member) {
	if first := c.add(m); first != nil {
		first.hurry()
	}
}

func (c *crowd) add(m *member) (first *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.addresses[m.address]
	if own == nil {
		own = list.New()
		c.addresses[m.address] = own
	}
	switch {
	case own.Len() >= c.perAddress:
		first = own.Front().Value.(*member)
	case c.all.Len() >= c.most:
		first = c.all.Front().Value.(*member)
	}
	if first != nil {
		c.remove(first)
		c.addresses[m.address] = own // it may have been the only one
	}
	m.among, m.own = c.all.PushBack(m), own.PushBack(m)
	return first
}

// leave ends the membership, if there is any.
func (c *crowd) leave(m *member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.among != nil {
		c.remove(m)
	}
}

// remove takes m out. The caller holds mu.
func (c *crowd) remove(m *member) {
	c.all.Remove(m.among)
	own := c.addresses[m.address]
	if own.Remove(m.own); own.Len() == 0 {
		delete(c.addresses, m.address)
	}
	m.among, m.own = nil, nil
}
