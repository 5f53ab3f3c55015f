package hub

import (
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// maxNotices bounds the text frames that wait for one viewer. Beyond it the
// viewer is closed, as it can't be told anything any more.
const maxNotices = 64 << 10

// An outbox holds the messages for a viewer until its socket takes them. Those
// queued before the greeting are sent after it.
type outbox struct {
	// Static after construction.
	socket   *socket            // writes the messages
	overflow prometheus.Counter // of viewers for whom too much waited

	idle atomic.Bool // greeted, and nothing waits: output alone may be written; set under mu

	// Guarded by mu.
	mu         sync.Mutex
	notices    []byte // framed text messages
	ahead      []byte // framed text messages that don't wait for the greeting
	refusing   bool   // an input_refused is among notices
	pinged     bool   // a ping of the viewer waits for an answer
	typedUpTo  uint64 // its input up to this number was written
	ackedInput uint64 // the number that it was told
	live       bool   // it was greeted and has a position in the output
	closing    bool
	closeCode  int
	closeCause string
}

// Tell queues a text message, for after the greeting if that is to come.
func (o *outbox) Tell(m protocol.ServerMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return
	}
	if refusal, ok := m.(protocol.InputDropped); ok && refusal.Seq == 0 {
		if o.refusing {
			return // one waiting message is enough
		}
		o.refusing = true
	}
	o.notices = replay.AppendTextFrame(o.notices, protocol.EncodeServerMessage(m))
	o.bound()
}

// complain tells the viewer that its message could not be obeyed.
func (o *outbox) complain(err error) {
	e := protocol.AsError(err)
	o.Tell(protocol.ErrorMessage{Name: e.Kind.Name(), Message: e.Error()})
}

// tellFrame queues a text frame that is shared by many viewers.
func (o *outbox) tellFrame(frame []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closing {
		return
	}
	o.notices = append(o.notices, frame...)
	o.bound()
}

// bound closes a viewer for which too much waits, and wakes the writer. The
// caller holds mu.
func (o *outbox) bound() {
	if len(o.notices) > maxNotices {
		o.overflow.Inc()
		o.notices = nil
		o.closeLocked(protocol.KindTooMany, "too far behind")
	}
	o.stir()
}

// stir has what waits written. The caller holds mu.
func (o *outbox) stir() {
	o.idle.Store(false)
	o.socket.Wake()
}

// clear reports whether output may be written without a look at the messages.
func (o *outbox) clear() bool { return o.idle.Load() }

// pongFrame answers all pings since the last one: so many viewers ping that
// each answer must cost next to nothing.
var pongFrame = replay.AppendTextFrame(nil, protocol.EncodeServerMessage(protocol.PongMessage{}))

// pong answers a ping of the viewer.
func (o *outbox) pong() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.pinged {
		o.pinged = true
		o.stir()
	}
}

// hint writes m at once, even before the greeting.
func (o *outbox) hint(m protocol.ServerMessage) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ahead = replay.AppendTextFrame(o.ahead, protocol.EncodeServerMessage(m))
	o.stir()
}

// Confirm tells the viewer that all its input up to seq was written.
func (o *outbox) Confirm(seq uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if seq > o.typedUpTo {
		o.typedUpTo = seq
		o.stir()
	}
}

// close makes the writer end the socket after the messages so far.
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
	o.stir()
}

// frames appends messages as frames.
func frames(b []byte, messages ...protocol.ServerMessage) []byte {
	for _, m := range messages {
		b = replay.AppendTextFrame(b, protocol.EncodeServerMessage(m))
	}
	return b
}

// greet sends the greeting, framed, before everything else, and starts output
// from the reader's position.
func (o *outbox) greet(greeting []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.notices = append(greeting, o.notices...)
	o.live = true
	o.stir()
}

// take removes and returns what is to be written now. live: output may follow;
// closing: the socket ends after it.
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
	if o.pinged { // even before the greeting a viewer must know that the relay is alive
		o.pinged = false
		notices = append(notices, pongFrame...)
	}
	o.idle.Store(o.live && !o.closing)
	return notices, o.live, o.closing
}

// end returns how to close the socket.
func (o *outbox) end() (code int, cause string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closeCode, o.closeCause
}
