package hub

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

	"github.com/fairlead/fairlead/protocol"
)

// pacing is how far a viewer is who holds the terminal back. Guarded by
// feed.mu.
type pacing struct {
	on  bool   // it is a pace-setter
	at  uint64 // it has everything before: shown, or written to its socket
	due uint64 // the agent is to hear when it has reached this
}

// moved: the viewer was put elsewhere. Until it says so, or was written to, it
// has no more than before, unless that was of another log.
func (p *pacing) moved(offset uint64, anew bool) {
	if anew {
		p.at = offset
	}
	p.due = offset
}

// reached notes where the viewer is, and reports whether the agent should hear
// of it.
func (p *pacing) reached(offset uint64) bool {
	p.at = offset
	if !p.on || offset < p.due {
		return false
	}
	p.due = offset + protocol.PaceBytes
	return true
}

// setPace makes v a pace-setter, or ends that.
func (f *feed) setPace(v *Viewer, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v.pace.on = on
	v.pace.due = v.pace.at + protocol.PaceBytes
	v.paces.Store(on)
}

// setExact says whether v gets every byte.
func (f *feed) setExact(v *Viewer, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v.exact = on
}

// paceOf returns where v is.
func (f *feed) paceOf(v *Viewer) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return v.pace.at
}

// wrote: everything that v was sent is written to its socket. It reports
// whether the agent should hear of it.
func (f *feed) wrote(v *Viewer) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return v.place.run == f.run && v.place.lead == nil && v.pace.reached(v.place.sent())
}

// written follows a write that took all there was. Of viewers who acknowledge
// the agent hears by that; of most others, nothing.
func (v *Viewer) written() {
	if v.paces.Load() && !v.counts && v.hub.feed.wrote(v) {
		v.hub.post(paced{v})
	}
}

// pacers are the viewers who hold the terminal back. Owned by run.
type pacers struct {
	controller protocol.UserID
	newest     map[string]*Viewer // who speaks for a name: of its sockets the newest
}

// setsPace reports whether v should hold the terminal back: the controller's
// viewers do, and those that asked for every byte.
func (h *Hub) setsPace(v *Viewer) bool {
	return v.greeted && h.viewers[v.id] == v && (v.wantsAll || v.user != "" && v.user == h.pacers.controller)
}

// followController makes the new controller's viewers pace-setters, and the
// old one's none.
func (h *Hub) followController() {
	next, last := h.state.Controller(), h.pacers.controller
	if next == last {
		return
	}
	h.hold(false) // whoever typed that has left the keyboard
	h.pacers.controller = next
	for _, v := range h.viewers {
		if v.user == next || v.user == last {
			h.repace(v)
		}
	}
}

// repace makes v a pace-setter if it should be one, and ends that if not.
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
			h.feed.setPace(speaker, false)
		}
		h.pacers.newest[v.pacer] = v
		h.feed.setPace(v, true)
		h.tellPace(v)
	}
}

// unpace ends v's being a pace-setter. Another socket of the same name takes
// its place.
func (h *Hub) unpace(v *Viewer) {
	if h.pacers.newest[v.pacer] != v {
		return
	}
	delete(h.pacers.newest, v.pacer)
	h.metrics.PaceSetters.Dec()
	h.feed.setPace(v, false)
	var next *Viewer
	for _, other := range h.viewers {
		if other != v && other.pacer == v.pacer && h.setsPace(other) && (next == nil || next.id < other.id) {
			next = other
		}
	}
	if next != nil {
		h.repace(next)
		return
	}
	h.send(protocol.Pace{ID: v.pacer, Offset: h.feed.paceOf(v), Gone: true})
}

// tellPace tells the agent where v is, if v is a pace-setter.
func (h *Hub) tellPace(v *Viewer) {
	if h.pacers.newest[v.pacer] == v {
		h.send(protocol.Pace{ID: v.pacer, Offset: h.feed.paceOf(v)})
	}
}

// scoped returns the name of a user's client to the agent: the same across
// sockets and relays, and nobody else's.
func scoped(user protocol.UserID, client string) string {
	sum := sha256.Sum256([]byte(string(user) + "\x00" + client))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

// names returns how a guest is called to the agent: as a pace-setter, and as
// one who types. The relay counts a plain client's input, from 1 for each
// socket, so each is another client to the agent.
func (g Guest) names() (pacer, client string) {
	if g.Client == "" {
		name := rand.Text()
		return name, name
	}
	pacer = scoped(g.Grant.Subject, g.Client)
	if g.Counts {
		return pacer, pacer
	}
	return pacer, rand.Text()
}
