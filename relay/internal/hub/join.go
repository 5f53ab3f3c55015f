package hub

import (
	"errors"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/tunnel"
)

// wholeBytes bounds a log that a newcomer gets whole.
const wholeBytes = 64 << 10

// keyframeWait is how long a viewer waits for a keyframe before it goes on
// without. A test has more patience.
var keyframeWait = 2 * time.Second

// A since says from where a viewer wants output.
type since struct {
	pos    *protocol.Position // nil: from where a newcomer should
	astray bool               // it has been somewhere, and couldn't say where
}

func (s since) newcomer() bool { return s.pos == nil && !s.astray }

// A want is what a viewer waits for before output goes on. Owned by run.
type want struct {
	history bool      // it takes keyframes with history only
	ahead   bool      // it is ahead of the ring, which is about to catch up
	why     string    // for what it is moved ahead; empty: it isn't greeted yet
	until   time.Time // when it goes on without
}

// wants are the viewers who wait, and what was asked of the agent for them.
// Owned by run.
type wants struct {
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
		w.count[sortOf(wish.history)]++
	}
}

// drop ends v's waiting, if it waits.
func (w *wants) drop(v *Viewer) {
	wish, waits := w.of[v]
	if waits && !wish.ahead {
		w.count[sortOf(wish.history)]--
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

// join places v: at its position when the ring holds it, or on the way there
// through the agent's log; else behind a keyframe; else, unless wait is set, at
// the start of a line. It returns what to tell the viewer, and false when v
// should wait for a keyframe.
func (f *feed) join(v *Viewer, wait bool) (m protocol.Attached, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m = protocol.Attached{Epoch: f.ring.Epoch(), Head: f.ring.Head(), Mode: protocol.ModeResume}
	since, kf := v.since, f.fresh(true, 0)
	switch {
	case f.holds(since.pos):
		m.Offset = since.pos.Offset
		m.Cols, m.Rows = f.sitAt(v, m.Offset)
	case f.precedes(since.pos):
		m.Offset = since.pos.Offset
		m.Cols, m.Rows = f.ring.SizeAt(m.Offset)
		f.sit(v, place{state: filling, offset: m.Offset})
		v.fill.begin(m.Cols, m.Rows)
	case since.newcomer() && f.whole():
		m.Cols, m.Rows = f.sitAt(v, 0)
	case kf != nil:
		m = f.joinBehind(v, kf)
	case wait:
		return m, false
	default:
		m.Offset = f.start()
		m.Cols, m.Rows = f.sitAt(v, m.Offset)
		if !since.newcomer() || m.Offset > 0 {
			m.Mode = protocol.ModeGap
		}
	}
	f.add(v)
	return m, true
}

// joinBehind places a newcomer behind kf.
func (f *feed) joinBehind(v *Viewer, kf *keyframe) protocol.Attached {
	f.sitBehind(v, kf)
	m := protocol.Attached{
		Epoch: f.ring.Epoch(), Offset: kf.offset, Head: f.ring.Head(), Cols: kf.cols, Rows: kf.rows,
		Mode: protocol.ModeKeyframe, KeyframeBytes: kf.bytes,
	}
	if !v.since.newcomer() {
		m.Mode = protocol.ModeGap
	}
	return m
}

// add has v's socket offered what is new. The caller holds mu.
func (f *feed) add(v *Viewer) { f.viewers = append(slices.Clip(f.viewers), v) }

// holds reports whether pos is in the ring.
func (f *feed) holds(pos *protocol.Position) bool {
	if pos == nil || pos.Epoch != f.ring.Epoch() {
		return false
	}
	_, err := f.ring.CursorAt(pos.Offset)
	return err == nil
}

// precedes reports whether pos is in the log that the ring is the end of.
func (f *feed) precedes(pos *protocol.Position) bool {
	return pos != nil && pos.Epoch == f.ring.Epoch() && pos.Offset < f.ring.Oldest()
}

// before is precedes for a caller without mu.
func (f *feed) before(pos *protocol.Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.precedes(pos)
}

// ahead reports whether pos is one that the ring may yet reach.
func (f *feed) ahead(pos *protocol.Position) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return pos != nil && pos.Epoch == f.ring.Epoch() && pos.Offset > f.ring.Head()
}

// whole reports whether the ring has all the output there was, and that is
// little.
func (f *feed) whole() bool {
	return f.begin == 0 && f.ring.Oldest() == 0 && f.ring.Head() <= wholeBytes
}

// moveBehind moves v ahead to where kf ends, and returns how many bytes it thus
// skips. It reports false when kf is of another log.
func (f *feed) moveBehind(v *Viewer, kf *keyframe) (skipped uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kf.run != f.run {
		return 0, false
	}
	skipped = f.skips(v, kf.offset)
	f.sitBehind(v, kf, resyncFrame(protocol.Resync{
		Epoch: f.ring.Epoch(), Offset: kf.offset, Head: f.ring.Head(), Cols: kf.cols, Rows: kf.rows, KeyframeBytes: kf.bytes,
	}))
	return skipped, true
}

// moveAhead moves v ahead without a keyframe, to the start of a line, and
// returns how many bytes it thus skips.
func (f *feed) moveAhead(v *Viewer) (skipped uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	offset := f.start()
	skipped = f.skips(v, offset)
	cols, rows := f.ring.SizeAt(offset)
	f.sitAt(v, offset, resyncFrame(protocol.Resync{
		Epoch: f.ring.Epoch(), Offset: offset, Head: f.ring.Head(), Cols: cols, Rows: rows,
	}))
	return skipped
}

// skips returns how many bytes v never gets when it goes on at offset: none that
// is known when the log is another one. The caller holds mu.
func (f *feed) skips(v *Viewer, offset uint64) uint64 {
	if at := v.place.sent(); v.place.epoch == f.ring.Epoch() && at < offset {
		return offset - at
	}
	return 0
}

func resyncFrame(m protocol.Resync) []byte {
	return replay.AppendTextFrame(nil, protocol.EncodeServerMessage(m))
}

// usable returns a keyframe that is there already for a viewer that is to be
// moved ahead.
func (f *feed) usable(v *Viewer, history bool) *keyframe {
	f.mu.Lock()
	defer f.mu.Unlock()
	after := uint64(0)
	if v.place.epoch == f.ring.Epoch() {
		after = v.place.sent()
	}
	return f.freshest(history, after)
}

// canAsk reports whether the agent can be asked for a keyframe.
func (h *Hub) canAsk() bool { return h.link != nil && !h.finished.Load() }

// seat greets v if it can be placed, or has it wait. One who comes back with an
// older position than the ring has is told whether anything is missing, so the
// agent is asked first.
func (h *Hub) seat(v *Viewer) {
	if v.asking {
		return
	}
	if h.link != nil && h.feed.before(v.since.pos) {
		v.asking = true
		go h.askLog(v, h.link.session) // ends with the hub
		return
	}
	h.place(v)
}

// askLog finds out whether the agent's log has what v wants.
func (h *Hub) askLog(v *Viewer, session *tunnel.Session) {
	pos := *v.since.pos
	r, err := v.openLog(h.over, session, gap{pos: pos, to: pos.Offset + 1})
	if err == nil {
		r.stream.Close()
	}
	h.post(inLog{v, !errors.Is(err, errNotServed) && !final(err)})
}

// answeredLog seats a viewer for whom the agent was asked.
func (h *Hub) answeredLog(v *Viewer, ok bool) {
	v.asking = false
	if h.viewers[v.id] != v || v.greeted {
		return
	}
	if !ok {
		v.since = since{astray: true}
	}
	h.place(v)
}

// place is seat for one of whom nothing more is to be known.
func (h *Hub) place(v *Viewer) {
	ahead := h.catchingUp && h.feed.ahead(v.since.pos)
	if !ahead {
		if m, ok := h.feed.join(v, h.canAsk()); ok {
			h.welcome(v, m)
			return
		}
	}
	h.wait(v, want{history: true, ahead: ahead})
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
	for sort, n := range h.wants.count {
		if n == 0 || h.wants.open[sort] || now.Sub(h.wants.asked[sort]) < protocol.KeyframeInterval {
			continue
		}
		h.wants.asked[sort], h.wants.open[sort] = now, true
		h.metrics.KeyframesWanted.Inc()
		h.feed.owe(sort)
		h.send(protocol.WantKeyframe{History: sort == sortOf(true)})
	}
}

// came hands a new keyframe to those who wait for one.
func (h *Hub) came(kf *keyframe) {
	h.wants.open[sortOf(kf.history)] = false
	if kf.history {
		h.wants.open[sortOf(false)] = false // it answers both
	}
	for v, w := range h.wants.take(func(w want) bool { return !w.ahead && (kf.history || !w.history) }) {
		h.moveOn(v, w, kf)
	}
	h.askKeyframes(time.Now())
}

// moveOn ends v's waiting, with a keyframe or nil for none.
func (h *Hub) moveOn(v *Viewer, w want, kf *keyframe) {
	switch {
	case w.why == "" && kf != nil:
		if m, ok := h.feed.greetBehind(v, kf); ok {
			h.welcome(v, m)
		} else {
			h.seat(v)
		}
	case w.why == "":
		m, _ := h.feed.join(v, false)
		h.welcome(v, m)
	case kf == nil:
		h.movedAhead(v, w.why, h.feed.moveAhead(v))
	default:
		skipped, ok := h.feed.moveBehind(v, kf)
		if !ok { // it is of another log
			h.wait(v, w)
			return
		}
		h.metrics.KeyframesSent.Inc()
		h.movedAhead(v, w.why, skipped)
	}
}

// greetBehind is join for a viewer that has waited for kf. It reports false
// when kf is of another log.
func (f *feed) greetBehind(v *Viewer, kf *keyframe) (protocol.Attached, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if kf.run != f.run {
		return protocol.Attached{}, false
	}
	m := f.joinBehind(v, kf)
	f.add(v)
	return m, true
}

// movedAhead counts why v was moved ahead and past how much, and lets it go on.
func (h *Hub) movedAhead(v *Viewer, why string, skipped uint64) {
	h.metrics.Resyncs.WithLabelValues(why).Inc()
	h.metrics.Skipped.Add(float64(skipped))
	v.nudge()
}

// missed: v can't go on where it is. It gets a keyframe: without history when it
// was merely too slow, for then it has what was above.
func (h *Hub) missed(v *Viewer, why string) {
	if _, waits := h.wants.of[v]; waits || h.viewers[v.id] != v || !v.greeted {
		return
	}
	w := want{why: why, history: why == resyncReset || why == resyncLog}
	if kf := h.feed.usable(v, w.history); kf != nil || !h.canAsk() {
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
// it can be placed.
func (h *Hub) caughtUp() {
	h.catchingUp = false
	h.admit()
	for v := range h.wants.take(func(w want) bool { return w.ahead }) {
		h.seat(v)
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
			h.wait(v, want{history: true})
			continue
		}
		h.wants.open[sortOf(w.history)] = false // it may be asked for again
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

// wantsDue returns how long after now somebody's waiting ends, or another
// keyframe may be asked for.
func (h *Hub) wantsDue(now time.Time) time.Duration {
	due := h.wants.next.Sub(now)
	for sort, asked := range h.wants.asked {
		if h.wants.count[sort] > 0 && !h.wants.open[sort] && h.canAsk() {
			due = min(due, asked.Add(protocol.KeyframeInterval).Sub(now))
		}
	}
	return due
}
