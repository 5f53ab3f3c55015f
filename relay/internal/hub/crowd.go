package hub

import "sync/atomic"

// A crowd is how many sockets a hub has, which the agent is told: a terminal may
// end when nobody watches it any more. A socket counts from when the hub is opened
// for it. So there is no moment, between the first stream and the first viewer, at
// which a terminal looks deserted.
type crowd struct {
	sockets atomic.Int64  // set by the set
	changed chan struct{} // 1 element

	told int // owned by the hub's run: by the present link; untold: nothing yet
}

// untold is what a new link was told.
const untold = -1

func newCrowd() crowd { return crowd{changed: make(chan struct{}, 1), told: untold} }

// is notes how many sockets there are, and never waits.
func (c *crowd) is(n int) {
	c.sockets.Store(int64(n))
	select {
	case c.changed <- struct{}{}:
	default: // run is about to look
	}
}
