package hub

import (
	"github.com/fairlead/fairlead/protocol"
)

// pacers are the pace-setters. Owned by run.
type pacers struct {
	controller protocol.UserID
	newest     map[string]*Viewer // by client id: the newest of its sockets, which reports
}

// controls reports whether v belongs to the controller.
func (p *pacers) controls(v *Viewer) bool { return v.user != "" && v.user == p.controller }

// setsPace reports whether v should be a pace-setter: the controller's viewers
// are, and those that get every byte.
func (h *Hub) setsPace(v *Viewer) bool {
	return v.greeted && h.audience.sees(v) && (v.wantsAll || h.pacers.controls(v))
}

// followController makes the new controller's viewers pace-setters, instead of
// the old one's.
func (h *Hub) followController() {
	next, last := h.state.Controller(), h.pacers.controller
	if next == last {
		return
	}
	h.hold(false) // the one who typed it is no longer in control
	h.pacers.controller = next
	for _, v := range h.audience.viewers {
		if v.user == next || v.user == last {
			h.repace(v)
		}
	}
}

// repace makes v a pace-setter if it should be one, otherwise ends that.
func (h *Hub) repace(v *Viewer) {
	speaker := h.pacers.newest[v.pacer]
	switch {
	case !h.setsPace(v):
		h.unpace(v)
	case speaker == v:
	case speaker == nil && len(h.pacers.newest) >= protocol.MaxPacers: // the agent would refuse it
	case speaker == nil || speaker.id < v.id:
		if speaker == nil {
			h.metrics.PaceSetters.Inc()
		} else {
			speaker.reader.SetPace(false)
		}
		h.pacers.newest[v.pacer] = v
		v.reader.SetPace(true)
		h.tellPace(v)
	}
}

// unpace removes v as a pace-setter. Another socket of the same client takes
// its place.
func (h *Hub) unpace(v *Viewer) {
	if h.pacers.newest[v.pacer] != v {
		return
	}
	delete(h.pacers.newest, v.pacer)
	h.metrics.PaceSetters.Dec()
	v.reader.SetPace(false)
	var next *Viewer
	for _, other := range h.audience.viewers {
		if other != v && other.pacer == v.pacer && h.setsPace(other) && (next == nil || next.id < other.id) {
			next = other
		}
	}
	if next != nil {
		h.repace(next)
		return
	}
	h.send(protocol.Pace{ID: v.pacer, Offset: v.reader.Pace(), Gone: true})
}

// tellPace reports v's progress to the agent, if v is a pace-setter.
func (h *Hub) tellPace(v *Viewer) {
	if h.pacers.newest[v.pacer] == v {
		h.send(protocol.Pace{ID: v.pacer, Offset: v.reader.Pace()})
	}
}
