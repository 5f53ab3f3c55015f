package feed

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A flow is the account of a reader that acknowledges what it shows. A keyframe,
// and what was under way before it, is given back whole by an ack that only
// somebody who has shown the keyframe can send.
type flow struct {
	acked  uint64 // everything before it is shown
	debt   int    // bytes of keyframes, and of what came before them
	debtAt uint64 // an ack from here on pays debt
	stall  stall
}

// A stall is the time for which a reader has been at its limit, or at what its
// socket takes, on and off, since it last had all the output.
type stall struct {
	since time.Time // zero: it keeps up
	acked uint64    // what it had acknowledged then
}

// unacked returns how many bytes the reader has not acknowledged.
func (p *position) unacked() int { return p.flow.debt + int(p.sent()-p.flow.acked) }

// room returns how many bytes more the reader may be sent.
func (p *position) room() int { return protocol.MaxOutputUnacked - p.unacked() }

// slow reports whether the reader has stalled for so long, and moved so little,
// that it had better see the present.
func (w *flow) slow(now time.Time) bool {
	if w.stall.since.IsZero() {
		return false
	}
	stalled := now.Sub(w.stall.since)
	if stalled < protocol.SlowAfter {
		return false
	}
	if float64(w.acked-w.stall.acked) < protocol.MinPaceRate*stalled.Seconds() {
		return true
	}
	w.stall = stall{now, w.acked}
	return false
}

// block has the reader sent no more until it acknowledges something. Until then
// new output costs nothing for it. The caller holds feed.mu.
func (r *Reader) block() {
	if w := &r.pos.flow; w.stall.since.IsZero() {
		w.stall = stall{time.Now(), w.acked}
	}
	r.blocked.Store(true)
}

// slow reports whether the reader, from which an ack came, had better see the
// present. It makes no difference whether it is at its limit or its writer waits
// at the socket: there is output that it doesn't get. The caller holds feed.mu.
func (r *Reader) slow() bool {
	p := &r.pos
	if p.source != fromRing || p.cursor.Offset() == r.feed.ring.Head() {
		return false
	}
	now := time.Now()
	if p.flow.stall.since.IsZero() {
		p.flow.stall = stall{now, p.flow.acked}
	}
	return p.flow.slow(now)
}

// StalledFor has the reader appear to have stalled for d, in tests of what
// follows.
func (r *Reader) StalledFor(d time.Duration) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.pos.flow.stall.since = time.Now().Add(-d)
}

// An AckOutcome says what follows from an ack.
type AckOutcome struct {
	Wake  bool   // the writer may go on
	Lost  string // the hub must move the reader ahead, for this reason
	Paced bool   // the agent should hear of it
}

// Acked notes that the reader has shown everything before offset. It can't have
// shown what it was never sent: such an ack is of an earlier log, or nonsense.
func (r *Reader) Acked(offset uint64) (out AckOutcome) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &r.pos
	w := &p.flow
	if p.generation != f.generation || offset < w.acked || offset > p.sent() {
		return out
	}
	w.acked = offset
	if w.debt > 0 && (p.prefix != nil || offset < w.debtAt) {
		return out // the keyframe is still under way
	}
	w.debt = 0
	out.Paced = r.pace.reached(offset)
	waited := p.waits
	p.waits = false
	switch {
	case p.source == nowhere:
		out.Lost = r.report()
		if out.Lost == "" && !p.told {
			p.told, out.Lost = true, p.why
		}
	case waited && f.ring.Head()-offset > protocol.AckBytes, !r.exact && r.slow():
		r.lose(ResyncUnacked)
		p.told, out.Lost = true, ResyncUnacked
	case !r.blocked.Load():
	case p.room() >= protocol.MaxDataBytes:
		r.blocked.Store(p.source != fromRing)
		out.Wake = true
	}
	return out
}
