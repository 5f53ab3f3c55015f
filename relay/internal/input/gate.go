package input

import "github.com/fairlead/fairlead/protocol"

// A gate keeps a client's input in order. After a momentary refusal nothing
// behind that input may overtake it, or the agent would take it for a
// repetition when it comes again. So the gate closes at that input and refuses
// later input for the same reason. The client sends it again for as long as it
// keeps it. An answer that makes the client forget the input opens the gate.
// Input that already had such an answer doesn't close it: a late copy may come,
// but is the last.
type gate struct {
	seq    uint64 // of the first refused input; 0: the gate is open
	reason protocol.RefusalReason
	final  uint64 // up to here input has had a final answer, and won't come again
}

// Momentary reports whether input refused for reason should be sent again.
// again.
func Momentary(reason protocol.RefusalReason) bool {
	return reason == protocol.RefusedBusy || reason == protocol.RefusedWaiting
}

// behind reports whether seq is held back.
func (g *gate) behind(seq uint64) bool { return g.seq > 0 && seq > g.seq }

// refused notes that the client is told that seq was not written. Unnumbered
// input never comes again.
func (g *gate) refused(seq uint64, reason protocol.RefusalReason) {
	switch {
	case seq == 0:
	case !Momentary(reason):
		g.final = max(g.final, seq)
		if seq == g.seq {
			g.open()
		}
	case seq > g.final && (g.seq == 0 || seq < g.seq):
		g.seq, g.reason = seq, reason
	}
}

// passed notes that seq was passed on. A waiting input from before the refused
// one doesn't open the gate.
func (g *gate) passed(seq uint64) {
	if seq >= g.seq {
		g.open()
	}
}

// written notes that the client is told that everything up to seq was written.
func (g *gate) written(seq uint64) {
	g.final = max(g.final, seq)
	if g.seq <= seq {
		g.open()
	}
}

func (g *gate) open() { g.seq, g.reason = 0, "" }
