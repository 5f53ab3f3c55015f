package feed

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A flow counts what a reader was sent and has not acknowledged. The bytes of a
// keyframe, and those in flight before it, are credited at once by the first
// ack that proves that the keyframe was shown.
type flow struct {
	acked  uint64 // everything before it is shown
	debt   int    // bytes of keyframes, and of the output in flight before them
	debtAt uint64 // an ack at or beyond this offset clears debt
	stall  stall
}

// A stall is the time since when a reader has not had all the output, because
// of its ack limit or its socket.
type stall struct {
	since time.Time // zero: it keeps up
	acked uint64    // its acked at that time
}

// unacked returns how many bytes the reader has not acknowledged.
func (p *position) unacked() int { return p.flow.debt + int(p.sent()-p.flow.acked) }

// room returns how many bytes more the reader may be sent.
func (p *position) room() int { return protocol.MaxOutputUnacked - p.unacked() }

// slow reports whether the reader has stalled for so long, at so low a rate,
// that it should skip to the present.
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

// block stops output to the reader until it acknowledges some, so that new
// output costs nothing for it. The caller holds feed.mu.
func (r *Reader) block() {
	if w := &r.pos.flow; w.stall.since.IsZero() {
		w.stall = stall{time.Now(), w.acked}
	}
	r.blocked.Store(true)
}

// slow reports whether the reader, which just acknowledged, should skip to the
// present. It counts both a reader at its ack limit and one whose socket is
// full: either lacks output. The caller holds feed.mu.
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

// StalledFor makes the reader appear to have stalled for d, for tests.
func (r *Reader) StalledFor(d time.Duration) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.pos.flow.stall.since = time.Now().Add(-d)
}

// An AckOutcome says what the caller has to do after an ack.
type AckOutcome struct {
	Wake  bool   // the writer may go on
	Lost  string // the hub must move the reader ahead, for this reason
	Paced bool   // the agent should hear of it
}

// Acked notes that the reader has shown everything before offset. It ignores an
// offset that was never sent: that is of an earlier log, or nonsense.
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
		return out // the ack is from before the keyframe
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
