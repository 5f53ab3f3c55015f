package terminal

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
)

// Counts are what all terminals of a Host did so far, and do at the moment.
type Counts struct {
	Started, Ended uint64 // terminals, those whose program couldn't be started too
	OutputBytes    uint64 // added to logs, masked as they are
	InputBytes     uint64 // written to programs, without answers to their queries
	Refused        map[protocol.RefusalReason]uint64

	Attached int // streams of relays that show a terminal
	Paced    int // terminals whose programs wait for slow viewers
}

// counts add up for a Host.
type counts struct {
	// Static after construction.
	output, typed atomic.Uint64 // bytes

	mu  sync.Mutex // taken last of all
	sum Counts     // guarded by mu; but for the bytes
}

func newCounts() *counts { return &counts{sum: Counts{Refused: map[protocol.RefusalReason]uint64{}}} }

// add changes the sum.
func (c *counts) add(change func(*Counts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.sum)
}

func (c *counts) refused(reason protocol.RefusalReason) {
	c.add(func(sum *Counts) { sum.Refused[reason]++ })
}

// Counts returns how the terminals' counters stand.
func (h *Host) Counts() Counts {
	h.mu.Lock()
	list := make([]*Terminal, 0, len(h.listed))
	for _, t := range h.listed {
		list = append(list, t)
	}
	h.mu.Unlock()
	var attached, paced int
	for _, t := range list {
		t.mu.Lock()
		attached += len(t.attachments)
		if t.stage.front.waiting && !t.released() {
			paced++
		}
		t.mu.Unlock()
	}
	sum := h.counts.total()
	sum.Attached, sum.Paced = attached, paced
	return sum
}

// total returns what was counted.
func (c *counts) total() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.sum
	sum.Refused = maps.Clone(sum.Refused)
	sum.OutputBytes, sum.InputBytes = c.output.Load(), c.typed.Load()
	return sum
}
