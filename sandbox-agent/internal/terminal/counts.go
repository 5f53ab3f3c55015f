package terminal

import (
	"sync/atomic"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
)

// Counts are what all terminals of a Host did so far, and do at the moment.
type Counts struct {
	Started, Ended uint64 // terminals, those whose program couldn't be started too
	Deserted       uint64 // terminals that ended because nobody watched them any more
	OutputBytes    uint64 // added to logs, masked as they are
	InputBytes     uint64 // written to programs, without answers to their queries
	Refused        map[protocol.RefusalReason]uint64

	Attached int // streams of relays that show a terminal
	Paced    int // terminals whose programs wait for slow viewers
	Waiting  int // terminals whose programs wait for their first byte
}

// counts add up for a Host.
type counts struct {
	started, ended atomic.Uint64
	deserted       atomic.Uint64
	output         atomic.Uint64 // bytes
	arbiters       arbiter.Counts
}

// Counts returns how the terminals' counters stand.
func (h *Host) Counts() Counts {
	sum := Counts{
		Started: h.counts.started.Load(), Ended: h.counts.ended.Load(), Deserted: h.counts.deserted.Load(),
		OutputBytes: h.counts.output.Load(), InputBytes: h.counts.arbiters.InputBytes.Load(),
		Refused: h.counts.arbiters.Refused(),
	}
	for _, t := range h.all() {
		streams, waiting := t.arbiter.Load()
		sum.Attached += streams
		if waiting && !t.released() {
			sum.Paced++
		}
		if t.waits() {
			sum.Waiting++
		}
	}
	return sum
}
