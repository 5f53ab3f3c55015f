package chatring

import (
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

// A Part is what of the agent's log is read for a cursor that is older than the
// ring.
type Part struct {
	After, Until uint64 // exclusive, inclusive

	attempt uint64
}

// Lacks returns what c lacks of the log. !ok: nothing, or nobody asks any more.
func (c *Cursor) Lacks() (p Part, ok bool) {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !c.follows || !c.filling:
		return Part{}, false
	case c.next >= r.base:
		c.filling, c.live = false, true
	case c.rounds >= maxRounds:
		c.skip(GapLog)
	default:
		c.rounds++
		return Part{c.next - 1, r.base - 1, c.attempt}, true
	}
	c.of.Stir()
	return Part{}, false
}

// Reads notes that p comes, of an epoch; gap: not from its beginning. It fails if
// it can't be used.
func (c *Cursor) Reads(p Part, epoch protocol.Epoch, gap bool) error {
	r := c.ring
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case c.attempt != p.attempt || !c.follows:
		return ErrVoid
	case epoch != r.epoch:
		return fmt.Errorf("chatring: a log of epoch %s, expected %s", epoch, r.epoch)
	case gap:
		r.gaps.WithLabelValues(GapMark).Inc()
		c.ackDue, c.gap = true, true
		c.of.Stir()
	}
	return nil
}

// Read queues an event of p. used: the follower has it.
func (c *Cursor) Read(p Part, e Event) (used bool, err error) {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	if c.attempt != p.attempt || !c.follows {
		return false, ErrVoid
	}
	c.next = e.Seq + 1
	if e.Origin != "" && c.of.Expects(e.Origin) {
		return false, nil
	}
	return c.of.Queue(p.attempt, e.Frame), nil
}

// Done notes that all of p was read.
func (c *Cursor) Done(p Part) {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	if c.attempt == p.attempt {
		c.next = p.Until + 1
	}
}

// GiveUp tells c's follower of a gap, as p can't be read.
func (c *Cursor) GiveUp(p Part) {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	if c.attempt == p.attempt && c.follows {
		c.skip(GapLog)
		c.of.Stir()
	}
}

// Stands reports whether what was read for an attempt may be sent.
func (c *Cursor) Stands(attempt uint64) bool {
	c.ring.mu.Lock()
	defer c.ring.mu.Unlock()
	return c.attempt == attempt
}
