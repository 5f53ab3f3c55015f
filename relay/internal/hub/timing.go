package hub

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// resizeInterval is the least time between two resizes (20/s).
	resizeInterval = 50 * time.Millisecond
	// longestTick bounds the delay of work without a time of its own.
	longestTick = time.Second
)

// pendingResize limits how often the terminal is resized; the last request
// wins. Owned by run.
type pendingResize struct {
	asked *protocol.Resize
	sent  time.Time
	last  size // last size sent
}

func (p *pendingResize) want(m protocol.Resize) { p.asked = &m }

// tick does what is due at now.
func (h *Hub) tick(now time.Time) {
	h.ticked = now
	h.tellCrowd(now)
	h.expireWants(now)
	h.typing.EnterDue(now)
	if h.feed != nil {
		h.feed.DropStale()
	}
	if wait, needed := h.presence.DueIn(now); needed && wait <= 0 {
		h.presence.Told(now)
		frame := h.presenceFrame(nil)
		for _, v := range h.audience.viewers {
			if v.greeted && v.presence != h.presence.Version() { // others know it from their greeting
				v.outbox.tellFrame(frame)
			}
		}
	}
	h.audience.tell(h.facts.list(now)...)
	if h.resize.asked != nil && h.link != nil && now.Sub(h.resize.sent) >= resizeInterval {
		h.send(*h.resize.asked)
		h.resize = pendingResize{sent: now, last: size{h.resize.asked.Cols, h.resize.asked.Rows}}
	}
	h.audience.carry(h.audience.roster.Late(now))
}

// untilTick returns how long after now tick is due.
func (h *Hub) untilTick(now time.Time) time.Duration {
	crowd, counts := h.crowd.dueIn(now)
	counts = counts && h.link != nil
	if len(h.audience.viewers)+len(h.audience.pending) == 0 && !counts {
		return time.Hour
	}
	wait := longestTick - now.Sub(h.ticked) // counted from the last tick, as events come often
	if counts {
		wait = min(wait, crowd)
	}
	if due, needed := h.presence.DueIn(now); needed {
		wait = min(wait, due)
	}
	if due, needed := h.facts.listDueIn(now); needed {
		wait = min(wait, due)
	}
	if h.resize.asked != nil && h.link != nil {
		wait = min(wait, resizeInterval-now.Sub(h.resize.sent))
	}
	if due := h.audience.roster.Due(); !due.IsZero() {
		wait = min(wait, due.Sub(now))
	}
	if due, needed := h.typing.NextEnter(now); needed {
		wait = min(wait, due)
	}
	if len(h.wants.of) > 0 {
		wait = min(wait, h.wants.due(now, h.canAsk()))
	}
	return max(wait, 0)
}
