package hub

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A window is the account of a viewer that acknowledges what it shows. A
// keyframe, and what was under way before it, is given back whole by an ack
// that only somebody who has shown the keyframe can send.
type window struct {
	acked  uint64 // everything before it is shown
	debt   int    // bytes of keyframes, and of what came before them
	debtAt uint64 // an ack from here on pays debt
	stint  stint
}

// A stint is the time that a viewer has stood at its limit, or at what its
// socket takes, on and off, since it last had all the output.
type stint struct {
	since time.Time // zero: it keeps up
	acked uint64    // what it had acknowledged then
}

// unacked returns how many bytes the viewer has not acknowledged.
func (p *place) unacked() int { return p.window.debt + int(p.sent()-p.window.acked) }

// room returns how many bytes more the viewer may be sent.
func (p *place) room() int { return protocol.MaxOutputUnacked - p.unacked() }

// slow reports whether the viewer has stood at its limit for so long, and
// moved so little, that it had better see the present.
func (w *window) slow(now time.Time) bool {
	if w.stint.since.IsZero() {
		return false
	}
	stood := now.Sub(w.stint.since)
	if stood < protocol.SlowAfter {
		return false
	}
	if float64(w.acked-w.stint.acked) < protocol.MinPaceRate*stood.Seconds() {
		return true
	}
	w.stint = stint{now, w.acked}
	return false
}

// stand: v may be sent no more until it acknowledges something. Output no
// longer costs anything for it: nobody looks at it before it does.
func (f *feed) stand(v *Viewer) {
	if w := &v.place.window; w.stint.since.IsZero() {
		w.stint = stint{time.Now(), w.acked}
	}
	v.held.Store(true)
}

// slow reports whether v, of whom there was an ack, had better see the present.
// Whether it stands at its limit or its writer at the socket is the same: there
// is output that it doesn't get.
func (f *feed) slow(v *Viewer) bool {
	p := &v.place
	if p.state != following || p.cursor.Offset() == f.ring.Head() {
		return false
	}
	now := time.Now()
	if p.window.stint.since.IsZero() {
		p.window.stint = stint{now, p.window.acked}
	}
	return p.window.slow(now)
}

// An ackOutcome says what follows from an ack.
type ackOutcome struct {
	wake  bool   // the writer may go on
	lost  string // run must move the viewer ahead, for this reason
	paced bool   // the agent should hear of it
}

// acked notes that v has shown everything before offset. What it was never sent
// it can't have shown: such an ack is of an earlier log, or nonsense.
func (f *feed) acked(v *Viewer, offset uint64) (out ackOutcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &v.place
	w := &p.window
	if p.run != f.run || offset < w.acked || offset > p.sent() {
		return out
	}
	w.acked = offset
	if w.debt > 0 && (p.lead != nil || offset < w.debtAt) {
		return out // the keyframe is still under way
	}
	w.debt = 0
	out.paced = v.pace.reached(offset)
	waited := p.waits
	p.waits = false
	switch {
	case p.state == lost:
		out.lost = f.report(v)
		if out.lost == "" && !p.told {
			p.told, out.lost = true, p.why
		}
	case waited && f.ring.Head()-offset > protocol.AckBytes, !v.exact && f.slow(v):
		f.lose(v, resyncUnacked)
		p.told, out.lost = true, resyncUnacked
	case !v.held.Load():
	case p.room() >= protocol.MaxDataBytes:
		v.held.Store(p.state != following)
		out.wake = true
	}
	return out
}

// Ack notes that the viewer has shown everything before offset.
func (v *Viewer) Ack(offset uint64) {
	if !v.counts {
		v.Complain(protocol.Errorf(protocol.KindInvalid, "ack belongs to %s", protocol.SubprotocolTerminal))
		return
	}
	v.hub.metrics.Acks.Inc()
	out := v.hub.feed.acked(v, offset)
	if out.paced {
		v.hub.post(paced{v})
	}
	if out.lost != "" {
		v.hub.post(wentMissing{v, out.lost})
	}
	if out.wake {
		v.nudge()
	}
}
