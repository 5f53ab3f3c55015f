package hub

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
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

	// From a viewer's writer: it was sent a resync.
	resynced struct{ v *Viewer }

	// From the stream to the agent.
	linkUp struct {
		l       *link
		adopted chan struct{} // closed when run uses l
	}
	caughtUp   struct{} // the ring holds what OPENED announced
	linkDown   struct{ err error }
	linkFailed struct{ err error } // no link will come
	// The agent refuses the bearer. again gets whether there is another.
	bearerRefused struct {
		token string
		err   error
		again chan bool
	}
	answered struct {
		l *link
		m protocol.Message
	}
	exited struct{}
)
