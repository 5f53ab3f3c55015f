package hub

import (
	"sync/atomic"
	"time"
)

// crowdInterval is the least time between two messages about how many there are.
// Whether anybody is there is told at once.
const crowdInterval = 100 * time.Millisecond

// A crowd is how many sockets a hub has, which the agent is told: a terminal may
// end when nobody watches it any more. A socket counts from when the hub is opened
// for it. So there is no moment, between the first stream and the first viewer, at
// which a terminal looks deserted.
type crowd struct {
	sockets atomic.Int64  // set by the set
	changed chan struct{} // 1 element

	// Owned by the hub's run.
	told   int // by the present link; untold: nothing yet
	toldAt time.Time
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

// dueIn returns how long after now the agent is to be told, if it doesn't know.
func (c *crowd) dueIn(now time.Time) (wait time.Duration, needed bool) {
	n := int(c.sockets.Load())
	switch {
	case n == c.told:
		return 0, false
	case n == 0 || c.told <= 0:
		return 0, true
	}
	return crowdInterval - now.Sub(c.toldAt), true
}

// tell returns how many there are, and notes that the agent is told.
func (c *crowd) tell(now time.Time) int {
	c.told, c.toldAt = int(c.sockets.Load()), now
	return c.told
}
