package input

import "github.com/fairlead/fairlead/protocol"

// A gate keeps a client's input in order. When one input is refused for the
// moment only, nothing behind it may overtake it: the agent would take it for a
// repetition when it comes again. So the gate is shut at that input, and what is
// behind it is refused as it was. The client sends it again for as long as it
// keeps it, so the gate opens with any answer that makes the client forget it,
// and isn't shut at input that has had such an answer: a copy of that may still
// be on its way, but none will follow.
type gate struct {
	seq    uint64 // of the first refused input; 0: the gate is open
	reason protocol.RefusalReason
	final  uint64 // up to here, what was not refused for the moment won't come again
}

// Momentary reports whether input that was refused for reason is to be sent
// again.
func Momentary(reason protocol.RefusalReason) bool {
	return reason == protocol.RefusedBusy || reason == protocol.RefusedWaiting
}

// behind reports whether seq may not pass.
func (g *gate) behind(seq uint64) bool { return g.seq > 0 && seq > g.seq }

// Refused: the client is told that seq was not written. Input without a number
// never comes again.
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

// passed: seq was passed on. What has waited may be from before what was
// Refused, and opens nothing.
func (g *gate) passed(seq uint64) {
	if seq >= g.seq {
		g.open()
	}
}

// written: the client is told that everything up to seq was written.
func (g *gate) written(seq uint64) {
	g.final = max(g.final, seq)
	if g.seq <= seq {
		g.open()
	}
}

func (g *gate) open() { g.seq, g.reason = 0, "" }
