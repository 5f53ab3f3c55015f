package input

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// The first key of somebody who may control takes a free terminal. The key, and
// all that its viewer types after it, waits here until the agent has said who
// has control. Then it is judged like any other input.

// A taking is the progress of a key that takes the terminal.
type taking uint8

const (
	takesNothing taking = iota
	takingAsked         // run is about to be asked
	takingHeard         // run has proposed it, or has refused
)

// takes reports whether e may take the terminal for t. Numbered input must have
// been typed while the terminal was free: input typed under control that was
// lost is refused even if the terminal is free now. The caller holds mu.
func (in *Queue) takes(t *Typist, e message) bool {
	return !e.late && !e.execute && in.state.Free() && in.state.MayControl(t.ID) &&
		(e.seq == 0 || e.term == protocol.FreeTerm(in.state.Term()))
}

// take makes e wait for control. The caller holds mu.
func (in *Queue) take(t *Typist, e message) {
	e.late = true
	t.waiting = append(t.waiting, e)
	t.taking = takingAsked
	in.takers[t] = true
	in.rouse()
}

// rouse makes run look at what the queue asks for.
func (in *Queue) rouse() {
	select {
	case in.asks <- struct{}{}:
	default: // run is about to look
	}
}

// termOf returns the term for e. The caller holds mu.
func (in *Queue) termOf(e message) uint64 {
	now := in.state.Term()
	if e.seq == 0 || now > 0 && e.term == protocol.FreeTerm(now-1) {
		return now
	}
	return e.term
}

// Asked returns who has typed last and didn't lead, nil for nobody, and whose
// keys have asked for control since the last call.
func (in *Queue) Asked() (last *Typist, takers []*Typist) {
	in.mu.Lock()
	defer in.mu.Unlock()
	last, in.typist = in.typist, nil
	for t := range in.takers {
		if t.taking == takingAsked {
			t.taking = takingHeard
			takers = append(takers, t)
		}
	}
	return last, takers
}

// takenBy judges input that waited for control, once that is decided. The
// caller holds mu.
func (in *Queue) takenBy() {
	for t := range in.takers {
		if t.taking == takingHeard && !in.state.Taking(t.ID) {
			delete(in.takers, t)
			t.taking = takesNothing
			in.judge(t)
		}
	}
}

// LedBy notes which viewer leads, 0 for none. Another one may lead by typing.
func (in *Queue) LedBy(id turn.SocketID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.leader = id
}

// typedBy notes that t types, so that it may lead. The caller holds mu.
func (in *Queue) typedBy(t *Typist) {
	if t.ID != in.leader && !t.Follows {
		in.typist = t
		in.rouse()
	}
}
