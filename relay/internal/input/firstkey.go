package input

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

// The first key of somebody who may control takes a free terminal. It waits here
// until the agent has said who has control, with all that its viewer types
// behind it, and is judged then like any other.

// A taking is how far it is with a viewer's key that takes the terminal.
type taking uint8

const (
	takesNothing taking = iota
	takingAsked         // run is about to hear of it
	takingHeard         // run has proposed it, or knows better
)

// takes reports whether e is to take the terminal for t. Input with a number must
// have been typed at the free terminal: what was typed under control that was
// lost is refused, however free the terminal is. The caller holds mu.
func (in *Queue) takes(t *Typist, e message) bool {
	return !e.late && !e.execute && in.state.Free() && in.state.MayControl(t.ID) &&
		(e.seq == 0 || e.term == protocol.FreeTerm(in.state.Term()))
}

// take has v's input wait for control. The caller holds mu.
func (in *Queue) take(t *Typist, e message) {
	e.late = true
	t.waiting = append(t.waiting, e)
	t.taking = takingAsked
	in.takers[t] = true
	in.rouse()
}

// rouse has run look at what the intake wants of it.
func (in *Queue) rouse() {
	select {
	case in.asks <- struct{}{}:
	default: // run is about to look
	}
}

// termOf returns the term that e counts under now. The caller holds mu.
func (in *Queue) termOf(e message) uint64 {
	now := in.state.Term()
	if e.seq == 0 || now > 0 && e.term == protocol.FreeTerm(now-1) {
		return now
	}
	return e.term
}

// Asked returns who has typed last and didn't lead, nil for nobody, and who has
// Asked for control by a key since the last time.
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

// takenBy judges what waited for control, as far as that is decided. The caller
// holds mu.
func (in *Queue) takenBy() {
	for t := range in.takers {
		if t.taking == takingHeard && !in.state.Taking(t.ID) {
			delete(in.takers, t)
			t.taking = takesNothing
			in.judge(t)
		}
	}
}

// LedBy notes which viewer leads, 0 for none. Others become it by typing.
func (in *Queue) LedBy(id turn.SocketID) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.leader = id
}

// typedBy notes that t types, who may not lead yet. The caller holds mu.
func (in *Queue) typedBy(t *Typist) {
	if t.ID != in.leader && !t.Follows {
		in.typist = t
		in.rouse()
	}
}
