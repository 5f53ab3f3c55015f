package hub

import (
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/agentstream"
	"github.com/fairlead/fairlead/relay/internal/feed"
	"github.com/fairlead/fairlead/tunnel"
)

// keyframeWait is how long a viewer waits for a keyframe before it continues
// without. It is a variable so that a test can raise it.
var keyframeWait = 2 * time.Second

// A want is what a viewer waits for before output continues. Owned by run.
type want struct {
	sort  feed.Sort // of keyframe; one with history does for both
	ahead bool      // it is ahead of the ring, which is still catching up
	why   string    // the reason for moving it ahead; empty: it isn't greeted yet
	until time.Time // when it continues without
}

// wants are the waiting viewers, and the requests to the agent for them. Owned
// by run.
type wants struct {
	catchingUp bool // the ring doesn't yet hold what OPENED announced

	of    map[*Viewer]want
	next  time.Time // nobody's until is earlier
	count [2]int    // viewers that wait for a keyframe, by sort
	asked [2]time.Time
	open  [2]bool // requested and not yet come
}

func (w *wants) add(v *Viewer, one want) {
	if len(w.of) == 0 {
		w.next = one.until
	}
	w.of[v] = one
	if !one.ahead {
		w.count[one.sort]++
	}
}

// drop ends v's wait, if any.
func (w *wants) drop(v *Viewer) {
	one, waits := w.of[v]
	if waits && !one.ahead {
		w.count[one.sort]--
	}
	delete(w.of, v)
}

// take ends the waits for which pick is true, and returns them.
func (w *wants) take(pick func(want) bool) map[*Viewer]want {
	taken := map[*Viewer]want{}
	for v, one := range w.of {
		if pick(one) {
			taken[v] = one
		}
	}
	for v := range taken {
		w.drop(v)
	}
	return taken
}

// due returns how long after now some wait ends, or another keyframe may be
// requested.
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

// attach gives v a position in the output and its greeting, or lets it wait. If
// v returns with an older position than the ring has, it asks the agent first,
// so that v learns whether output is missing.
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

// askLog checks whether the agent's log has what v wants.
func (h *Hub) askLog(v *Viewer, session *tunnel.Session) {
	pos := *v.reader.Start().Since
	stream, _, err := h.dial.openLog(h.life.over, session, feed.Gap{Pos: pos, To: pos.Offset + 1})
	if err == nil {
		stream.Close()
	}
	h.post(inLog{v, !errors.Is(err, feed.ErrNotServed) && !agentstream.Final(err)})
}

// inLog attaches a viewer after the check of the agent's log.
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

// attachNow is attach without that check.
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

// wait makes v wait for a keyframe, and requests one.
func (h *Hub) wait(v *Viewer, w want) {
	now := time.Now()
	w.until = now.Add(keyframeWait)
	h.wants.add(v, w)
	h.askKeyframes(now)
}

// askKeyframes requests the keyframes that viewers wait for: one request for
// all, after the last one is answered.
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

// came hands a new keyframe to those who wait for it.
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

// moveOn ends v's wait with a keyframe, nil for none.
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

// attachBehind attaches a viewer after its wait, with a keyframe or without.
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

// fellBehind moves a viewer on that can't continue where it is. A merely slow
// one gets a keyframe without history: it has the lines above.
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

// noKeyframes ends all waits for keyframes, as none will come.
func (h *Hub) noKeyframes() {
	h.wants.open = [2]bool{}
	for v, w := range h.wants.take(func(w want) bool { return !w.ahead }) {
		h.moveOn(v, w, nil)
	}
}

// caughtUp notes that the ring holds what OPENED announced, so viewers ahead of
// it can attach.
func (h *Hub) caughtUp() {
	h.wants.catchingUp = false
	h.life.begin(nil) // earlier, a resuming viewer could be ahead of the ring
	for v := range h.wants.take(func(w want) bool { return w.ahead }) {
		h.attach(v)
	}
}

// expireWants ends the waits that are over at now.
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
		h.wants.open[w.sort] = false // it may be requested again
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
