package arbiter

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
)

// Counts add up what arbiters have taken and refused. Its zero value is ready.
type Counts struct {
	InputBytes atomic.Uint64 // written to programs, without answers to their queries

	mu      sync.Mutex                        // taken last of all
	refused map[protocol.RefusalReason]uint64 // guarded by mu
}

func (c *Counts) refuse(reason protocol.RefusalReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused == nil {
		c.refused = make(map[protocol.RefusalReason]uint64)
	}
	c.refused[reason]++
}

// Refused returns how many inputs were refused, by their reason.
func (c *Counts) Refused() map[protocol.RefusalReason]uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.refused)
}

// Load returns how many streams show the terminal, and whether its program waits
// for slow viewers.
func (b *Arbiter) Load() (streams int, waiting bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.streams), b.stage.front.waiting
}
