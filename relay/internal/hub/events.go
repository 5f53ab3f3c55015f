package hub

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/feed"
)

// An event is one thing that the hub's run acts on. Gateways, the stream's
// reader and viewers' writers post them; run takes one at a time. The interface
// is sealed, and each event says itself what follows: one that nobody acts on
// doesn't compile.
type event interface {
	// act has h act on the event. It returns false when the hub is over.
	act(h *Hub) (goOn bool)
}

// From gateways.
type (
	joined  struct{ v *Viewer }
	left    struct{ v *Viewer }
	renewed struct {
		v     *Viewer
		grant *jws.Grant
		token string
	}
	said struct {
		v *Viewer
		m protocol.ClientMessage
	}
	executed struct{} // an Enter is to follow, for which run sets its timer
)

func (e joined) act(h *Hub) bool  { h.join(e.v); return true }
func (e left) act(h *Hub) bool    { h.leave(e.v); return true }
func (e renewed) act(h *Hub) bool { h.renew(e.v, e.grant, e.token); return true }
func (e said) act(h *Hub) bool    { h.obey(e.v, e.m); return true }
func (executed) act(*Hub) bool    { return true }

// From whoever sends to a viewer, or hears its acks.
type (
	resynced    struct{ v *Viewer } // it was sent a resync
	wentMissing struct {            // it can't go on where it is
		v   *Viewer
		why string
	}
	paced struct{ v *Viewer } // it holds the terminal back, and has moved on
)

func (e resynced) act(h *Hub) bool    { e.v.outbox.Tell(h.stateFor(e.v)); return true }
func (e wentMissing) act(h *Hub) bool { h.missed(e.v, e.why); return true }
func (e paced) act(h *Hub) bool       { h.tellPace(e.v); return true }

// From the goroutine that asked: whether the agent's log still has what a
// newcomer wants.
type inLog struct {
	v  *Viewer
	ok bool
}

func (e inLog) act(h *Hub) bool { h.answeredLog(e.v, e.ok); return true }

// From the stream to the agent.
type (
	linkUp struct {
		l       *link
		adopted chan struct{} // closed when run uses l
	}
	inRing        struct{} // the ring holds what OPENED announced
	linkDown      struct{ err error }
	linkFailed    struct{ err error } // no link will come
	bearerRefused struct {            // by the agent
		bearer *bearer
		err    error
		again  chan bool // gets whether there is another
	}
	answered struct {
		l *link
		m protocol.Message
	}
	exited    struct{}
	keyframed struct{ kf *feed.Keyframe } // nil: it came, and there is no room for it
)

func (e linkUp) act(h *Hub) bool {
	h.linked(e.l)
	close(e.adopted)
	return true
}

func (inRing) act(h *Hub) bool       { h.caughtUp(); return true }
func (e linkDown) act(h *Hub) bool   { h.unlinked(e.err); return true }
func (e linkFailed) act(h *Hub) bool { return h.unreachable(e.err) }

func (e bearerRefused) act(h *Hub) bool {
	e.again <- h.replaceBearer(e.bearer, e.err)
	return true
}

func (e answered) act(h *Hub) bool {
	if e.l == h.link {
		h.answer(e.m)
	}
	return true
}

func (exited) act(h *Hub) bool {
	h.intake.end()
	h.noKeyframes()
	return true
}

func (e keyframed) act(h *Hub) bool {
	if e.kf == nil {
		h.noKeyframes()
	} else {
		h.came(e.kf)
	}
	return true
}
