package terminal

import (
	"maps"
	"sync"

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

// counts add up for a Host; nil counts nothing.
type counts struct {
	// Guarded by mu, which is taken last of all.
	mu  sync.Mutex
	sum Counts
}

func newCounts() *counts { return &counts{sum: Counts{Refused: map[protocol.RefusalReason]uint64{}}} }

// add changes the sum.
func (c *counts) add(change func(*Counts)) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.sum)
}

func (c *counts) output(n int) { c.add(func(sum *Counts) { sum.OutputBytes += uint64(n) }) }
func (c *counts) typed(n int)  { c.add(func(sum *Counts) { sum.InputBytes += uint64(n) }) }
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
	h.counts.mu.Lock()
	defer h.counts.mu.Unlock()
	sum := h.counts.sum
	sum.Refused = maps.Clone(sum.Refused)
	sum.Attached, sum.Paced = attached, paced
	return sum
}
