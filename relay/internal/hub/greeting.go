package hub

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
	"github.com/fairlead/fairlead/relay/internal/roster"
)

// greetingBytes is what a greeting mostly takes beside who watches.
const greetingBytes = 768

// greet sends a viewer, which the feed has attached as m says, its first
// messages and starts output.
func (h *Hub) greet(v *Viewer, m protocol.Attached) {
	h.metrics.Attached.WithLabelValues(m.Mode).Inc()
	h.metrics.Join.WithLabelValues(m.Mode).Observe(time.Since(v.asked).Seconds())
	if m.KeyframeBytes > 0 {
		h.metrics.KeyframesSent.Inc()
	}
	v.greeted, v.presence = true, h.presence.Version()
	greeting := frames(make([]byte, 0, greetingBytes+len(h.presence.Encoded())), h.stateFor(v), m)
	if h.link == nil && !h.finished.Load() {
		greeting = frames(greeting, protocol.Waiting{Reason: protocol.WaitingSandbox})
	}
	greeting = frames(h.presenceFrame(greeting), h.facts.greeting()...)
	if h.facts.held && h.pacers.controls(v) {
		greeting = frames(greeting, protocol.OutputHeld{Held: true})
	}
	v.keys.Attach() // first, so that a greeted viewer may type
	v.outbox.greet(greeting)
	if v.user == h.leading.controller && v.may(roster.Control) {
		v.leads(v.id == h.leading.leader)
	}
	h.repace(v)
}

// presenceFrame appends who watches, as a frame.
func (h *Hub) presenceFrame(b []byte) []byte {
	return replay.AppendTextFrame(b, h.presence.Encoded())
}
