package hub

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// maxNotices bounds the text frames that wait for one viewer. A viewer that lets
// more pile up is closed: it can't be told anything any more.
const maxNotices = 64 << 10

// An outbox holds what a viewer is to be told, until its socket takes it. What
// is queued before the greeting is sent behind it.
type outbox struct {
	// Static after construction.
	socket   *socket            // writes what is here
	overflow prometheus.Counter // of viewers who let too much pile up

	// Guarded by mu.
	mu         sync.Mutex
	notices    []byte // framed text that waits
	ahead      []byte // framed text that doesn't wait for the greeting
	refusing   bool   // an input_refused waits among the notices
	pinged     bool   // the viewer asked whether we are there
	typedUpTo  uint64 // its input up to this sequence number was written
	ackedInput uint64 // what it was told of that
	live       bool   // it was greeted, and has a position in the output
	closing    bool
	closeCode  int
	closeCause string
}

// Tell queues a text frame, which waits for the greeting if need be.
func (o *outbox) Tell(m protocol.ServerMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return
	}
	if refusal, ok := m.(protocol.InputDropped); ok && refusal.Seq == 0 {
		if o.refusing {
			return // one waiting notice says it all
		}
		o.refusing = true
	}
	o.notices = replay.AppendTextFrame(o.notices, protocol.EncodeServerMessage(m))
	o.bound()
}

// complain tells the viewer that a frame of its own could not be obeyed.
func (o *outbox) complain(err error) {
	e := protocol.AsError(err)
	o.Tell(protocol.ErrorMessage{Name: e.Kind.Name(), Message: e.Error()})
}

// tellFrame queues a text frame that is the same for many.
func (o *outbox) tellFrame(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return
	}
	o.notices = append(o.notices, frame...)
	o.bound()
}

// bound ends a viewer for whom too much waits, and wakes the writer. The caller
// holds mu.
func (o *outbox) bound() {
	if len(o.notices) > maxNotices {
		o.overflow.Inc()
		o.notices = nil
		o.closeLocked(protocol.KindTooMany, "too far behind")
	}
	o.socket.Wake()
}

// pongFrame answers pings, however many came since the last one: so many viewers
// ask that each answer has to cost next to nothing.
var pongFrame = replay.AppendTextFrame(nil, protocol.EncodeServerMessage(protocol.PongMessage{}))

// pong answers a ping of the viewer.
func (o *outbox) pong() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pinged {
		o.pinged = true
		o.socket.Wake()
	}
}

// hint has m written at once, whether the viewer was greeted or not.
func (o *outbox) hint(m protocol.ServerMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead = replay.AppendTextFrame(o.ahead, protocol.EncodeServerMessage(m))
	o.socket.Wake()
}

// Confirm tells the viewer that all its input up to seq was written.
func (o *outbox) Confirm(seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq > o.typedUpTo {
		o.typedUpTo = seq
		o.socket.Wake()
	}
}

// close makes the writer end the socket once the notices so far are written.
func (o *outbox) close(kind protocol.Kind, cause string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closeLocked(kind, cause)
}

// closeLocked is close without the lock. The caller holds mu.
func (o *outbox) closeLocked(kind protocol.Kind, cause string) {
	if !o.closing {
		o.closing, o.closeCode, o.closeCause = true, kind.CloseCode(), cause
	}
	o.socket.Wake()
}

// greet sends the greeting before everything else, and lets output flow from the
// position that the reader has.
func (o *outbox) greet(greeting []protocol.ServerMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var first []byte
	for _, m := range greeting {
		first = replay.AppendTextFrame(first, protocol.EncodeServerMessage(m))
	}
	o.notices = append(first, o.notices...)
	o.live = true
	o.socket.Wake()
}

// take returns what is to be written now, and forgets it. live says that output
// may follow, closing that the socket ends behind it.
func (o *outbox) take() (notices []byte, live, closing bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	notices, o.ahead = o.ahead, nil
	if o.live || o.closing {
		if notices == nil {
			notices = o.notices
		} else {
			notices = append(notices, o.notices...)
		}
		o.notices, o.refusing = nil, false
		if o.typedUpTo > o.ackedInput {
			o.ackedInput = o.typedUpTo
			notices = replay.AppendTextFrame(notices,
				protocol.EncodeServerMessage(protocol.InputWritten{Seq: o.ackedInput}))
		}
	}
	if o.pinged { // also one that isn't greeted must know that we are there
		o.pinged = false
		notices = append(notices, pongFrame...)
	}
	return notices, o.live, o.closing
}

// end returns how the socket is to be closed.
func (o *outbox) end() (code int, cause string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closeCode, o.closeCause
}
