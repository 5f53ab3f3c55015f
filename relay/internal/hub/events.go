package hub

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/feed"
)

// An event is one thing that the hub's run acts on. Gateways, the stream's
// reader and viewers' writers post them; run handles one at a time.
type event interface{}

type (
	// From gateways.
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
	executed struct{} // an Enter is to follow, which the timer must be set for

	// From whoever sends to a viewer, or hears its acks.
	resynced    struct{ v *Viewer } // it was sent a resync
	wentMissing struct {            // it can't go on where it is
		v   *Viewer
		why string
	}
	paced struct{ v *Viewer } // it holds the terminal back, and has moved on

	// From the goroutine that asked: whether the agent's log still has what a
	// newcomer wants.
	inLog struct {
		v  *Viewer
		ok bool
	}

	// From the stream to the agent.
	linkUp struct {
		l       *link
		adopted chan struct{} // closed when run uses l
	}
	inRing     struct{} // the ring holds what OPENED announced
	linkDown   struct{ err error }
	linkFailed struct{ err error } // no link will come
	// The agent refuses the bearer. again gets whether there is another.
	bearerRefused struct {
		bearer *bearer
		err    error
		again  chan bool
	}
	answered struct {
		l *link
		m protocol.Message
	}
	exited    struct{}
	keyframed struct{ kf *feed.Keyframe }
)
