package hub

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/tunnel"
)

// keyframeWait is how long a viewer waits for a keyframe before it goes on
// without. A test has more patience.
var keyframeWait = 2 * time.Second

// A want is what a viewer waits for before output goes on. Owned by run.
type want struct {
	sort  feed.Sort // of keyframe that it takes; one with history does for both
	ahead bool      // it is ahead of the ring, which is about to catch up
	why   string    // for what it is moved ahead; empty: it isn't greeted yet
	until time.Time // when it goes on without
}

// wants are the viewers who wait, and what was asked of the agent for them.
// Owned by run.
type wants struct {
	catchingUp bool // the ring doesn't hold what OPENED announced

	of    map[*Viewer]want
	next  time.Time // nobody's time is over before
	count [2]int    // who wait for a keyframe, by its sort
	asked [2]time.Time
	open  [2]bool // asked for, and not yet come
}

func (w *wants) add(v *Viewer, wish want) {
	if len(w.of) == 0 {
		w.next = wish.until
	}
	w.of[v] = wish
	if !wish.ahead {
		w.count[wish.sort]++
	}
}

// drop ends v's waiting, if it waits.
func (w *wants) drop(v *Viewer) {
	wish, waits := w.of[v]
	if waits && !wish.ahead {
		w.count[wish.sort]--
	}
	delete(w.of, v)
}

// take ends the waiting of those for whom pick holds, and returns them.
func (w *wants) take(pick func(want) bool) map[*Viewer]want {
	taken := map[*Viewer]want{}
	for v, wish := range w.of {
		if pick(wish) {
			taken[v] = wish
		}
	}
	for v := range taken {
		w.drop(v)
	}
	return taken
}

// due returns how long after now somebody's waiting ends, or another
// keyframe may be asked for.
func (w *wants) due(now time.Time, canAsk bool) time.Duration {
	due := w.next.Sub(now)
	for sort, asked := range w.asked {
		if w.count[sort] > 0 && !w.open[sort] && canAsk {
			due = min(due, asked.Add(protocol.KeyframeInterval).Sub(now))
		}
	}
	return due
}

// canAsk reports whether the agent can be asked for a keyframe.
func (h *Hub) canAsk() bool { return h.link != nil && !h.finished.Load() }

// attach gives v a position in the output and its greeting, or has it wait for
// one. Who comes back with an older position than the ring has is told whether
// anything is missing, so the agent is asked first.
func (h *Hub) attach(v *Viewer) {
	if v == nil || v.greeted || v.asking {
		return
	}
	if _, waits := h.wants.of[v]; waits {
		return
	}
	if h.link != nil && h.feed.Precedes(v.reader.Start().Since) {
		v.asking = true
		go h.askLog(v, h.link.session) // ends with the hub
		return
	}
	h.attachNow(v)
}

// askLog finds out whether the agent's log has what v wants.
func (h *Hub) askLog(v *Viewer, session *tunnel.Session) {
	pos := *v.reader.Start().Since
	stream, _, err := h.dial.openLog(h.life.over, session, feed.Gap{Pos: pos, To: pos.Offset + 1})
	if err == nil {
		stream.Close()
	}
	h.post(inLog{v, !errors.Is(err, feed.ErrNotServed) && !final(err)})
}

// inLog attaches a viewer for whom the agent was asked.
func (h *Hub) inLog(v *Viewer, ok bool) {
	v.asking = false
	if !h.audience.sees(v) || v.greeted {
		return
	}
	if !ok {
		v.reader.Restart(feed.Start{Astray: true})
	}
	h.attachNow(v)
}

// attachNow is attach for a viewer of which nothing more is to be known.
func (h *Hub) attachNow(v *Viewer) {
	ahead := h.wants.catchingUp && h.feed.Ahead(v.reader.Start().Since)
	if !ahead {
		if m, ok := v.reader.Attach(h.canAsk()); ok {
			h.greet(v, m)
			return
		}
	}
	h.wait(v, want{sort: feed.WithHistory, ahead: ahead})
}

// wait has v wait for a keyframe, and asks for one.
func (h *Hub) wait(v *Viewer, w want) {
	now := time.Now()
	w.until = now.Add(keyframeWait)
	h.wants.add(v, w)
	h.askKeyframes(now)
}

// askKeyframes asks the agent for what viewers wait for: one request for all,
// and not before the last one is answered.
func (h *Hub) askKeyframes(now time.Time) {
	if !h.canAsk() {
		return
	}
	for sort := range h.wants.count {
		sort, n := feed.Sort(sort), h.wants.count[sort]
		if n == 0 || h.wants.open[sort] || now.Sub(h.wants.asked[sort]) < protocol.KeyframeInterval {
			continue
		}
		h.wants.asked[sort], h.wants.open[sort] = now, true
		h.metrics.KeyframesWanted.Inc()
		h.feed.Requested(sort)
		h.send(protocol.WantKeyframe{History: sort == feed.WithHistory})
	}
}

// came hands a new keyframe to those who wait for one.
func (h *Hub) came(kf *feed.Keyframe) {
	h.wants.open[kf.Sort()] = false
	if kf.Sort() == feed.WithHistory {
		h.wants.open[feed.ScreenOnly] = false // it answers both
	}
	for v, w := range h.wants.take(func(w want) bool { return !w.ahead && kf.Sort() >= w.sort }) {
		h.moveOn(v, w, kf)
	}
	h.askKeyframes(time.Now())
}

// moveOn ends v's waiting, with a keyframe or nil for none.
func (h *Hub) moveOn(v *Viewer, w want, kf *feed.Keyframe) {
	if w.why == "" {
		h.attachBehind(v, kf)
		return
	}
	var skipped uint64
	if kf == nil {
		skipped = v.reader.SkipToLine()
	} else {
		var ok bool
		if skipped, ok = v.reader.SkipBehind(kf); !ok { // it is of another log
			h.wait(v, w)
			return
		}
		h.metrics.KeyframesSent.Inc()
	}
	h.metrics.Resyncs.WithLabelValues(w.why).Inc()
	h.metrics.Skipped.Add(float64(skipped))
	v.socket.Wake()
}

// attachBehind attaches a viewer that has waited for a keyframe, with that or
// without.
func (h *Hub) attachBehind(v *Viewer, kf *feed.Keyframe) {
	if kf == nil {
		m, _ := v.reader.Attach(false)
		h.greet(v, m)
	} else if m, ok := v.reader.AttachBehind(kf); ok {
		h.greet(v, m)
	} else { // it is of another log
		h.attach(v)
	}
}

// fellBehind: v can't go on where it is. It gets a keyframe: without history when it
// was merely too slow, for then it has what was above.
func (h *Hub) fellBehind(v *Viewer, why string) {
	if _, waits := h.wants.of[v]; waits || !h.audience.sees(v) || !v.greeted {
		return
	}
	w := want{why: why, sort: feed.SortOf(why == feed.ResyncReset || why == feed.ResyncLog)}
	if kf := v.reader.Usable(w.sort); kf != nil || !h.canAsk() {
		h.moveOn(v, w, kf)
		return
	}
	h.wait(v, w)
}

// noKeyframes: none will come, so whoever waits for one goes on without.
func (h *Hub) noKeyframes() {
	h.wants.open = [2]bool{}
	for v, w := range h.wants.take(func(w want) bool { return !w.ahead }) {
		h.moveOn(v, w, nil)
	}
}

// caughtUp: the ring holds what OPENED announced, so viewers who were ahead of
// it can attach.
func (h *Hub) caughtUp() {
	h.wants.catchingUp = false
	h.life.begin(nil) // before, one that resumes could be ahead of the ring
	for v := range h.wants.take(func(w want) bool { return w.ahead }) {
		h.attach(v)
	}
}

// expireWants ends the waiting of those whose time is over at now.
func (h *Hub) expireWants(now time.Time) {
	if len(h.wants.of) == 0 {
		return
	}
	if now.Before(h.wants.next) {
		h.askKeyframes(now)
		return
	}
	for v, w := range h.wants.take(func(w want) bool { return !now.Before(w.until) }) {
		if w.ahead && h.canAsk() {
			h.wait(v, want{sort: feed.WithHistory})
			continue
		}
		h.wants.open[w.sort] = false // it may be asked for again
		h.moveOn(v, w, nil)
	}
	h.wants.next = now.Add(keyframeWait)
	for _, w := range h.wants.of {
		if w.until.Before(h.wants.next) {
			h.wants.next = w.until
		}
	}
	h.askKeyframes(now)
}
