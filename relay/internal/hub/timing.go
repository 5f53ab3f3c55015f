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
	dirty bool
	sent  time.Time
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
	if h.presence.dirty && now.Sub(h.presence.sent) >= presenceInterval {
		h.presence.dirty, h.presence.sent = false, now
		h.broadcast(h.presence.message(h.viewers))
	}
	if h.resize.wish != nil && now.Sub(h.resize.sent) >= resizeInterval {
		h.send(*h.resize.wish)
		h.resize = pendingResize{sent: now}
	}
	for _, v := range h.viewers {
		if !now.Before(v.grant.Expires()) {
			h.metrics.ViewersCut.WithLabelValues("grant_expired").Inc()
			v.close(protocol.KindExpired, "the grant has expired")
		}
	}
}

// untilTick returns how long after now tick has something to do.
func (h *Hub) untilTick(now time.Time) time.Duration {
	if len(h.viewers) == 0 {
		return time.Hour
	}
	wait := longestTick
	if h.presence.dirty {
		wait = min(wait, presenceInterval-now.Sub(h.presence.sent))
	}
	if h.resize.wish != nil {
		wait = min(wait, resizeInterval-now.Sub(h.resize.sent))
	}
	return max(wait, 0)
}
