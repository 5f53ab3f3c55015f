package hub

import (
	"cmp"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/turn"
)

const (
	// presenceInterval is the least time between two presence messages.
	presenceInterval = time.Second
	// resizeInterval is the least time between two changes of size (20/s).
	resizeInterval = 50 * time.Millisecond
	// longestTick bounds how late an expired grant is noticed.
	longestTick = time.Second
)

// presence limits how often viewers are told who watches. Owned by run.
type presence struct {
	version uint64 // of the list, raised by every change
	told    uint64 // the version of the last broadcast
	sent    time.Time
}

func (p *presence) changed() { p.version++ }

// dueIn returns how long after now the next broadcast is, if one is needed.
func (p *presence) dueIn(now time.Time) (wait time.Duration, needed bool) {
	return presenceInterval - now.Sub(p.sent), p.version != p.told
}

// message lists the people among viewers, by name.
func (p *presence) message(viewers map[turn.SocketID]*Viewer) protocol.Presence {
	people := map[protocol.UserID]*protocol.PresentViewer{}
	for _, v := range viewers {
		person := people[v.user]
		if person == nil {
			person = &protocol.PresentViewer{UserID: v.user, Name: v.name}
			people[v.user] = person
		}
		person.Sockets++
		person.CanControl = person.CanControl || v.hub.mayControl(v.grant)
	}
	list := make([]protocol.PresentViewer, 0, len(people))
	for _, person := range people {
		list = append(list, *person)
	}
	slices.SortFunc(list, func(a, b protocol.PresentViewer) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UserID, b.UserID))
	})
	return protocol.Presence{Count: len(list), Viewers: list[:min(len(list), protocol.MaxPresenceViewers)]}
}

// pendingResize limits how often the terminal's size changes; the last wish
// wins. Owned by run.
type pendingResize struct {
	wish *protocol.Resize
	sent time.Time
}

func (p *pendingResize) want(m protocol.Resize) { p.wish = &m }

// tick does what is due at now.
func (h *Hub) tick(now time.Time) {
	h.ticked = now
	if wait, needed := h.presence.dueIn(now); needed && wait <= 0 {
		h.tellPresence(now)
	}
	if h.resizeWaits() && now.Sub(h.resize.sent) >= resizeInterval {
		h.send(*h.resize.wish)
		h.resize = pendingResize{sent: now}
	}
	for _, v := range h.viewers {
		if !now.Before(v.grant.Expires()) {
			h.cut(v, "grant_expired", protocol.KindExpired, "the grant has expired")
		}
	}
}

// tellPresence tells who watches to those who don't know it from their
// greeting.
func (h *Hub) tellPresence(now time.Time) {
	h.presence.told, h.presence.sent = h.presence.version, now
	message := h.presence.message(h.viewers)
	for _, v := range h.viewers {
		if v.greeted && v.presence != h.presence.version {
			v.tell(message)
		}
	}
}

// resizeWaits reports whether there is a size to pass on, and an agent to take
// it.
func (h *Hub) resizeWaits() bool { return h.resize.wish != nil && h.link != nil }

// untilTick returns how long after now tick has something to do.
func (h *Hub) untilTick(now time.Time) time.Duration {
	if len(h.viewers) == 0 {
		return time.Hour
	}
	wait := longestTick - now.Sub(h.ticked) // and not from now: events come often
	if due, needed := h.presence.dueIn(now); needed {
		wait = min(wait, due)
	}
	if h.resizeWaits() {
		wait = min(wait, resizeInterval-now.Sub(h.resize.sent))
	}
	return max(wait, 0)
}
