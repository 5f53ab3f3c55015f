package hub

import (
	"net"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// A placeState says where a viewer's output comes from.
type placeState uint8

const (
	following placeState = iota // the ring
	filling                     // the agent's log, until it reaches the ring
	lost                        // nowhere, until run puts it somewhere else
)

// Why a viewer is moved ahead: labels of a metric.
const (
	resyncRing    = "ring"    // the ring went on without it
	resyncUnacked = "unacked" // it stood at what it may leave unacknowledged
	resyncLog     = "log_gap" // the agent's log no longer has what it misses
	resyncReset   = "reset"   // the log itself began anew
)

// A place is where a viewer is in the output. The viewer's writer, or the
// stream's reader in its stead, moves it on, and run sets it.
type place struct {
	run   uint64 // of the feed; a place of another run is void
	epoch protocol.Epoch
	state placeState

	cursor replay.Cursor // following
	offset uint64        // filling, lost: of the next byte that the viewer misses
	why    string        // lost: for what reason
	told   bool          // lost: run knows

	lead   net.Buffers // goes before anything else: a resync, a keyframe
	kept   *keyframe   // the one in lead
	resync bool        // lead begins with a resync
	waits  bool        // nothing goes behind the keyframe until it is shown

	window window
}

// sent returns the offset behind the last byte that the viewer was sent.
func (p *place) sent() uint64 {
	if p.state == following {
		return p.cursor.Offset()
	}
	return p.offset
}

// unlead gives up what goes before anything else.
func (p *place) unlead() {
	if p.kept != nil {
		p.kept.charge.release()
	}
	p.lead, p.kept, p.resync = nil, nil, false
}

// An outcome says what is to be done beside writing what next returned.
type outcome struct {
	more     bool   // there is, perhaps, further output
	done     bool   // nothing will ever follow
	resynced bool   // the frames begin with a resync
	lost     string // run must move the viewer ahead, for this reason
	fill     bool   // a goroutine must read the agent's log for the viewer
}

// next appends to dst the frames between v's place and the head, at most
// maxWrite bytes, and moves v's place behind them.
func (f *feed) next(v *Viewer, dst net.Buffers) (net.Buffers, outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &v.place
	var out outcome
	if p.run != f.run {
		f.cutOff(v)
	}
	if p.kept != nil && v.offering { // what a socket doesn't take at once would be copied for it
		out.more = true
		return dst, out
	}
	if p.lead != nil {
		dst = append(dst, p.lead...)
		out.resynced = p.resync
		if p.kept != nil { // until it is written
			v.sending = append(v.sending, p.kept)
		}
		p.lead, p.kept, p.resync = nil, nil, false
		v.held.Store(p.state != following)
	}
	switch p.state {
	case filling:
		return f.nextFilled(v, dst, out)
	case lost:
		out.lost = f.report(v)
		return dst, out
	}
	return f.nextFollowing(v, dst, out)
}

// nextFollowing is next for a viewer whose place is in the ring.
func (f *feed) nextFollowing(v *Viewer, dst net.Buffers, out outcome) (net.Buffers, outcome) {
	p := &v.place
	limit := maxWrite
	if v.counts {
		limit = min(limit, p.room())
		if p.waits {
			f.stand(v)
			return dst, out
		}
		if limit < protocol.MaxDataBytes && p.cursor.Offset() < f.ring.Head() && f.ring.Holds(p.cursor) {
			f.stand(v)
			return dst, out
		}
	}
	dst, err := f.ring.Next(&p.cursor, limit, dst)
	if err != nil {
		f.fallOut(v)
		out.lost = f.report(v)
		out.fill = p.state == filling
		return dst, out
	}
	out.more = p.cursor.Offset() < f.ring.Head()
	out.done = f.ended && !out.more
	if v.counts && !out.more {
		p.window.stint = stint{} // it keeps up
	}
	return dst, out
}

// cutOff: the ring was replaced. A viewer that gets every byte goes on in the
// agent's log if it is the same one; any other is moved ahead.
func (f *feed) cutOff(v *Viewer) {
	p := &v.place
	at := p.sent()
	known := p.state == lost && p.told // run will put it into the new ring
	p.run = f.run
	if v.exact && p.epoch == f.ring.Epoch() && at <= f.ring.Head() && !known {
		f.fillFrom(v, at)
		return
	}
	f.lose(v, resyncReset)
	p.told = known
}

// fallOut: the ring went on without v. Who holds the terminal back is not far
// behind and gets what it misses from the agent's log, as does in any case one
// that gets every byte.
func (f *feed) fallOut(v *Viewer) {
	p := &v.place
	behind := f.ring.Head() - p.cursor.Offset()
	if v.exact || v.pace.on && behind <= 2*protocol.MaxPaceLag {
		f.fillFrom(v, p.cursor.Offset())
		return
	}
	f.lose(v, resyncRing)
}

// fillFrom has v get its output from the agent's log, from offset on. What it
// sees of the terminal doesn't change by that.
func (f *feed) fillFrom(v *Viewer, offset uint64) {
	v.place.state, v.place.offset = filling, offset
	v.fill.begin(0, 0) // the ring no longer knows the size
	v.held.Store(true)
}

// lose takes v's output away until run puts it somewhere else.
func (f *feed) lose(v *Viewer, why string) {
	p := &v.place
	at := p.sent()
	v.fill.stop()
	p.state, p.offset, p.why, p.told = lost, at, why, false
	p.unlead()
	v.held.Store(true)
}

// report returns why run must move v ahead, "" when it knows or must wait: one
// that acknowledges is moved by its next ack, when there is one to come.
func (f *feed) report(v *Viewer) string {
	p := &v.place
	if p.state != lost || p.told || v.counts && p.why == resyncRing && p.unacked() > 0 {
		return ""
	}
	p.told = true
	return p.why
}

// sit puts v into another place. What it was sent before a keyframe, and has
// not acknowledged, stays on its account. The caller holds mu.
func (f *feed) sit(v *Viewer, at place) {
	old := v.place
	at.run, at.epoch = f.run, f.ring.Epoch()
	at.window.acked = at.sent()
	if at.window.debt > 0 {
		at.window.debt += old.unacked()
	}
	v.place.unlead()
	v.place = at
	v.fill.stop()
	v.pace.moved(at.sent(), old.epoch != at.epoch)
	v.held.Store(at.state != following || at.lead != nil)
}

// sitAt puts v before the byte at offset, which the ring holds, and returns
// the size in force there. The caller holds mu.
func (f *feed) sitAt(v *Viewer, offset uint64, lead ...[]byte) (cols, rows int) {
	cursor, err := f.ring.CursorAt(offset)
	if err != nil {
		cursor = f.ring.End()
	}
	f.sit(v, place{cursor: cursor, lead: lead, resync: len(lead) > 0})
	return f.ring.SizeAt(offset)
}

// sitBehind puts v where kf, which is of this run, ends, and has it sent kf
// first, after lead. A viewer that was too slow gets no more until it shows kf:
// if there is much more by then, another keyframe is better. When the ring has
// already gone on, who gets every byte reads on in the agent's log. The caller
// holds mu.
func (f *feed) sitBehind(v *Viewer, kf *keyframe, lead ...[]byte) {
	why := v.place.why
	at := place{
		cursor: kf.cursor, lead: append(lead, kf.frames...), kept: kf, resync: len(lead) > 0,
		waits:  v.counts && !v.exact && (why == resyncRing || why == resyncUnacked),
		window: window{debt: kf.bytes, debtAt: kf.offset},
	}
	switch {
	case f.ring.Holds(kf.cursor):
	case v.exact:
		at.state, at.offset = filling, kf.offset
	default: // it shows kf all the same, and then the next one
		at.state, at.offset, at.why = lost, kf.offset, resyncRing
	}
	kf.charge.hold()
	f.sit(v, at)
	if at.state == filling {
		v.fill.begin(kf.cols, kf.rows)
	}
}
