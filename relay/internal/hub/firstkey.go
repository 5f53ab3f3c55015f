package hub

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

// takes reports whether e is to take the terminal for v. Input with a number must
// have been typed at the free terminal: what was typed under control that was
// lost is refused, however free the terminal is. The caller holds mu.
func (in *intake) takes(v *Viewer, e typed) bool {
	return !e.late && !e.execute && in.state.Free() && in.state.MayControl(v.id) &&
		(e.seq == 0 || e.term == protocol.FreeTerm(in.state.Term()))
}

// take has v's input wait for control. The caller holds mu.
func (in *intake) take(v *Viewer, e typed) {
	e.late = true
	v.waiting = append(v.waiting, e)
	v.taking = takingAsked
	in.takers[v] = true
	in.rouse()
}

// rouse has run look at what the intake wants of it.
func (in *intake) rouse() {
	select {
	case in.asks <- struct{}{}:
	default: // run is about to look
	}
}

// termOf returns the term that e counts under now. The caller holds mu.
func (in *intake) termOf(e typed) uint64 {
	now := in.state.Term()
	if e.seq == 0 || now > 0 && e.term == protocol.FreeTerm(now-1) {
		return now
	}
	return e.term
}

// asked returns who has typed last and didn't lead, nil for nobody, and who has
// asked for control by a key since the last time.
func (in *intake) asked() (typist *Viewer, viewers []*Viewer) {
	in.mu.Lock()
	defer in.mu.Unlock()
	typist, in.typist = in.typist, nil
	for v := range in.takers {
		if v.taking == takingAsked {
			v.taking = takingHeard
			viewers = append(viewers, v)
		}
	}
	return typist, viewers
}

// takenBy judges what waited for control, as far as that is decided. The caller
// holds mu.
func (in *intake) takenBy() {
	for v := range in.takers {
		if v.taking == takingHeard && !in.state.Taking(v.id) {
			delete(in.takers, v)
			v.taking = takesNothing
			in.judge(v)
		}
	}
}

// heed passes on what keys ask for: control of a free terminal, and to lead.
func (h *Hub) heed() {
	typist, takers := h.intake.asked()
	for _, v := range takers {
		h.leading.acts(v.user, v.id)
		h.step(turn.Keyed{Socket: v.id})
	}
	if typist != nil {
		h.leading.acts(typist.user, typist.id)
		h.lead()
	}
}

// ledBy notes which viewer leads, nil for none. Others become it by typing.
func (in *intake) ledBy(v *Viewer) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.leader = v
}

// typedBy notes that v types, who may not lead yet. The caller holds mu.
func (in *intake) typedBy(v *Viewer) {
	if v != in.leader && !v.follows {
		in.typist = v
		in.rouse()
	}
}
